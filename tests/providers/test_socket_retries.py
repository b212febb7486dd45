"""Retries, Retry-After and fallbacks, over real sockets and for every provider."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pytest
from faults import FAULTS, HEL, STREAM, Fault, hello, refusal, said
from provider_benches import BOTH, ON_ASYNCIO, Bench, Provider, bench_for, run
from raw_server import Raw, in_chunks

from routelock import Retry, function_tool
from routelock.errors import (
    IncompleteResponse,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    RoutelockError,
    RunTimeout,
    ServerFailed,
)
from routelock.handlers.events import AttemptFailed, TextDelta
from routelock.run.events import HandlerFallback
from routelock.testing import ScriptedHandler

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def bench(anyio_backend: str, provider: Provider) -> AsyncGenerator[Bench]:
    async with bench_for(provider) as made:
        yield made


@dataclass
class Clock:
    """Replaces sleeping, and records its seconds."""

    slept: list[float] = field(default_factory=list[float])

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def retry(self, **settings: Any) -> Retry:
        return Retry(**{"sleep": self.sleep, "jitter": lambda: 1.0, **settings})


SOME = ("reset at once", "closed before headers", "closed after headers", "429", "503", "an empty body")
EARLY = [fault for fault in FAULTS if fault.name in SOME]
"""What goes wrong before anything was shown, and may pass."""


@pytest.mark.pairwise
@ON_ASYNCIO
@BOTH
@pytest.mark.parametrize("fault", EARLY, ids=lambda fault: fault.name)
async def test_failure_before_the_first_token_is_retried(bench: Bench, fault: Fault, watched: bool) -> None:
    clock = Clock()
    bench.server.hang_up()  # what ends a connection that was used before costs no attempt
    bench.server.say(fault.answer(watched), fault.answer(watched), hello(watched))
    outcome = await run(bench.handler(), watched, retry=clock.retry())
    assert outcome.result.final_output == "Hello"
    assert outcome.shown == ("Hello" if watched else "")
    assert clock.slept == [0.5, 1.0]
    assert [type(problem.error) for problem in outcome.result.errors] == [fault.error] * 2
    assert outcome.result.usage.requests == 3


@pytest.mark.pairwise
@ON_ASYNCIO
@BOTH
@pytest.mark.parametrize("status", [400, 401, 404, 413, 501])
async def test_final_refusal_is_not_retried(bench: Bench, status: int, watched: bool) -> None:
    clock = Clock()
    bench.server.say(refusal(status)(watched), hello(watched))
    outcome = await run(bench.handler(), watched, retry=clock.retry())
    assert isinstance(outcome.error, ProviderError)
    assert (outcome.error.status, clock.slept, len(bench.server.requests)) == (status, [], 1)


@ON_ASYNCIO
@BOTH
async def test_attempts_are_a_budget(bench: Bench, watched: bool) -> None:
    clock = Clock()
    bench.server.say(refusal(503)(watched))
    outcome = await run(bench.handler(), watched, retry=clock.retry(attempts=4))
    assert type(outcome.error) is ServerFailed
    assert clock.slept == [0.5, 1, 2]
    assert len(bench.server.requests) == outcome.result.usage.requests == 4


BROKEN = Raw(sent=in_chunks(HEL, end=False), then="close")


@ON_ASYNCIO
async def test_failure_after_the_first_token_is_not_retried(bench: Bench) -> None:
    """The reader would see the text twice. It stays in the partial result."""
    clock = Clock()
    bench.server.say(BROKEN, hello(True))
    outcome = await run(bench.handler(), watched=True, retry=clock.retry())
    assert type(outcome.error) is IncompleteResponse
    assert (outcome.shown, clock.slept, len(bench.server.requests)) == ("Hel", [], 1)
    assert outcome.result.new_items[-1].message == {"role": "assistant", "content": "Hel"}
    assert outcome.result.usage.estimated


@ON_ASYNCIO
async def test_plain_run_retries_after_the_first_token(bench: Bench) -> None:
    """It asks for a whole reply, so no part of it was shown."""
    clock = Clock()
    whole = hello(False)
    head, data = whole.sent  # type: ignore[misc]
    bench.server.say(Raw(sent=(head, data[:60]), then="close"), whole)
    outcome = await run(bench.handler(), watched=False, retry=clock.retry())
    assert outcome.result.final_output == "Hello"
    assert clock.slept == [0.5]


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "charge", "arguments": "{}"}}
CHARGE = (said({"content": "One moment."}), said({"tool_calls": [CALL]}), said({}, finish="tool_calls"))


@ON_ASYNCIO
@pytest.mark.parametrize("sent", [1, 2])
async def test_a_mid_stream_retry_voids_what_was_shown_and_runs_nothing_twice(
    bench: Bench, sent: int
) -> None:
    ran: list[str] = []

    @function_tool
    def charge() -> str:
        """Charge."""
        ran.append("charged")
        return "charged"

    cut = Raw(sent=in_chunks(*CHARGE[:sent], end=False), then="close")
    bench.server.say(cut, Raw(sent=in_chunks(*CHARGE, *STREAM[3:])), hello(True))
    retry = Clock().retry(mid_stream=True)
    outcome = await run(bench.handler(), watched=True, retry=retry, tools=[charge])
    assert ran == ["charged"]
    assert outcome.result.final_output == "Hello"
    texts: list[str] = []
    for happened in outcome.events:
        if isinstance(happened, AttemptFailed):
            texts.clear()
        elif isinstance(happened, TextDelta):
            texts.append(happened.text)
    assert "".join(texts) == "One moment.Hello", "what was not declared void is what was said"
    kept = [item.message.get("content") for item in outcome.result.new_items]
    assert kept == ["One moment.", "charged", "Hello"]
    assert outcome.result.usage.requests == 3


# How long to wait


@ON_ASYNCIO
@pytest.mark.parametrize(
    ("headers", "waits"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after": formatdate(0, usegmt=True)}, 0),
        ({"retry_after": "soon"}, 0.5),
        ({"retry_after": "-5"}, 0.5),
        ({"retry_after": "nan"}, 0.5),
        ({"retry_after": "1e400"}, 0.5),
        ({"retry_after": "Wed, 99 Foo 2026 99:99:99 GMT"}, 0.5),
        ({"retry_after": "Dec 99999999999999999999 23:59:59 31"}, 0.5),
    ],
    ids=str,
)
async def test_retry_after_of_the_server(bench: Bench, headers: dict[str, str], waits: float) -> None:
    """An invalid value counts as none, and the run's own backoff applies."""
    clock = Clock()
    bench.server.say(refusal(429, **headers)(True), hello(True))
    outcome = await run(bench.handler(), watched=True, retry=clock.retry())
    assert outcome.result.final_output == "Hello"
    assert clock.slept == [waits]


