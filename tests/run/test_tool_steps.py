"""A tool is one step of an executor: its arguments, its time limit, and what it consumed."""

from __future__ import annotations

import pytest
from executors import Recording, Replaying

from routelock import Agent, RunConfig, Runner, tool
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolResult
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


@tool(timeout=30)
async def greet(name: str) -> ToolResult:
    """Greet someone."""
    return ToolResult(f"Hello {name}", usage=Usage(input_tokens=3))


async def test_a_tool_step_carries_its_arguments_and_timeout() -> None:
    recording = Recording()
    agent = Agent(
        "A", model=ScriptedHandler([call("greet", {"name": "Ada"}, id="c"), "Done."]), tools=[greet]
    )
    await Runner.run(agent, "Hi", run_config=RunConfig(executor=recording, run_id="r"))
    (step,) = [step for step in recording.calls if step.op == "tool"]
    assert step.args == {"name": "greet", "call_id": "c", "arguments": '{"name": "Ada"}'}
    assert step.timeout == 30


async def test_what_a_tool_itself_consumed_survives_a_replay() -> None:
    """Usage that a tool reports is part of the run's, also when the tool is not run again."""
    recording = Recording()

    def agent() -> Agent:
        return Agent("A", model=ScriptedHandler([call("greet", {"name": "Ada"}), "Done."]), tools=[greet])

    first = await Runner.run(agent(), "Hi", run_config=RunConfig(executor=recording, run_id="r"))
    replay = RunConfig(executor=Replaying(recording), run_id="r")
    again = await Runner.run(agent(), "Hi", run_config=replay)
    assert first.usage == again.usage == Usage(requests=2, input_tokens=23, output_tokens=10)
