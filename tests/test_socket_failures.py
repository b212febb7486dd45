"""Everything that can go wrong on a socket, for every provider: one typed error, and nothing left behind.

A new provider is one line in `PROVIDERS`, a new failure one line in `FAULTS`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import pytest
from faults import FAULTS, KEY, STREAM, Fault
from rawserver import Raw, RawServer, in_chunks
from servers import Reply, refused_url

from interlock import Agent, Retry, RunConfig, Runner, RunResult, function_tool
from interlock.errors import ConnectionFailed, ProviderError, ProviderTimeout
from interlock.events import TextDelta
from interlock.port import Handler
from interlock.results import RunEvent
from interlock_providers import LiteLLM, RemoteAgent, close_litellm
from interlock_providers.openai import OpenAI
from interlock_providers.openai_compatible import OpenAICompatible

pytestmark = pytest.mark.anyio

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
    Provider("remote", _remote, _aclose),
    Provider("litellm", _litellm("openai/m-1"), _close_litellm, ("asyncio",)),  # through openai's library
    Provider("litellm-http", _litellm("mistral/m-1"), _close_litellm, ("asyncio",)),  # through its own
)

MATRIX = pytest.mark.parametrize(
    ("anyio_backend", "provider"),
    [pytest.param(loop, each, id=f"{each.name}-{loop}") for each in PROVIDERS for loop in each.loops],
)
BOTH = pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])


def combinations() -> Iterable[Any]:
    for fault in FAULTS:
        for watched in (True,) if fault.streamed_only else (False, True):
            yield pytest.param(fault, watched, id=f"{fault.name}-{'streamed' if watched else 'whole'}")


@dataclass
class Outcome:
    """What came of a run."""

    error: ProviderError | None
    result: RunResult[Any]
    events: list[RunEvent]

    @property
    def shown(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))


@function_tool
async def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


async def run(handler: Handler, watched: bool, **settings: Any) -> Outcome:
    """Run an agent, and keep whatever comes of it."""
    agent = Agent("A", model=handler, tools=[add], handlers=settings.pop("handlers", ()))
    config = RunConfig(**{"retry": Retry(attempts=1), **settings})
    events: list[RunEvent] = []
    try:
        if not watched:
            return Outcome(None, await Runner.run(agent, "Hi", run_config=config), events)
        running = Runner.run_streamed(agent, "Hi", run_config=config)
        async for happened in running:
            events.append(happened)
        return Outcome(None, running.result, events)
    except ProviderError as error:
        return Outcome(error, error.result, events)


@asynccontextmanager
async def served(provider: Provider, *replies: Reply, **more: Any) -> AsyncGenerator[tuple[RawServer, Any]]:
    """Serve replies to a provider, and let no connection outlive the test."""
    with RawServer(*replies) as server:
        handler = provider.make(server.url, **more)
        try:
            yield server, handler
        finally:
            await provider.close(handler)
        assert await server.all_left(), "a connection was left open"


@MATRIX
@pytest.mark.parametrize(("fault", "watched"), list(combinations()))
async def test_a_failure_is_one_typed_error(provider: Provider, fault: Fault, watched: bool) -> None:
    timeout, silence = fault.limits
    more = {"timeout": timeout, "chunk_timeout": silence, "max_bytes": LIMIT}
    answer = fault.answer(watched)
    async with served(provider, answer, **more) as (server, handler):
        before = set(anyio.get_running_tasks())
        outcome = await run(handler, watched)
        error = outcome.error
        assert error is not None, outcome.result.final_output
        assert type(error) is fault.error, error
        assert error.retryable is fault.may_pass
        assert len(server.requests) <= 1, "retrying is the run's business"
        assert await ended_but(before) == set()
        if isinstance(answer, Raw) and answer.then != "keep":
            assert await server.all_left(), "the connection is of no use any more"
    check_message(error, fault)
    check_books(outcome, fault.text if watched else "")


async def ended_but(before: set[anyio.TaskInfo]) -> set[anyio.TaskInfo]:
    """Return the tasks that are left; those that only have to come to their end may do so."""
    for _ in range(20):
        if not (left := set(anyio.get_running_tasks()) - before):
            break
        await anyio.sleep(0.001)
    return left


def check_message(error: ProviderError, fault: Fault) -> None:
    """What is said is short, names who failed, says what to do, and tells no secret."""
    text = str(error)
    assert KEY not in text
    assert len(text) < 1200
    assert "m-1" in text, "which model"
    assert fault.says in text
    assert ". " in text, "what to do"
    assert error.status in (fault.status, None if fault.status else 200), text
    assert error.provider


def check_books(outcome: Outcome, text: str) -> None:
    """The partial result has what was shown, and counts the call."""
    result = outcome.result
    assert result.usage.requests == 1
    assert outcome.shown == text
    kept = [item.message.get("content") for item in result.new_items]
    assert kept == ([text] if text else [])
    assert result.usage.estimated is bool(text) or isinstance(outcome.error, ProviderTimeout)


@MATRIX
@pytest.mark.parametrize("then", ["close", "reset", "stall"])
@pytest.mark.parametrize("sent", [3, 4], ids=["before the usage", "before [DONE]"])
async def test_a_reply_that_has_finished_is_whole(provider: Provider, sent: int, then: Any) -> None:
    """A finish reason says that nothing of the message is missing: asking again would show it twice."""
    answer = Raw(sent=in_chunks(*STREAM[:sent], end=False), then=then)
    async with served(provider, answer, chunk_timeout=0.25) as (server, handler):
        outcome = await run(handler, watched=True)
        assert await server.all_left()
    assert outcome.error is None
    assert outcome.result.final_output == outcome.shown == "Hello"
    if then != "stall":  # litellm keeps the usage until the stream ends
        assert outcome.result.usage.estimated is (sent == 3)


@MATRIX
@BOTH
async def test_nobody_listens(provider: Provider, watched: bool) -> None:
    handler = provider.make(refused_url())
    outcome = await run(handler, watched)
    await provider.close(handler)
    assert type(outcome.error) is ConnectionFailed
    assert outcome.error.retryable
    assert outcome.error.status is None