@ON_ASYNCIO
async def test_retry_after_as_a_date(bench: Bench) -> None:
    clock = Clock()
    bench.server.say(refusal(503, retry_after=formatdate(time.time() + 20, usegmt=True))(True), hello(True))
    await run(bench.handler(), watched=True, retry=clock.retry())
    assert 0 < clock.slept[0] <= 20


@ON_ASYNCIO
@pytest.mark.parametrize("value", ["3600", "99999999", formatdate(4e9, usegmt=True)])
async def test_too_long_a_wait_is_not_kept(bench: Bench, value: str) -> None:
    clock = Clock()
    bench.server.say(refusal(429, retry_after=value)(True), hello(True))
    outcome = await run(bench.handler(), watched=True, retry=clock.retry(longest_delay=30))
    assert type(outcome.error) is RateLimited
    assert outcome.error.retry_after is not None
    assert outcome.error.retry_after > 30
    assert (clock.slept, len(bench.server.requests)) == ([], 1)


# Deadlines


# litellm's coroutine between two threads, when the time is up at that moment
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:.*was never awaited:RuntimeWarning")
@ON_ASYNCIO
@pytest.mark.parametrize(("limit", "kind"), [("timeout", RunTimeout), ("turn_timeout", ProviderTimeout)])
async def test_deadlines_bound_retries(bench: Bench, limit: str, kind: type[RoutelockError]) -> None:
    """They end the attempts and the waits between them."""
    until: dict[str, Any] = {limit: 0.4}
    bench.server.say(refusal(503)(True))
    retry = Retry(attempts=1000, first_delay=0.05, longest_delay=0.1)
    outcome = await run(bench.handler(), watched=True, retry=retry, **until)
    assert type(outcome.error) is kind
    assert len(bench.server.requests) < 100
    assert 1 <= outcome.result.usage.requests <= len(bench.server.requests) + 1


# Fallbacks


@pytest.mark.pairwise
@ON_ASYNCIO
@BOTH
@pytest.mark.parametrize("answer", [refusal(401), refusal(503)], ids=["401", "503"])
async def test_another_handler_takes_over_before_the_first_token(
    bench: Bench, answer: Any, watched: bool
) -> None:
    bench.server.say(answer(watched))
    backup = ScriptedHandler(["Backup."], name="backup")
    handlers = [bench.handler(), backup]
    outcome = await run(None, watched, handlers=handlers, fallback=True, retry=Clock().retry(attempts=2))
    assert outcome.result.final_output == "Backup."
    assert outcome.shown == ("Backup." if watched else "")
    assert not watched or any(isinstance(happened, HandlerFallback) for happened in outcome.events)


@ON_ASYNCIO
async def test_no_fallback_after_the_first_token(bench: Bench) -> None:
    bench.server.say(BROKEN)
    backup = ScriptedHandler(["Backup."], name="backup")
    outcome = await run(None, watched=True, handlers=[bench.handler(), backup], fallback=True)
    assert type(outcome.error) is IncompleteResponse
    assert backup.requests == []
