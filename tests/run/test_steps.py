"""Model calls and tool calls as steps of an executor."""

from __future__ import annotations

import json

import anyio
import pytest
from executors import Recording, Replaying, play
from scenes import SCENES, Stage
from stress.journal import Journal

from routelock import Agent, RunConfig, Runner, function_handler, tool
from routelock.errors import (
    RateLimited,
)
from routelock.handlers.port import Request
from routelock.handlers.retry import Retry
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


async def test_arguments_of_a_model_step_have_the_whole_request() -> None:
    recording = Recording()
    agent = Agent("A", "Be brief.", model=ScriptedHandler(["Hi"], name="h"), model_settings={"seed": 7})
    await Runner.run(agent, "Hello", run_config=RunConfig(executor=recording, run_id="r"))
    assert json.loads(json.dumps(recording.calls[0].args)) == {
        "agent": "A",
        "handler": "h",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "tools": [],
        "tool_choice": None,
        "settings": {"seed": 7},
        "output_schema": None,
    }


async def test_a_model_step_carries_the_schema_of_the_output() -> None:
    """An engine that cannot carry a closure has all that a handler is given."""
    recording = Recording()
    await play(SCENES["structured"], recording, Stage())
    schema = json.loads(json.dumps(recording.calls[0].args["output_schema"]))
    assert (schema["name"], schema["strict"]) == ("final_output", True)
    assert schema["schema"]["required"] == ["city", "degrees"]


async def test_failed_attempts_of_a_replayed_model_call_are_counted_again() -> None:
    """The last attempt failed as well, so no reply counts for it."""

    async def fail(request: Request) -> str:
        raise RateLimited("busy", status=429, retryable=True)

    journal, usages = Journal(), list[Usage]()
    retry = Retry(attempts=3, sleep=anyio.sleep, first_delay=0)
    for _ in range(2):
        helper = Agent("helper", model=function_handler(fail)).as_tool()
        agent = Agent(
            "A", model=ScriptedHandler([call("helper", {"input": "Go"}, id="h"), "Sorry."]), tools=[helper]
        )
        config = RunConfig(executor=journal, run_id="r", retry=retry)
        usages.append((await Runner.run(agent, "Hi", run_config=config)).usage)
    assert usages[0].requests == 5
    assert usages[1] == usages[0]
