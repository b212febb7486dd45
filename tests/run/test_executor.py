"""The seam: each model and tool call passes through the executor, and can be recorded and replayed."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

import anyio
import pytest
from executors import Body, Recording, Replaying, Step, play
from scenes import SCENES, Stage, facts
from scripted_agents import answers_of
from stress.journal import Journal

from routelock import Agent, GuardrailResult, HandoffRequest, RunConfig, Runner, function_tool, tool
from routelock.errors import (
    CallbackError,
    ConfigError,
    HandlerError,
    ModelBehaviorError,
    RateLimited,
    ToolError,
    ToolTimeout,
)
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.executor import Call, Executor, InProcess, Outcome
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

HI: Message = {"role": "assistant", "content": "Hi"}


async def test_every_call_reaches_the_executor_with_its_key() -> None:
    recording = Recording()
    await play(SCENES["chain"], recording, Stage())
    assert [(step.key, step.op, step.run_id) for step in recording.calls] == [
        ("t1.model.A", "model", "r"),
        ("t1.tool.add.call_1_0", "tool", "r"),
        ("t2.model.A", "model", "r"),
        ("t3.model.B", "model", "r"),
        ("t3.tool.add.call_3_0", "tool", "r"),
        ("t4.model.B", "model", "r"),
        ("t5.model.A", "model", "r"),
        ("t6.model.A", "model", "r"),
    ]


@pytest.mark.parametrize("scene", SCENES)
async def test_keys_are_unique_and_args_are_json(scene: str) -> None:
    recording = Recording()
    await play(SCENES[scene], recording, Stage())
    keys = [step.key for step in recording.calls]
    assert len(set(keys)) == len(keys) > 0
    assert all(json.dumps(step.args) for step in recording.calls)


@pytest.mark.parametrize("scene", SCENES)
async def test_a_run_that_is_repeated_makes_the_same_calls(scene: str) -> None:
    first, second = Recording(), Recording()
    await play(SCENES[scene], first, Stage())
    await play(SCENES[scene], second, Stage())
    assert first.calls == second.calls


@pytest.mark.parametrize("scene", sorted(SCENES.keys() - {"retried", "failing"}))
async def test_replayed_run_has_the_same_result_and_runs_nothing(scene: str) -> None:
    recording, stage = Recording(), Stage()
    expected = await play(SCENES[scene], recording, Stage())
    assert await play(SCENES[scene], Replaying(recording), stage) == expected
    assert stage.done == []


async def test_one_executor_can_serve_many_runs() -> None:
    """The same keys come in each run; the run's id tells them apart."""
    recording = Recording()
    for run_id in ("one", "two"):
        config = RunConfig(executor=recording, run_id=run_id)
        await Runner.run(Agent("A", model=ScriptedHandler([run_id])), "Hi", run_config=config)
    assert recording.journal.keys() == {("one", "t1.model.A"), ("two", "t1.model.A")}


@pytest.mark.parametrize("run_id", [None, ""])
async def test_a_run_with_an_executor_needs_an_id(run_id: str | None) -> None:
    """A random id would change the idempotency keys with each process."""
    config = RunConfig(executor=InProcess(), run_id=run_id)
    with pytest.raises(ConfigError, match="needs a run_id of its own"):
        await Runner.run(Agent("A", model=ScriptedHandler([])), "Hi", run_config=config)


async def test_a_run_from_a_state_brings_its_id_to_the_executor() -> None:
    recording = Recording()
    agent = Agent("A", model=ScriptedHandler([RateLimited("Slow down.", retryable=False), "Hi"]))
    with pytest.raises(RateLimited) as caught:
        await Runner.run(agent, "Hi", run_config=RunConfig(run_id="one"))
    await Runner.run(agent, caught.value.result.state(), run_config=RunConfig(executor=recording))
    assert [step.run_id for step in recording.calls] == ["one"]


