"""The results and the usage of sub-runs become part of the outer run."""

from __future__ import annotations

import pytest
from manager_agents import ask, both, manager
from scripted_agents import agent, look_up

from routelock import (
    Runner,
)
from routelock.handlers.events import TextDelta
from routelock.run.events import NestedEvent, ToolOutput
from routelock.testing import call

pytestmark = pytest.mark.anyio


async def test_partial_result_has_the_sub_run_so_far() -> None:
    helper = agent("helper", call("look_up", {"order": 1}), "42", tools=[look_up])
    async with Runner.run_streamed(manager(ask(id="c"), "Ok.", helper=helper), "Hi") as stream:
        async for event in stream:
            if isinstance(event, NestedEvent) and isinstance(event.event, ToolOutput):
                now = stream.result
                assert now.nested["c"].stop_reason == "unfinished"
                assert (now.usage.requests, now.usage_by_agent["helper"].requests) == (2, 1)
    assert stream.result.usage.requests == 4


async def test_what_is_not_used_stays_with_the_outer_run() -> None:
    replies = [ask(text="1"), ask(text="2"), ask(text="3"), "Ok."]
    ended = await both(lambda: manager(*replies, helper=agent("helper", "a", "b", "c")), max_turns=7)
    assert ended.error is None
    assert ended.result.usage.requests == 7


async def test_sub_runs_that_never_started_are_not_in_the_result() -> None:
    made = manager([ask("a", id="x"), ask("b", id="y")], a=agent("A", "one two"), b=agent("B"))
    async with Runner.run_streamed(made, "Hi") as stream:
        async for event in stream:
            if isinstance(event, NestedEvent) and isinstance(event.event, TextDelta):
                break
    assert list(stream.result.nested) == ["x"]
