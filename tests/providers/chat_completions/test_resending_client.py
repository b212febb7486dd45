"""Over httpx, too, a used connection that ends before the answer costs no attempt."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from raw_server import Raw, RawServer, head
from servers import HELLO, Reply

from routelock import Agent, Retry, RunConfig, Runner
from routelock.errors import ConnectionFailed, ProviderError
from routelock_providers import OpenAI, RemoteAgent

pytestmark = pytest.mark.anyio

ONCE = RunConfig(retry=Retry(attempts=1))
CLOSED = Raw(then="close")
HANDLERS: Mapping[str, Callable[[str], OpenAI | RemoteAgent]] = {
    "OpenAI": lambda url: OpenAI("m", base_url=url),
    "RemoteAgent": lambda url: RemoteAgent(url),
}
EACH = pytest.mark.parametrize("name", HANDLERS)


@pytest.fixture
def anyio_backend() -> str:
    """On asyncio aiohttp sends the requests."""
    return "trio"


@asynccontextmanager
async def agent_at(url: str, name: str) -> AsyncGenerator[Agent[Any]]:
    handler = HANDLERS[name](url)
    yield Agent("a", model=handler)
    await handler.aclose()


@EACH
@pytest.mark.parametrize("lost", [CLOSED, Raw(then="reset")], ids=["closed", "reset"])
async def test_request_on_a_lost_connection_is_sent_again(name: str, lost: Reply) -> None:
    with RawServer(HELLO, lost, HELLO) as server:
        async with agent_at(server.url, name) as agent:
            await Runner.run(agent, "Hi", run_config=ONCE)
            result = await Runner.run(agent, "Hi", run_config=ONCE)
    assert (result.final_output, result.errors, len(server.requests)) == ("Hello", (), 3)


@EACH
async def test_request_on_a_new_connection_is_sent_once(name: str) -> None:
    with RawServer(CLOSED, HELLO) as server:
        async with agent_at(server.url, name) as agent:
            with pytest.raises(ConnectionFailed):
                await Runner.run(agent, "Hi", run_config=ONCE)
    assert len(server.requests) == 1


@EACH
@pytest.mark.parametrize("status", [200, 500])
async def test_request_with_a_broken_answer_is_sent_once(name: str, status: int) -> None:
    broken: Reply = Raw(sent=(head(status, length=100), b"{"), then="close")
    with RawServer(HELLO, broken, HELLO) as server:
        async with agent_at(server.url, name) as agent:
            await Runner.run(agent, "Hi", run_config=ONCE)
            with pytest.raises(ProviderError):
                await Runner.run(agent, "Hi", run_config=ONCE)
    assert len(server.requests) == 2
