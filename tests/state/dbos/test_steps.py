"""Recorded steps of a run are read by key; a missing step ends the run."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

import pytest

from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.run.executor import Call, Outcome
from routelock.state.dbos.steps import RecordedSteps, recorded_entries
from routelock.state.steps import ModelStep

pytestmark = pytest.mark.anyio

MODEL = Call("r", "t1.model.A", "model", {"agent": "A", "handler": "m"})
TOOL = Call("r", "t1.tool.pay.p", "tool", {"name": "pay"})


def never(call: Call) -> AsyncGenerator[HandlerEvent]:
    raise AssertionError("it is recorded, or the run is over")


def not_done(call: Call) -> Awaitable[Outcome]:
    raise AssertionError("it is recorded, or the run is over")


def test_steps_are_found_by_key_without_those_of_dbos() -> None:
    recorded = [
        {"function_id": 1, "function_name": "begins", "output": None},
        {"function_id": 2, "function_name": "t1.model.A", "output": "{}"},
    ]
    assert recorded_entries(recorded) == {"t1.model.A": "{}"}


async def test_a_recorded_reply_is_yielded() -> None:
    done = MessageDone(message={"role": "assistant", "content": "Hi."})
    steps = RecordedSteps({MODEL.key: ModelStep(done=done).to_json()})
    async with aclosing(steps.stream(MODEL, never)) as events:
        assert [event async for event in events] == [done]


async def test_a_missing_reply_ends_the_run() -> None:
    async with aclosing(RecordedSteps({}).stream(MODEL, never)) as events:
        with pytest.raises(RoutelockError, match="cancelled"):
            await anext(events)


async def test_a_missing_tool_outcome_stops_the_run() -> None:
    (outcome,) = await RecordedSteps({}).gather([TOOL], not_done)
    assert outcome["stop"]
    assert "Whether it had an effect is not known" in outcome["err"]["message"]


async def test_a_recorded_tool_outcome_is_returned() -> None:
    kept = {"ok": {"content": "paid"}}
    steps = RecordedSteps({TOOL.key: json.dumps(kept)})
    assert await steps.gather([TOOL], not_done) == [kept]
    assert steps.left == {}
