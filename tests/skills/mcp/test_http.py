"""An MCP server over HTTP on a real socket: with a key, restarted, without its sessions, or absent."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from answers import Answers
from mcp_servers import IS_2, Office
from served_apps import listening
from servers import HELLO, Reply, Server

from routelock import Agent, Runner, RunState
from routelock.context import ToolContext
from routelock.errors import ToolError
from routelock.testing import ScriptedHandler, call
from routelock_skills.mcp import MCPClient

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.usefixtures("answers_of_respx"),
    # version 1 of the package leaves generators and streams to the collector
    pytest.mark.filterwarnings("ignore:(Async generator|Unclosed):ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Door:
    """An app behind a key check, which can also be switched off and on."""

    def __init__(self) -> None:
        self.behind = Office().app()
        self.open()

    def open(self) -> None:
        """Forget all sessions."""
        self.app = self.behind
        self.closed = False
        self.keys: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode(): value.decode() for name, value in scope["headers"]}
            self.keys.append(headers.get("authorization", ""))
            if self.closed:
                await send({"type": "http.response.start", "status": 503, "headers": []})
                await send({"type": "http.response.body", "body": b"closed"})
                return
        await self.app(scope, receive, send)


@pytest.fixture(scope="module")
def building() -> Iterator[tuple[Door, str]]:
    """One server for all tests, because old versions of its library are bound to one event loop."""
    made = Door()
    with listening(made) as url:
        yield made, f"{url}/mcp"
    gc.collect()  # here, where it is known what is left


@pytest.fixture
def door(building: tuple[Door, str]) -> tuple[Door, str]:
    building[0].open()
    return building


async def answer(client: MCPClient, name: str, arguments: str) -> Any:
    made = {each.name: each for each in client.tools}[name]
    return await made.invoke(ToolContext(context=None, tool_name=name, tool_call_id="c1"), arguments)


async def test_an_agent_uses_it_with_a_key(door: tuple[Door, str]) -> None:
    made, url = door
    model = ScriptedHandler([call("add", {"a": 1}), call("files_read_v1", {"path": "x"}), "Done."])
    async with MCPClient({"url": url, "headers": {"Authorization": "Bearer k"}}) as client:
        assert (client.name, client.instructions) == ("127.0.0.1", "Ask the office.")
        result = await Runner.run(Agent("clerk", model=model, tools=client.tools), "Go.")
    answers = [each.get("content") for each in result.to_input_list() if each["role"] == "tool"]
    assert answers == ["3", "what is in x"]
    assert set(made.keys) == {"Bearer k"}


@pytest.mark.skipif(not IS_2, reason="version 1 of the package has no calls of several rounds")
async def test_question_is_answered_from_a_stored_state(door: tuple[Door, str]) -> None:
    async with MCPClient(door[1]) as client:
        model = ScriptedHandler([call("lend", {"title": "Emma"}), "Done."])
        agent = Agent("clerk", model=model, tools=client.tools)
        stored = (await Runner.run(agent, "Go.")).state().to_json()
        state = RunState.from_json(stored, agents=[agent])
        state = state.approve(state.interruptions[0], answer={"branch": "north"})
        result = await Runner.run(agent, state)
    assert result.to_input_list()[2].get("content") == "Emma is lent in north"


@pytest.mark.asyncio_only  # on trio, version 1 of the package may never hand on one of two answers
async def test_calls_are_made_at_the_same_time(door: tuple[Door, str]) -> None:
    calls = [call("add", {"a": number}) for number in range(10)]
    async with MCPClient(door[1]) as client:
        agent = Agent("clerk", model=ScriptedHandler([calls, "Done."]), tools=client.tools)
        result = await Runner.run(agent, "Go.")
    answers = [each.get("content") for each in result.to_input_list() if each["role"] == "tool"]
    assert answers == [str(number + 2) for number in range(10)]


async def test_server_is_reached_again_after_an_outage(door: tuple[Door, str]) -> None:
    made, url = door
    async with MCPClient(url) as client:
        made.closed = True
        outcome = await answer(client, "add", '{"a": 1}')
        assert outcome.error == "raised"
        assert outcome.output.startswith("Tool 'add' failed: MCP server '127.0.0.1'")
        made.closed = False
        assert (await answer(client, "add", '{"a": 1}')).output == "3"


async def test_restarted_server_gets_a_new_session(door: tuple[Door, str]) -> None:
    """It answers 404 to an old session without carrying out the call, so the call is repeated."""
    made, url = door
    async with MCPClient(url) as client:
        made.app = _forgetful(made.app)
        assert (await answer(client, "add", '{"a": 1}')).output == "3"


def _forgetful(app: Any) -> Any:
    """Let the first request of a known session be answered as by a server that never saw it."""
    forgotten: list[str] = []

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        names = dict(scope.get("headers") or ())
        session = names.get(b"mcp-session-id", b"").decode()
        if session and not forgotten:
            forgotten.append(session)
        if session and session in forgotten:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await app(scope, receive, send)

    return answering


@pytest.mark.parametrize("status", [401, 404, 500])
async def test_refusing_server_is_an_error(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with (
        Answers(Reply([b"no"], status=status)) as server,
        pytest.raises(ToolError, match=r"MCP server '127\.0\.0\.1' cannot be used: "),
    ):
        async with MCPClient(server.url):
            pass


async def test_unanswered_connect_times_out() -> None:
    with (
        Server(Reply(ending="stall")) as server,
        pytest.raises(ToolError, match=r"it did not answer within 0\.2 seconds"),
    ):
        async with MCPClient(server.url, connect_timeout=0.2):
            pass


async def test_refused_connection_is_an_error() -> None:
    with pytest.raises(ToolError, match="cannot be used: ConnectError"):
        async with MCPClient("http://127.0.0.1:1/mcp"):
            pass


async def test_transport_of_the_app_works(door: tuple[Door, str]) -> None:
    from mcp.client.streamable_http import streamable_http_client

    async with MCPClient(lambda: streamable_http_client(door[1]), name="own") as client:
        assert (await answer(client, "add", '{"a": 1}')).output == "3"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_another_server_is_not_followed(status: int) -> None:
    """Headers and requests are for one server."""
    with Server(HELLO) as other:
        with Server(Reply(status=status, headers={"location": f"{other.url}/mcp"})) as server:
            with pytest.raises(ToolError, match=other.url.removeprefix("http://").removesuffix("/v1")):
                async with MCPClient({"url": f"{server.url}/mcp", "headers": {"x-key": "test-not-a-key"}}):
                    pass
        assert other.connections == 0
