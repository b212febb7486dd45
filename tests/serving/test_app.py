"""Apps: agents that can be served, and an app mounted in another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import anyio
import httpx
import pytest
from asgi_client import asked
from scripted_agents import agent
from served_apps import ask
from starlette.applications import Starlette
from starlette.routing import Mount

from routelock import Agent, ConfigError, RunConfig
from routelock.run.executor import InProcess
from routelock.serving import A2A, AGUI, MCP, ServeConfig, create_app
from routelock.testing import ScriptedHandler


def test_an_app_can_be_mounted_in_another() -> None:
    """Behind a prefix of the other app's, and with its own name for the host."""
    inner = create_app(agent("A", "Hi."), ServeConfig(allowed_hosts=["testserver"]))
    app = Starlette(routes=[Mount("/agents", inner)])

    async def visit() -> tuple[httpx.Response, httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver/agents/v1") as client:
            return await client.get("/models/A"), await client.post("/chat/completions", json=ask())

    models, chat = anyio.run(visit)
    assert models.json()["id"] == "A"
    assert chat.json()["choices"][0]["message"]["content"] == "Hi."


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ([], "the list is empty"),
        (["A"], "not 'A'"),
        ("shop:triage", "not 'shop:triage'"),
        (None, "not None"),
        ([Agent("A", model=ScriptedHandler([])), Agent("A", model=ScriptedHandler([]))], "the same name"),
        (Agent("A"), "has no model"),
    ],
)
def test_agents_that_cannot_be_served_are_an_error(agents: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        create_app(agents)


def test_settings_that_are_a_dict_are_refused() -> None:
    with pytest.raises(ConfigError, match="config must be a ServeConfig, not dict"):
        create_app(agent("A"), cast("ServeConfig", {"api_keys": ["k"]}))


META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
MCP_HEADERS = {"accept": "*/*", "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
USER = {"id": "1", "role": "user", "content": "Hi"}
ASKED: Mapping[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {}, ask()),
    "responses": ("/v1/responses", {}, {"input": "Hi"}),
    "ag-ui": ("/ag-ui/A", {}, {"threadId": "t", "runId": "r", "messages": [USER]}),
    "mcp": (
        "/mcp",
        {**MCP_HEADERS, "mcp-name": "a"},
        {
            "jsonrpc": "2.0",
            "id": 7,
            "method": "tools/call",
            "params": {"name": "a", "arguments": {"input": "Hi"}, "_meta": META},
        },
    ),
}


@pytest.mark.parametrize("protocol", ASKED)
def test_an_executor_is_for_the_tasks_of_a2a_alone(protocol: str) -> None:
    """No other request has an id by which an engine would find its run again."""
    if protocol == "mcp":
        pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")
    path, headers, body = ASKED[protocol]
    config = ServeConfig(
        a2a=A2A(),
        ag_ui=AGUI(),
        mcp=MCP() if protocol == "mcp" else None,
        run_config=RunConfig(executor=InProcess()),
    )
    answer = asked(create_app(agent("A", "Hello."), config), path, body, headers=headers)
    assert answer.status == 200, answer.text
    assert "Hello" in answer.text
