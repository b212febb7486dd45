"""The MCP clients for Python and JavaScript, unmodified, against agents behind true sockets and pipes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from clients.a2a_cast import ORDER_DATA
from clients.cast import DESK, GREETING, POLYGLOT, Log
from clients.mcp_cast import mcp_agents
from clients.played import Played
from clients.served import KEY, PATIENCE, node_client, play, served
from mcp_clients import Asks, connected, http_client

from routelock.serving import MCP, ServeConfig, create_app

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")

SETTINGS = ServeConfig(api_keys=[KEY], timeout=PATIENCE / 2, mcp=MCP())
NEW, OLD = "auto", "legacy"
CLIENTS = {
    # the newer form of the protocol, or the one with a handshake
    "python": NEW,
    "python with a handshake": OLD,
    "python, a program": NEW,
    "python, a program, with a handshake": OLD,
    "js 1": OLD,
    "js 2": NEW,
}
NAMES = ["greeter", "desk", "polyglot", "broken", "endless", "clerk", "payer", "teller"]


@pytest.fixture(scope="module", params=CLIENTS)
def scenes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """All scenes, played once by each client."""
    client = str(request.param)
    js = [*node_client("mcp_client.mjs")] if client.startswith("js") else None
    if "program" in client:
        yield Played(client, _played_in_python(client, ""), Log())
        return
    with served(create_app(mcp_agents(), SETTINGS)) as base:
        url = base.removesuffix("/v1") + "/mcp"
        if js:
            facts = play(js, url, KEY, client[-1], home=tmp_path_factory.mktemp("home"))
        else:
            facts = _played_in_python(client, url)
        yield Played(client, facts, Log())


def _played_in_python(client: str, url: str) -> dict[str, Any]:
    from clients.mcp_python import played

    def connect(asks: Asks | None) -> Any:
        if url:
            return http_client(url, CLIENTS[client], key=KEY, asks=asks)
        return connected(_program(), CLIENTS[client], asks)

    return asyncio.run(played(connect))


def _program() -> Any:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    arguments = ["-m", "routelock", "mcp", "clients.mcp_cast:mcp_agents", "--log-level", "error"]
    path = os.pathsep.join(filter(None, sys.path))
    return stdio_client(
        StdioServerParameters(command=sys.executable, args=arguments, env={"PYTHONPATH": path})
    )


def test_each_agent_is_a_tool(scenes: Played) -> None:
    assert scenes["listed"] == {
        "names": NAMES,
        "takes": ["input"],
        "promised": ["clerk"],
    }


def test_the_answer_is_the_text_of_the_agent(scenes: Played) -> None:
    assert scenes["greeting"] == {"text": GREETING}


def test_progress_tells_turns_tools_and_agents(scenes: Played) -> None:
    assert scenes["transfer"] == {
        "text": DESK,
        "told": [
            "desk is active",
            "the model has replied",
            "calls look_up",
            "the model has replied",
            "desk hands over to specialist",
            "specialist is active",
            "the model has replied",
        ],
    }


def test_no_letter_is_changed(scenes: Played) -> None:
    assert scenes["unicode"] == {"text": POLYGLOT}


def test_a_failure_is_a_result_that_says_why(scenes: Played) -> None:
    assert scenes["broken"] == {"error": True, "text": "The model behind this agent failed."}


def test_an_output_type_is_structured_content(scenes: Played) -> None:
    assert scenes["structured"] == {"data": ORDER_DATA, "text": ORDER_DATA}


def test_a_call_that_needs_approval_asks_the_user(scenes: Played) -> None:
    assert scenes["approval"] == {
        "asked": ['May the agent payer call pay with these arguments? {"amount": 40}'] * 2,
        "said": ["Then: paid", "Then: This call was not approved, so it was not made."],
    }


def test_a_client_that_cannot_ask_is_told_so(scenes: Played) -> None:
    assert "because it does not support elicitation. The call was not made." in scenes["silent"]["refused"]


def test_an_unknown_tool_is_refused(scenes: Played) -> None:
    assert "There is no tool 'stranger' here." in scenes["unknown"]["refused"]


def test_a_cancelled_call_ends_its_run(scenes: Played) -> None:
    assert scenes["cancelled"]["told"]["cancelled"] == ["Hello?"]


def test_without_a_key_nothing_is_answered(scenes: Played) -> None:
    if not scenes.client.startswith("js"):
        pytest.skip("the routes are tested with httpx")
    assert "Send a valid API key" in scenes["key"]["refused"] or "401" in scenes["key"]["refused"]
