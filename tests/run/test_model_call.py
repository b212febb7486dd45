"""One model call: deltas are shown, one reply is kept, and what is no reply is the handler's failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from yielding_handler import DONE, Yields

from routelock import Agent, GuardrailResult, Request, Retry, RunConfig, Runner
from routelock.errors import BudgetExceeded, HandlerError, ProviderTimeout, ServerFailed
from routelock.handlers.events import HandlerEvent, TextDelta
from routelock.run.limits import Limits

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((DONE, DONE), "two MessageDone"),
        (("Hi.",), "yielded a str"),
        ((TextDelta(7), DONE), "whose text is 7"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
async def test_what_is_no_reply_is_the_handlers_failure(events: Any, said: str) -> None:
    handler = Yields(*events)
    with pytest.raises(HandlerError, match=said):
        await Runner.run(Agent("A", model=handler), "Hi")
    assert handler.closed


async def test_a_delta_of_nothing_says_nothing() -> None:
    nothing = TextDelta(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(nothing, DONE)), "Hi")
    assert result.final_output == "Hi."


@pytest.mark.every_loop
@pytest.mark.virtual_time
async def test_late_reply_keeps_its_partial_text() -> None:
    handler = Yields(TextDelta("Half a "), hangs=True)
    with pytest.raises(ProviderTimeout, match="turn_timeout") as caught:
        await Runner.run(Agent("A", model=handler), "Hi", run_config=RunConfig(turn_timeout=5))
    assert handler.closed
    assert caught.value.result is not None
    assert caught.value.result.items[-1].message.get("content") == "Half a "


async def test_both_failed_attempts_beside_a_guardrail_are_counted() -> None:
    """Both attempts began while the guardrail was still at work."""
    second = anyio.Event()
    attempts: list[int] = []

    class Fails:
        name = "fails"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                raise ServerFailed("busy", status=503)
            second.set()
            await until_checked.wait()
            yield TextDelta("Half a")
            raise ServerFailed("gone", status=503)

    async def passes(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        await second.wait()
        until_checked.set()
        return GuardrailResult(tripwire_triggered=False)

    async def at_once(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    until_checked = anyio.Event()
    agent = Agent("A", model=Fails(), input_guardrails=[passes])
    config = RunConfig(guardrails_beside=True, retry=Retry(sleep=at_once))
    with pytest.raises(ServerFailed) as caught:
        await Runner.run(agent, "Hi", run_config=config)
    assert (len(attempts), caught.value.result.usage.requests) == (2, 2)


@pytest.mark.every_loop
async def test_bad_event_beside_a_guardrail_ends_the_call() -> None:
    """No later event is read, as without a guardrail."""
    handler = Yields(TextDelta(7), TextDelta("Hi."))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    async def passes(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        await anyio.lowlevel.checkpoint()
        return GuardrailResult(tripwire_triggered=False)

    agent = Agent("A", model=handler, input_guardrails=[passes])
    with pytest.raises(HandlerError, match="whose text is 7") as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(guardrails_beside=True))
    assert [item.kind for item in caught.value.result.items] == ["input"]


@pytest.mark.every_loop
async def test_no_attempt_over_the_limit_beside_a_guardrail() -> None:
    attempts: list[int] = []
    failed = anyio.Event()

    class Fails:
        name = "fails"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            attempts.append(len(attempts))
            failed.set()
            raise ServerFailed("busy", status=503)
            yield DONE

    async def passes(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        await failed.wait()
        await anyio.lowlevel.checkpoint()
        return GuardrailResult(tripwire_triggered=False)

    async def at_once(seconds: float) -> None:
        await anyio.lowlevel.checkpoint()

    agent = Agent("A", model=Fails(), input_guardrails=[passes])
    config = RunConfig(guardrails_beside=True, retry=Retry(sleep=at_once), limits=Limits(requests=1))
    with pytest.raises(BudgetExceeded):
        await Runner.run(agent, "Hi", run_config=config)
    assert len(attempts) == 1