async def test_replayed_failure_of_a_tool_leaves_the_same_agent_calls() -> None:
    """A step that is replayed takes no time, so its outcome is there before an agent is called."""
    recording = Recording()

    @tool(on_error="raise")
    async def fail() -> str:
        raise LookupError("gone")

    results: list[Any] = []
    for executor in (recording, Replaying(recording)):
        helper = Agent("helper", model=ScriptedHandler([])).as_tool()
        calls = [call("fail", id="f"), call("helper", {"input": "Go"}, id="h")]
        agent = Agent("A", model=ScriptedHandler([calls]), tools=[fail, helper])
        with pytest.raises(ToolError) as caught:
            await Runner.run(
                agent,
                "Hi",
                max_turns=1,
                run_config=RunConfig(executor=executor, run_id="r", on_limit="raise"),
            )
        results.append(caught.value.result)
    assert "no model call is left for it" in answers_of(results[0])[1]
    assert answers_of(results[1]) == answers_of(results[0])


@pytest.mark.parametrize(
    "done",
    [
        MessageDone(message=cast(Any, None)),
        MessageDone(message=cast(Any, 3)),
        MessageDone(message=cast(Any, object())),
        MessageDone(message=cast(Any, {"role": "assistant", "content": object()})),
        MessageDone(message=cast(Any, {"role": "assistant", "content": "Hi", 3: 4})),
        MessageDone(message=cast(Any, {"role": "assistant", "content": "Hi", "tags": {1, 2}})),
        MessageDone(message=HI, usage=cast(Any, "lots")),
        MessageDone(message=HI, usage=Usage(requests=1, input_tokens=cast(Any, "3"))),
        MessageDone(message=HI, finish_reason=cast(Any, 3), model=cast(Any, b"m"), response_id=cast(Any, 7)),
    ],
)
async def test_defective_reply_of_a_handler_has_the_same_end_when_replayed(done: MessageDone) -> None:
    class Defective:
        name = "defective"

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            yield done

    journal, ends = Journal(), list[Any]()
    for executor in (None, journal, journal):
        config = RunConfig(executor=executor, run_id="r", fallback=True)
        agent = Agent("A", model=Defective(), handlers=[ScriptedHandler(["From the other one."])])
        try:
            result = await Runner.run(agent, "Hi", run_config=config)
            ends.append((result.final_output, result.usage, len(result.warnings)))
        except HandlerError as error:
            ends.append((type(error), "gave a reply in turn 1 with" in str(error), error.result.usage))
    assert ends[0] == ends[1] == ends[2]
    assert journal.made == 1


def breaking(script: list[Any], **settings: Any) -> Agent:
    @tool(on_error="raise", timeout=0.001)
    async def slow() -> str:
        await anyio.sleep_forever()
        return "never"

    @tool(on_error="raise")
    async def broken() -> str:
        raise ValueError("no")

    @tool(input_guardrails=[_raises])
    async def guarded() -> str:
        return "never"

    return Agent("A", model=ScriptedHandler(script), tools=[slow, broken, guarded], **settings)


def _raises(context: Any, owner: Any, value: Any) -> GuardrailResult:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([call("slow")], ToolTimeout),
        ([call("broken")], ToolError),
        ([[call("broken"), call("slow")]], ToolError),
        ([[call("slow"), call("broken")]], ToolTimeout),
        ([call("guarded")], CallbackError),
        ([call("slow", "{")] * 3, ModelBehaviorError),
    ],
)
async def test_a_replayed_run_ends_with_the_same_error(script: list[Any], error: type[Exception]) -> None:
    """The first error in call order ends a run, whichever tool was the first to fail."""
    recording = Recording()
    raised: list[Any] = []
    for executor in (recording, Replaying(recording)):
        with pytest.raises(error) as caught:
            await Runner.run(breaking(script), "Hi", run_config=RunConfig(executor=executor, run_id="r"))
        raised.append(caught.value)
    first, again = raised
    assert (type(first), str(first)) == (type(again), str(again))
    assert facts(first.result) == facts(again.result)


