"""A soft stop: the run ends after the turn that it is in, and goes on from its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_agents import agent, answers_of, look_up, pair, shown

from routelock import Agent, Retry, RunConfig, RunHandle, Runner, RunResult, RunState, function_tool, handoff
from routelock.errors import ConfigError, RateLimited, RunNotDone
from routelock.run.events import HandlerFallback, RunDone, ToolCalled, ToolOutput
from routelock.run.stream import RunStream
from routelock.sessions import InMemorySessions, Session
from routelock.state import Journal, RunStatus
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio

LOOKS = (call("look_up", {"order": 1}), call("look_up", {"order": 2}), "Both are on their way.")
each_way = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def looking() -> Agent[Any]:
    return agent("A", *LOOKS, tools=[look_up])


async def stopped_at(stream: RunStream[Any], kind: type[Any]) -> RunResult[Any]:
    """Ask the run to stop at the first event of a kind, and read on."""
    async for event in stream:
        if isinstance(event, kind):
            stream.stop()
            break
    return await stream.drain()


async def run(made: Agent[Any], *, stream: bool, **options: Any) -> RunResult[Any]:
    """Run an agent whose tool ``stop`` asks the run to stop."""
    stops: list[Any] = []

    @function_tool
    def stop() -> str:
        """Stop the run."""
        stops[0].stop(after="turn")
        return "it will stop"

    made = Agent(made.name, model=made.model, tools=[*made.tools, stop], handoffs=made.handoffs)
    if stream:
        stops.append(Runner.run_streamed(made, "Hi", **options))
        return await stops[0].drain()
    stops.append(RunHandle())
    return await Runner.run(made, "Hi", handle=stops[0], **options)


@each_way
async def test_every_call_of_the_turn_is_answered(stream: bool) -> None:
    made = agent("A", [call("stop"), call("look_up", {"order": 1})], "Never said.", tools=[look_up])
    result = await run(made, stream=stream)
    assert (result.stop_reason, result.final_output, len(result.calls)) == ("stopped", None, 1)
    assert answers_of(result) == ["it will stop", "order 1 is on its way"]
    assert_valid(result.to_input_list())


@each_way
async def test_the_same_with_a_timeout_of_the_run(stream: bool) -> None:
    made = agent("A", call("stop"), "Never said.")
    result = await run(made, stream=stream, run_config=RunConfig(timeout=60))
    assert result.stop_reason == "stopped"


async def test_the_rest_of_the_turn_is_streamed() -> None:
    events: list[Any] = []
    async with Runner.run_streamed(looking(), "Hi") as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, ToolCalled):
                stream.stop()
    assert isinstance(events[-2], ToolOutput)
    assert isinstance(events[-1], RunDone)
    assert events[-1].result.stop_reason == "stopped"


async def test_a_stop_during_the_answer_has_no_effect() -> None:
    result = await stopped_at(Runner.run_streamed(agent("A", "Hello."), "Hi"), object)
    assert (result.stop_reason, result.final_output) == ("done", "Hello.")


async def test_a_stop_after_the_end_has_no_effect() -> None:
    handle = RunHandle()
    await Runner.run(agent("A", "Hello."), "Hi", handle=handle)
    handle.stop()
    assert handle.result is not None
    assert handle.result.stop_reason == "done"


async def test_a_run_that_has_not_begun_makes_no_model_call() -> None:
    handle, made = RunHandle(), looking()
    handle.stop()
    result = await Runner.run(made, "Hi", handle=handle)
    assert (result.stop_reason, len(result.calls)) == ("stopped", 0)
    resumed = RunState.from_json(result.state().to_json(), agents=[made])
    assert (await Runner.run(made, resumed)).final_output == LOOKS[-1]


async def test_only_a_turn_can_be_stopped_after() -> None:
    anything: Any = "now"
    with pytest.raises(ConfigError, match=r"a run stops after='turn'.*aclose"):
        Runner.run_streamed(looking(), "Hi").stop(after=anything)
    with pytest.raises(ConfigError, match="after='turn'"):
        RunHandle().stop(after=anything)


async def test_the_run_goes_on_from_its_state() -> None:
    made = looking()
    state = (await stopped_at(Runner.run_streamed(made, "Hi"), ToolCalled)).state()
    assert state.status is RunStatus.IN_PROGRESS
    result = await Runner.run(made, RunState.from_json(state.to_json(), agents=[made]))
    assert (result.stop_reason, result.final_output) == ("done", LOOKS[-1])
    assert answers_of(result) == ["order 1 is on its way", "order 2 is on its way"]


async def test_its_output_is_asked_for_in_vain() -> None:
    result = await stopped_at(Runner.run_streamed(looking(), "Hi"), ToolCalled)
    with pytest.raises(RunNotDone, match=r"the app stopped it: resume it from result.state\(\)"):
        result.require_output()


async def test_a_session_has_what_was_done() -> None:
    session, made = Session("user-7", InMemorySessions()), looking()
    stopped = await stopped_at(Runner.run_streamed(made, "Hi", session=session), ToolCalled)
    assert (await session.load()).messages == stopped.to_input_list()
    result = await Runner.run(made, stopped.state(), session=session)
    assert (await session.load()).messages == result.to_input_list()


@each_way
async def test_a_caller_that_waits_goes_on_later(stream: bool) -> None:
    expert = Agent("B", model=ScriptedHandler([call("look_up", {"order": 1}), "It comes."]), tools=[look_up])
    made = agent(
        "A",
        [call("stop"), call("transfer_to_b")],
        "B says so.",
        handoffs=[handoff(expert, return_to_caller=True)],
    )
    stopped = await run(made, stream=stream)
    assert (stopped.stop_reason, stopped.last_agent.name) == ("stopped", "B")
    assert_valid(stopped.to_input_list())
    result = await Runner.run(made, RunState.from_json(stopped.state().to_json(), agents=[made]))
    assert (result.final_output, result.last_agent.name) == ("B says so.", "A")


@each_way
async def test_agents_that_were_called_as_tools_work_to_their_end(stream: bool) -> None:
    helper = agent("helper", *LOOKS, tools=[look_up])
    tool = helper.as_tool("ask", "Ask the helper.")
    made = agent("A", [call("stop"), call("ask", {"input": "Where?"}, id="c")], "Never said.", tools=[tool])
    result = await run(made, stream=stream)
    assert (result.stop_reason, result.nested["c"].stop_reason) == ("stopped", "done")
    assert answers_of(result) == ["it will stop", LOOKS[-1]]


@each_way
async def test_an_approval_in_the_turn_is_waited_for(stream: bool) -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    result = await run(agent("A", [call("stop"), call("pay")], tools=[pay]), stream=stream)
    assert result.stop_reason == "requires_action"
    assert [one.name for one in result.interruptions] == ["pay"]


async def test_a_handler_that_failed_is_replaced_first() -> None:
    """Its turn is not over: it has no reply yet."""
    spare = ScriptedHandler(["From the spare one."], name="spare")
    made = Agent("A", model=ScriptedHandler([RateLimited("no")]), handlers=[spare])
    stream = Runner.run_streamed(made, "Hi", run_config=RunConfig(fallback=True, retry=Retry(attempts=1)))
    assert (await stopped_at(stream, HandlerFallback)).final_output == "From the spare one."


async def test_a_transfer_of_the_turn_is_made() -> None:
    a, b = pair()
    result = await stopped_at(Runner.run_streamed(a, "Hi"), object)
    assert (result.stop_reason, result.last_agent) == ("stopped", b)
    assert (await Runner.run(a, result.state())).final_output == "Done."
    assert shown(b)


async def test_a_stop_is_no_step_of_a_journal(tmp_path: Path) -> None:
    """It is not repeated when the run goes on, and no recorded step is made again."""
    made, handle = looking(), RunHandle()

    @function_tool
    def stop() -> str:
        """Stop the run."""
        handle.stop()
        return "it will stop"

    made = Agent("A", model=ScriptedHandler([call("stop"), *LOOKS]), tools=[look_up, stop])
    async with Journal(tmp_path / "runs.db") as journal:
        stopped = await journal.run(made, "Hi", run_id="r", handle=handle)
        assert [one.run_id for one in await journal.runs("stopped")] == ["r"]
        result = await journal.run(made, run_id="r")
        assert (stopped.stop_reason, result.stop_reason) == ("stopped", "done")
        assert answers_of(result)[0] == "it will stop"
