"""Asking a remote agent in tests, and what servers answer it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from answers import AnyServer
from servers import Reply

from routelock import RunContext
from routelock.errors import ProviderError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request
from routelock_providers import RemoteAgent

BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def request(*, stream: bool = False, memory: Any = None, context: Any = None, **more: Any) -> Request:
    run: RunContext[Any] = RunContext(context=context, run_id="run-1", shared_memory=memory or {})
    options: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "agent": "A", **more}
    return Request(stream=stream, context=run, **options)


@asynccontextmanager
async def agent_at(url: str | None, **options: Any) -> AsyncGenerator[RemoteAgent]:
    agent = RemoteAgent(url, **options)
    try:
        yield agent
    finally:
        await agent.aclose()


async def ask(url: str | None, asked: Request | None = None, **options: Any) -> list[HandlerEvent]:
    async with agent_at(url, **options) as agent:
        return [event async for event in agent.stream(asked or request())]


async def answer(url: str | None, asked: Request | None = None, **options: Any) -> MessageDone:
    done = (await ask(url, asked, **options))[-1]
    assert isinstance(done, MessageDone)
    return done


async def failure(url: str | None, asked: Request | None = None, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(url, asked, **options)
    return caught.value


def host_of(server: AnyServer) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def moved(to: str, status: int = 307) -> Reply:
    return Reply((), status, headers={"location": to})