async def test_half_a_character_in_a_handoff_request_is_no_obstacle_to_a_replay() -> None:
    """Data with such a half was recorded as text, which is no metadata."""

    @tool
    def ask() -> HandoffRequest:
        """Ask b."""
        return HandoffRequest("B", input={"x": "half \ud83d"}, metadata={"of\ud83d": "app"})

    recording = Recording()
    for executor in (recording, Replaying(recording)):
        b = Agent("B", model=ScriptedHandler(["Hi."]))
        a = Agent("A", model=ScriptedHandler([call("ask")]), tools=[ask])
        config = RunConfig(executor=executor, run_id="r", agents=[b])
        (record,) = (await Runner.run(a, "Hi", run_config=config)).handoffs
    assert record.request is not None
    assert (record.input, record.request.metadata) == ({"x": "half \ufffd"}, {"of\ufffd": "app"})


async def test_errors_of_one_turn_are_listed_in_call_order() -> None:
    """Whichever tool fails first: a result must not depend on the scheduler."""

    @function_tool
    async def fail(turns: int) -> str:
        """Fail after some turns of the scheduler."""
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        raise ValueError(str(turns))

    calls = [
        call("fail", {"turns": 9}, id="slow"),
        call("nothing", id="none"),
        call("fail", {"turns": 0}, id="quick"),
    ]
    agent = Agent("A", model=ScriptedHandler([calls, "Sorry."]), tools=[fail])
    result = await Runner.run(agent, "Hi")
    assert [problem.call_id for problem in result.errors] == ["slow", "none", "quick"]


async def test_an_engine_may_run_the_steps_in_any_order() -> None:
    class Backwards(InProcess):
        async def gather(self, calls: Sequence[Call], body: Step) -> Sequence[Outcome]:
            return [await body(step) for step in reversed(calls)][::-1]

    expected = await play(SCENES["siblings"], InProcess(), Stage())
    assert await play(SCENES["siblings"], Backwards(), Stage()) == expected


async def test_an_engine_may_run_a_step_again() -> None:
    """At least once is what durable engines promise; the model gets one answer."""

    class Twice(InProcess):
        async def gather(self, calls: Sequence[Call], body: Step) -> Sequence[Outcome]:
            await InProcess().gather(calls, body)
            return await InProcess().gather(calls, body)

    expected = await play(SCENES["siblings"], InProcess(), Stage())
    assert await play(SCENES["siblings"], Twice(), Stage()) == expected


async def test_an_engine_that_loses_the_reply_is_told_so() -> None:
    class Forgetful(InProcess):
        async def stream(self, call: Call, body: Body) -> AsyncGenerator[HandlerEvent]:
            for event in ():
                yield event

    with pytest.raises(HandlerError, match="ended in turn 1 without a MessageDone"):
        await play_answer(Forgetful())


async def play_answer(executor: Executor) -> Any:
    agent = Agent("A", model=ScriptedHandler(["Hi"]))
    return await Runner.run(agent, "Hi", run_config=RunConfig(executor=executor, run_id="r"))


async def test_in_process_gather_keeps_the_order_of_the_calls() -> None:
    steps = [Call("r", str(number), "tool", {}) for number in range(5)]

    async def body(step: Call) -> Outcome:
        for _ in range(5 - int(step.key)):
            await anyio.lowlevel.checkpoint()
        return {"key": step.key}

    assert await InProcess().gather(steps, body) == [{"key": step.key} for step in steps]


async def test_in_process_runs_a_single_call_right_here() -> None:
    """One tool costs no task."""

    async def body(step: Call) -> Outcome:
        return {"task": anyio.get_current_task().id}

    assert await InProcess().gather([Call("r", "k", "tool", {})], body) == [
        {"task": anyio.get_current_task().id}
    ]


async def test_in_process_streams_the_very_generator() -> None:
    """The default executor costs nothing: no wrapper around the events."""

    async def body(step: Call) -> AsyncGenerator[HandlerEvent]:
        yield MessageDone(message={"role": "assistant", "content": step.key})

    events = InProcess().stream(Call("r", "k", "model", {}), body)
    assert getattr(events, "ag_code", None) is body.__code__
    assert [event async for event in events] == [MessageDone(message={"role": "assistant", "content": "k"})]
