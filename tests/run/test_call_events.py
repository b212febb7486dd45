"""The events of a reply's calls are made for a streamed run, in the order in which things happen."""

from __future__ import annotations

import pytest
from scripted_agents import agent, look_up, pair

from routelock import Runner
from routelock.run.events import ToolCalled, ToolOutput
from routelock.run.start import start
from routelock.run.stream import RunStream
from routelock.testing import call

pytestmark = pytest.mark.anyio


async def test_tool_is_called_before_it_has_an_output() -> None:
    made = agent("A", call("look_up", {"order": 7}, id="c"), "Done.", tools=[look_up])
    called, output = [
        event async for event in Runner.run_streamed(made, "Hi") if isinstance(event, ToolCalled | ToolOutput)
    ]
    assert called == ToolCalled(agent="A", call_id="c", name="look_up", arguments='{"order": 7}')
    assert output == ToolOutput(agent="A", call_id="c", name="look_up", output="order 7 is on its way")


async def test_handoff_is_requested_before_it_occurs() -> None:
    a, _ = pair()
    kinds = [event.type async for event in Runner.run_streamed(a, "Hi")]
    assert [kind for kind in kinds if kind.startswith("handoff_")] == [
        "handoff_requested",
        "handoff_occurred",
        "handoff_completed",
    ]


async def test_plain_run_makes_no_events_of_its_calls() -> None:
    made = agent("A", call("look_up", {"order": 7}), "Done.", tools=[look_up])
    run = RunStream(start(made, "Hi", None, 10, None, None, stream=False))
    assert [event.type async for event in run] == ["run_done"]
