"""Every provider before the same server. A new provider is one line in `PROVIDERS`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from faults import KEY, hello
from raw_server import RawServer

from routelock import Agent, Retry, RunConfig, Runner, RunResult
from routelock.errors import RoutelockError
from routelock.handlers.events import TextDelta
from routelock.handlers.port import Handler
from routelock.run.events import RunEvent
from routelock_providers import LiteLLM, RemoteAgent, close_litellm
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.chat_completions.openai_compatible import OpenAICompatible

LIMIT = 300_000
"""Bytes that a reply may have here."""

# Who is asked


@dataclass(frozen=True)
class Provider:
    """One provider: how it is made for a URL, and how its connections are closed."""

    name: str
    make: Callable[..., Any]
    close: Callable[[Any], Awaitable[None]]
    loops: tuple[str, ...] = ("asyncio", "trio")


async def _aclose(handler: Any) -> None:
    await handler.aclose()


async def _close_litellm(handler: Any) -> None:
    await close_litellm()


def _openai(url: str, **more: Any) -> Handler:
    return OpenAI("m-1", base_url=url, api_key=KEY, **more)


def _compatible(url: str, **more: Any) -> Handler:
    return OpenAICompatible("m-1", base_url=url, api_key=KEY, **more)


def _remote(url: str, **more: Any) -> Handler:
    return RemoteAgent(url, model="m-1", api_key=KEY, pass_tools=True, **more)


def _litellm(model: str) -> Callable[..., Handler]:
    def make(url: str, **more: Any) -> Handler:
        return LiteLLM(model, api_base=url, api_key=KEY, **more)

    return make


PROVIDERS = (
    Provider("openai", _openai, _aclose),
    Provider("compatible", _compatible, _aclose, ("asyncio",)),
    Provider("remote", _remote, _aclose, ("asyncio",)),  # of the same making as openai
    Provider("litellm", _litellm("openai/m-1"), _close_litellm, ("asyncio",)),  # through openai's library
    Provider("litellm-http", _litellm("mistral/m-1"), _close_litellm, ("asyncio",)),  # through its own
)

MATRIX = pytest.mark.parametrize(
    ("anyio_backend", "provider"),
    [pytest.param(loop, each, id=f"{each.name}-{loop}") for each in PROVIDERS for loop in each.loops],
    scope="module",
)
ON_ASYNCIO = pytest.mark.parametrize(
    ("anyio_backend", "provider"),
    [pytest.param("asyncio", each, id=each.name) for each in PROVIDERS],
    scope="module",
)
"""For what is the run's doing: whether it does the same on trio is tested elsewhere."""
BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])


class Bench:
    """A server, and a provider's handlers for it: one for each set of limits, whatever has failed before."""

    def __init__(self, provider: Provider, server: RawServer) -> None:
        self.server = server
        self._provider = provider
        self._handlers: dict[tuple[float, float], Any] = {}

    def handler(self, limits: tuple[float, float] = (20.0, 20.0)) -> Handler:
        if limits not in self._handlers:
            timeout, silence = limits
            more = {"timeout": timeout, "chunk_timeout": silence, "max_bytes": LIMIT}
            self._handlers[limits] = self._provider.make(self.server.url, **more)
        return self._handlers[limits]

    async def close(self) -> None:
        for handler in self._handlers.values():
            await self._provider.close(handler)


@asynccontextmanager
async def bench_for(provider: Provider) -> AsyncGenerator[Bench]:
    """What the tests of one provider share, because clients are dear; no connection outlives it."""
    with RawServer(hello(False)) as server:
        made = Bench(provider, server)
        if provider.name.startswith("litellm"):  # whose first call takes longer than the limits of some tests
            await run(made.handler(), watched=False)
        yield made
        await made.close()
        assert await server.all_left(), "a connection was left open"


@dataclass
class Outcome:
    """What came of a run."""

    error: RoutelockError | None
    result: RunResult[Any]
    events: list[RunEvent]

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


async def run(
    handler: Handler | None, watched: bool, *, server: RawServer | None = None, **settings: Any
) -> Outcome:
    """Run an agent, and keep whatever comes of it; the server hears when something was shown."""
    agent = Agent("A", model=handler, tools=settings.pop("tools", ()), handlers=settings.pop("handlers", ()))
    config = RunConfig(**{"retry": Retry(attempts=1), **settings})
    events: list[RunEvent] = []
    try:
        if not watched:
            return Outcome(None, await Runner.run(agent, "Hi", run_config=config), events)
        running = Runner.run_streamed(agent, "Hi", run_config=config)
        async for happened in running:
            events.append(happened)
            if server is not None and isinstance(happened, TextDelta):
                server.shown.set()
        return Outcome(None, running.result, events)
    except RoutelockError as error:
        return Outcome(error, error.result, events)
