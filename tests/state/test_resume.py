"""Going on with a run where it stood: after limits, errors, cancellation, and for answers of the caller's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from plain_and_streamed import QUICK, Voice
from pydantic import BaseModel
from scenes import facts
from scripted_agents import TO_B, agent, answers_of, look_up, requests, shown

from routelock import (
    Agent,
    GuardrailResult,
    Request,
    RunConfig,
    Runner,
    RunResult,
    RunState,
    Tool,
    ToolContext,
    function_tool,
    handoff,
)
from routelock.errors import (
    CallbackError,
    ConfigError,
    HandoffError,
    HandoffFilterError,
    InvalidRequest,
    LoopDetected,
    MaxHandoffsExceeded,
    MaxTurnsExceeded,
    OutputGuardrailTripped,
    RoutelockError,
    ServerFailed,
    ToolError,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import text_of
from routelock.run.events import EmptyReply, HandoffOccurred, HandoffReturned, ToolOutput
from routelock.state.run_state import RunStatus
from routelock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio

WHERE = {
    "type": "function",
    "function": {"name": "where", "parameters": {"type": "object", "properties": {}}},
}


def written(result: RunResult[Any], of: Agent[Any]) -> RunState:
    """The state as another process reads it."""
    return RunState.from_json(result.state().to_json(), agents=[of])


async def run(
    of: Agent[Any], input: Any = "Hi", *, max_turns: int | None = 10, **settings: Any
) -> RunResult[Any]:
    return await Runner.run(of, input, max_turns=max_turns, run_config=RunConfig(retry=QUICK, **settings))


async def failed(of: Agent[Any], input: Any = "Hi", **settings: Any) -> RunResult[Any]:
    """The partial result of a run that ends with an error."""
    with pytest.raises(RoutelockError) as raised:
        await run(of, input, **settings)
    result: RunResult[Any] = raised.value.result
    return result


def answers(**texts: str) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id, text in texts.items()]


class Effects:
    """Tools that leave something behind."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tool(self, name: str, then: Callable[[], Any] = anyio.lowlevel.checkpoint, **options: Any) -> Tool:
        async def on_invoke(context: ToolContext[Any], arguments: str) -> str:
            self.done.append(context.tool_call_id)
            await then()
            return f"{name} done"

        return Tool(name=name, on_invoke_tool=on_invoke, **options)


# -- limits --


async def test_a_run_at_its_limit_goes_on_with_more_and_repeats_no_tool() -> None:
    """The limit is no loss."""
    effects = Effects()
    a = agent("A", call("pay"), call("pay", {"again": 1}), "Paid.", tools=[effects.tool("pay")])
    with pytest.raises(MaxTurnsExceeded) as raised:
        await run(a, max_turns=1)
    result = await run(a, written(raised.value.result, a))
    assert (result.final_output, len(effects.done), result.usage.requests) == ("Paid.", 2, 3)
    assert [item.kind for item in result.items] == ["input", "model", "tool", "model", "tool", "model"]


async def test_the_turns_before_count() -> None:
    """A budget is that of the run, not of the process."""
    a = agent("A", call("look_up", {"order": 1}), call("look_up", {"order": 2}), "Never.", tools=[look_up])
    state = written(await run(a, max_turns=2, on_limit="return"), a)
    assert state.turn == 2
    again = await failed(a, state, max_turns=2)
    assert (len(requests(a)), again.stop_reason) == (2, "error")
    assert str(again.state().error).startswith("MaxTurnsExceeded: Max turns (2) exceeded: agent 'A' wanted")


async def test_the_handoffs_before_count() -> None:
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    a = agent("A", TO_B, call("look_up", {"order": 1}), TO_B, TO_B, handoffs=[b], tools=[look_up])
    state = written(await run(a, max_turns=2, on_limit="return", max_handoffs=2), a)
    with pytest.raises(MaxHandoffsExceeded):
        await run(a, state, max_handoffs=2)


async def test_the_loop_guard_remembers() -> None:
    """The third time is nudged although the first two were in another run of the program."""
    same = call("look_up", {"order": 1})
    a = agent("A", same, same, same, "All right.", tools=[look_up])
    result = await run(a, written(await run(a, max_turns=2, on_limit="return"), a))
    assert [item.kind for item in result.items][-3:] == ["tool", "nudge", "model"]


async def test_what_the_loop_guard_knows_is_the_same_in_every_process() -> None:
    """`hash` of a text is not: a state that holds such hashes would forget all that was done."""
    a = agent("A", call("look_up", {"order": 1}), tools=[look_up])
    state = (await run(a, max_turns=1, on_limit="return")).state()
    assert state.document.progress.answers == {"61b354a9b8ded0aba3": "c31e94993b35f97334"}


async def test_it_goes_on_after_the_loop_guard_ended_it() -> None:
    same = call("look_up", {"order": 1})
    a = agent("A", *[same] * 6, "I stop.", tools=[look_up])
    with pytest.raises(LoopDetected) as raised:
        await run(a)
    assert (await run(a, written(raised.value.result, a))).final_output == "I stop."


# -- the caller's own tools --


@pytest.mark.parametrize("stream", [False, True])
async def test_the_callers_answers_are_added_and_the_run_goes_on(stream: bool) -> None:
    a = agent("A", [call("where", id="w"), call("look_up", {"order": 7}, id="l")], "There.", tools=[look_up])
    state = written(await run(a, external_tools=[WHERE]), a)
    assert (state.status, [each["id"] for each in state.pending]) == (RunStatus.WAITING_FOR_TOOLS, ["w"])
    answered = state.with_answers(answers(w="Rome"))
    config = RunConfig(external_tools=[WHERE])
    if stream:
        result = await Runner.run_streamed(a, answered, run_config=config).drain()
    else:
        result = await Runner.run(a, answered, run_config=config)
    assert (result.final_output, answers_of(result)) == ("There.", ["order 7 is on its way", "Rome"])
    assert [message["role"] for message in shown(a, 1)] == ["user", "assistant", "tool", "tool"]
    assert result.repairs == ()


async def test_a_run_that_waits_does_not_go_on_by_itself() -> None:
    a = agent("A", call("where", id="w"))
    state = written(await run(a, external_tools=[WHERE]), a)
    with pytest.raises(ConfigError, match=r"waits for answers to its calls 'w'.*state.with_answers"):
        await run(a, state)


async def test_the_answers_may_come_one_by_one() -> None:
    a = agent("A", [call("where", id="v"), call("where", id="w")], "There.")
    state = written(await run(a, external_tools=[WHERE]), a)
    state = RunState.from_json(state.with_answers(answers(w="2")).to_json(), agents=[a])
    assert [each["id"] for each in state.pending] == ["v"]
    assert (await run(a, state.with_answers(answers(v="1")))).final_output == "There."
    assert [text_of(message) for message in shown(a, 1)[2:]] == ["2", "1"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (answers(x="?"), r"Answer 0 is for the call 'x', which waits for no answer\. .* 'v', 'w'"),
        ([*answers(v="1"), *answers(v="1")], "Answer 1 answers the call 'v' a second time"),
        ([{"role": "user", "content": "Rome"}], "has the role 'user', and an answer is a tool message"),
        ([{"role": "tool", "content": "Rome"}], "is for the call None"),
        ([{"role": "tool", "tool_call_id": "v", "content": 7}], "content must be text"),
        ([{"role": "tool", "tool_call_id": "v", "content": "?", "x": {1}}], "Answer 0 must be JSON: x: set"),
    ],
)
async def test_what_is_no_answer_is_refused(given: Any, why: str) -> None:
    a = agent("A", [call("where", id="v"), call("where", id="w")])
    state = (await run(a, external_tools=[WHERE])).state()
    with pytest.raises(ConfigError, match=why):
        state.with_answers(given)
    assert len(state.pending) == 2


async def test_half_a_surrogate_pair_in_an_answer_is_no_obstacle() -> None:
    a = agent("A", call("where", id="w"), "There.")
    state = (await run(a, external_tools=[WHERE])).state()
    answered = state.with_answers(answers(w="Rome \ud83d"))
    result = await run(a, RunState.from_json(answered.to_json(), agents=[a]))
    assert answers_of(result) == ["Rome \ufffd"]


async def test_an_agent_that_was_asked_may_ask_the_caller() -> None:
    """The call that waits for its output is still answered by that."""
    b = agent("B", call("where", id="w"), "In Rome.")
    a = agent("A", TO_B, "It is in Rome.", handoffs=[handoff(b, return_to_caller=True)])
    state = written(await run(a, external_tools=[WHERE]), a)
    assert (state.agent, [each["id"] for each in state.pending]) == ("B", ["w"])
    result = await run(a, state.with_answers(answers(w="Rome")))
    assert (result.final_output, answers_of(result)) == ("It is in Rome.", ["Rome", "In Rome."])
    assert [message["role"] for message in shown(a, 1)] == ["user", "assistant", "tool"]
    assert [message["role"] for message in result.to_input_list()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


# -- errors --


async def test_a_model_call_that_failed_is_made_again_as_the_same_turn() -> None:
    effects = Effects()
    a = agent("A", call("pay"), InvalidRequest("down"), "Paid.", tools=[effects.tool("pay")])
    result = await run(a, written(await failed(a), a), max_turns=2)
    assert (result.final_output, len(effects.done)) == ("Paid.", 1)
    assert [request.turn for request in requests(a)] == [1, 2, 2]
    assert list(requests(a)[2].messages) == list(requests(a)[1].messages)


async def test_an_error_before_the_first_reply_is_no_obstacle() -> None:
    a = agent("A", InvalidRequest("down"), "Hello.")
    assert (await run(a, written(await failed(a), a), max_turns=1)).final_output == "Hello."


async def test_a_reply_that_was_cut_off_is_kept_and_not_shown_again() -> None:
    """A request must not end with half an answer."""

    class Breaks(ScriptedHandler):
        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            if not self.requests:
                self._next(request)
                yield TextDelta("Hel")
                raise InvalidRequest("cut")
            async for event in super().stream(request):
                yield event

    a = Agent("A", model=Breaks(["Never.", "Hello."], name="A"))
    stream = Runner.run_streamed(a, "Hi")
    with pytest.raises(InvalidRequest):
        await stream.drain()
    result = await run(a, written(stream.result, a))
    assert [message["role"] for message in shown(a, 1)] == ["user"]
    assert [text_of(item.message) for item in result.items] == ["Hi", "Hel", "Hello."]
    assert result.to_input_list()[-1] == {"role": "assistant", "content": "Hello."}


async def test_a_tool_that_ended_the_run_is_not_called_again() -> None:
    effects = Effects()

    def no() -> Any:
        raise ValueError("no")

    tools = [effects.tool("pay"), effects.tool("fail", no, on_error="raise")]
    a = agent("A", [call("pay", id="p"), call("fail", id="f")], "Sorry.", tools=tools)
    result = await run(a, written(await failed(a), a))
    assert (result.final_output, sorted(effects.done)) == ("Sorry.", ["f", "p"])
    assert answers_of(result) == ["pay done", "Tool 'fail' failed: ValueError: no"]


async def test_an_output_that_was_refused_is_judged_again_and_the_model_is_not_asked() -> None:
    strict = [True]

    def polite(context: Any, of: Any, output: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=strict[0])

    a = agent("A", "Well!", output_guardrails=[polite])
    with pytest.raises(OutputGuardrailTripped) as raised:
        await run(a)
    state = written(raised.value.result, a)
    with pytest.raises(OutputGuardrailTripped):
        await run(a, state)
    strict.clear()
    strict.append(False)
    result = await run(a, state)
    assert (result.final_output, len(requests(a))) == ("Well!", 1)


async def test_an_input_that_was_refused_is_judged_again() -> None:
    strict = [True]
    a = agent("A", "Hello.")

    def judge(context: Any, of: Any, messages: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=strict[0])

    guard: dict[str, Any] = {"input_guardrails": [judge]}
    state = written(await failed(a, **guard), a)
    assert (await failed(a, state, **guard)).usage.requests == 0
    strict[0] = False
    assert (await run(a, state, **guard)).final_output == "Hello."


@pytest.mark.parametrize("returns", [False, True])
async def test_a_transfer_that_a_filter_broke_was_not_made(returns: bool) -> None:
    """The source goes on, and is told: it must not take itself for the target."""

    def broken(data: Any) -> Any:
        raise ValueError("no")

    b = agent("B")
    declared = handoff(b, input_filter=broken, return_to_caller=returns)
    a = agent("A", TO_B, "Then I do it.", handoffs=[declared])
    with pytest.raises(HandoffFilterError) as raised:
        await run(a)
    result = await run(a, written(raised.value.result, a))
    assert (result.final_output, result.last_agent.name) == ("Then I do it.", "A")
    assert text_of(shown(a, 1)[-1]).startswith("The transfer was not made: Input filter")
    assert [(one.status, one.taken) for one in result.handoffs] == [(HandoffStatus.FAILED, False)]


async def test_a_run_may_be_stopped_between_two_turns_and_agents_that_are_asked_are_not_asked_again() -> None:
    """What they consumed stays counted, and so do their turns."""
    stop = [False]

    def instructions(context: Any) -> str:
        if stop[0]:
            raise RuntimeError("stop")
        return "You are A."

    helper = agent("helper", call("look_up", {"order": 7}), "On its way.", tools=[look_up])
    a = Agent(
        "A",
        instructions,
        model=ScriptedHandler([call("helper", {"input": "Look."}), "It is on its way."], name="A"),
        tools=[helper.as_tool()],
    )
    stream = Runner.run_streamed(a, "Hi")

    async def read() -> None:
        async for event in stream:
            stop[0] = stop[0] or isinstance(event, ToolOutput)

    with pytest.raises(CallbackError):
        await read()
    stop[0] = False
    state = written(stream.result, a)
    assert state.usage.requests == 3
    result = await run(a, state)
    assert (result.final_output, result.usage.requests, len(requests(helper))) == ("It is on its way.", 4, 2)


# -- left and cancelled --


class ByTurn:
    """A model that says the same in the same turn, however often it is asked, and by whatever process."""

    name = "by turn"

    def __init__(self, replies: Mapping[int, Any]) -> None:
        self.replies = replies

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        script = ScriptedHandler([self.replies[request.turn]], name=self.name)
        async with aclosing(script.stream(request)) as events:
            async for event in events:
                yield event


def everything(effects: Effects) -> Agent[Any]:
    """Two tools at once, a transfer beside them, one that returns, a nudge, an answer."""
    first = [call("a", id="a1"), call("transfer_to_b", id="t1"), call("a", {"n": 2}, id="a2")]
    model = ByTurn(
        {
            1: reply("Let me see.", calls=first),
            2: call("transfer_to_c", id="t2"),
            3: call("c", id="c1"),
            4: "From C.",
            5: call("b", id="b1"),
            6: "",
            7: "Done.",
        }
    )
    c = Agent("C", model=model, tools=[effects.tool("c")])
    b = Agent("B", model=model, tools=[effects.tool("b")], handoffs=[handoff(c, return_to_caller=True)])
    return Agent("A", model=model, tools=[effects.tool("a")], handoffs=[b])


async def count_events() -> int:
    return len([event async for event in Runner.run_streamed(everything(Effects()), "Hi")])


async def test_a_stream_that_is_left_anywhere_goes_on_and_runs_each_tool_once() -> None:
    whole = await Runner.run_streamed(everything(Effects()), "Hi", run_config=RunConfig(run_id="r")).drain()
    for place in range(await count_events() - 1):
        effects = Effects()
        a = everything(effects)
        async with Runner.run_streamed(a, "Hi", run_config=RunConfig(run_id="r")) as stream:
            for _ in range(place + 1):
                await anext(aiter(stream))
        state = written(stream.result, a)
        assert state.status is not RunStatus.FAILED
        result = await run(a, state)
        assert (result.final_output, sorted(effects.done)) == ("Done.", ["a1", "a2", "b1", "c1"]), place
        assert [item.message for item in result.items if item.message["role"] == "tool"]
        assert sorted(answers_of(result)) == sorted(answers_of(whole)), place
        assert [(one.source, one.target, one.status) for one in result.handoffs] == [
            (one.source, one.target, one.status) for one in whole.handoffs
        ], place
        assert_valid(result.to_input_list())


async def test_a_stream_that_is_left_and_gone_on_with_again_and_again() -> None:
    """A reply or one event after it each time, and always by way of JSON."""
    effects = Effects()
    a = everything(effects)
    given: Any = "Hi"
    for _ in range(200):
        async with Runner.run_streamed(a, given) as stream:
            async for event in stream:
                if isinstance(
                    event, MessageDone | ToolOutput | EmptyReply | HandoffOccurred | HandoffReturned
                ):
                    break
        if stream.result.stop_reason == "done":
            break
        given = written(stream.result, a)
    assert stream.result.final_output == "Done."
    assert sorted(effects.done) == ["a1", "a2", "b1", "c1"]


async def test_what_was_deleted_of_the_shared_memory_is_not_given_anew() -> None:
    """By the settings, which are the same again."""

    @function_tool
    async def settle(context: ToolContext[Any]) -> str:
        """Settle."""
        del context.shared_memory["unpaid"]
        return "settled"

    a = agent("A", call("settle"), "Done.", tools=[settle])
    config = RunConfig(shared_memory={"unpaid": 5, "user": "u"}, on_limit="return")
    first = await Runner.run(a, "Hi", max_turns=1, run_config=config)
    result = await Runner.run(a, written(first, a), run_config=config)
    assert result.context.shared_memory == {"user": "u"}


@pytest.mark.virtual_time
async def test_a_tool_that_was_cancelled_is_not_run_again_and_the_model_is_told() -> None:
    """At most once: nobody knows whether the money went out."""
    effects = Effects()
    a = agent(
        "A",
        [call("pay", id="p"), call("quick", id="q")],
        "I ask the bank.",
        tools=[effects.tool("pay", anyio.sleep_forever), effects.tool("quick")],
    )
    stream = Runner.run_streamed(a, "Hi")
    with anyio.move_on_after(0.05):
        async with stream:
            await stream.drain()
    state = written(stream.result, a)
    result = await run(a, state)
    assert (result.final_output, sorted(effects.done)) == ("I ask the bank.", ["p", "q"])
    texts = {each.get("tool_call_id"): text_of(each) for each in shown(a, 1) if each["role"] == "tool"}
    assert texts["q"] == "quick done"
    assert texts["p"].startswith("The run was interrupted while this call was carried out.")
    assert [(problem.call_id, problem.kind) for problem in result.errors] == [("p", "tool")]


@pytest.mark.virtual_time
async def test_an_agent_tool_that_was_cancelled_is_not_asked_again() -> None:
    async def wait(request: Any) -> str:
        await anyio.sleep_forever()
        return "never"

    helper = Agent("helper", handlers=[wait])
    a = agent("A", call("helper", {"input": "?"}, id="h"), "Without.", tools=[helper.as_tool()])
    stream = Runner.run_streamed(a, "Hi")
    with anyio.move_on_after(0.05):
        async with stream:
            await stream.drain()
    result = await run(a, written(stream.result, a))
    assert answers_of(result)[0].startswith("The run was interrupted")


@pytest.mark.virtual_time
@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize("where", ["on_handoff", "input_filter"])
async def test_a_transfer_that_was_cancelled_is_made_wholly_or_not_at_all(where: str, returns: bool) -> None:
    async def wait(*_: Any) -> Any:
        await anyio.sleep_forever()

    b = agent("B", "From B.")
    options: dict[str, Any] = {where: wait, "return_to_caller": returns}
    a = agent("A", TO_B, "Then I do it.", handoffs=[handoff(b, **options)])
    stream = Runner.run_streamed(a, "Hi")
    with anyio.move_on_after(0.05):
        async with stream:
            await stream.drain()
    result = await run(a, written(stream.result, a))
    assert (result.final_output, result.last_agent.name) == ("Then I do it.", "A")
    told = text_of(shown(a, 1)[-1])
    assert told.startswith(("The run was interrupted", "The transfer was not made"))
    assert not any(one.taken for one in result.handoffs)


async def test_a_requested_handoff_is_made_by_whoever_goes_on() -> None:
    """The transfer crosses the process boundary by its name."""
    b = agent("B", "From B.")
    a = agent(
        "A", call("transfer_to_b", {"reason": "they shout"}, id="t"), handoffs=[handoff(b, ask_reason=True)]
    )
    async with Runner.run_streamed(a, "Hi") as stream:
        async for event in stream:
            if isinstance(event, MessageDone):
                break
    state = written(stream.result, a)
    assert (state.status, state.requested_handoff, state.reason) == (
        RunStatus.HANDOFF_REQUESTED,
        "transfer_to_b",
        "they shout",
    )
    result = await run(a, state)
    assert (result.final_output, result.last_agent.name, result.handoffs[0].reason) == (
        "From B.",
        "B",
        "they shout",
    )


# -- what is given anew, and what is kept --


async def test_a_run_that_is_done_is_done_again_without_a_model_call() -> None:
    class Weather(BaseModel):
        degrees: int

    a = agent("A", '{"degrees": 21}', output_type=Weather)
    first = await run(a)
    state = written(first, a)
    assert state.status is RunStatus.COMPLETE
    result = await run(a, state)
    assert (result.final_output, result.stop_reason, len(requests(a))) == (Weather(degrees=21), "done", 1)
    assert {**facts(result), "calls": []} == {**facts(first), "calls": []}
    changed = replace(a, output_type=bool)
    with pytest.raises(ConfigError, match="its output does not fit agent 'A' as it is now"):
        await run(changed, state)


async def test_the_model_may_be_another_one_by_now() -> None:
    """Whoever was at the default stays at the default; the wiring may change between two versions."""
    a = agent("A", call("look_up", {"order": 1}), tools=[look_up])
    state = written(await run(a, max_turns=1, on_limit="return"), a)
    newer = replace(a, model=ScriptedHandler(["New."], name="newer"))
    assert (await run(newer, state)).final_output == "New."
    assert (await run(a, state, model=ScriptedHandler(["Other."], name="other"))).final_output == "Other."


async def test_a_handler_that_stands_in_must_still_be_there() -> None:
    voice = Voice("voice", call("look_up", {"order": 1}), "Ahem.", expose=True)
    a = agent("A", call("transfer_to_voice"), handlers=[voice], tools=[look_up])
    state = written(await run(a, max_turns=2, on_limit="return"), a)
    assert (state.agent, state.handler) == ("A", "voice")
    with pytest.raises(ConfigError, match="names the handler 'voice' of agent 'A', which is not there"):
        await run(replace(a, handlers=()), state)
    assert (await run(a, state)).final_output == "Ahem."


async def test_the_scopes_are_those_of_whoever_goes_on() -> None:
    voice = Voice("voice", call("look_up", {"order": 1}), "Ahem.", expose=True, scope="owner")
    a = agent("A", call("transfer_to_voice"), handlers=[voice], tools=[look_up])
    state = written(await run(a, max_turns=2, on_limit="return", scopes=["owner"]), a)
    with pytest.raises(ConfigError, match="not with the scopes of this run"):
        await run(a, state)
    assert (await run(a, state, scopes=["owner"])).final_output == "Ahem."


async def test_the_context_object_and_the_memory() -> None:
    seen: list[Any] = []

    @function_tool
    def note(context: ToolContext[Any]) -> str:
        """Note."""
        seen.append((context.context, dict(context.shared_memory), context.run_id, context.turn))
        context.shared_memory["count"] = context.shared_memory.get("count", 0) + 1
        return "noted"

    a = agent("A", call("note"), call("note", {}, id="n"), "Done.", tools=[note])
    first = await Runner.run(
        a, "Hi", context="one", max_turns=1, run_config=RunConfig(run_id="r", on_limit="return")
    )
    await Runner.run(a, written(first, a), context="two", run_config=RunConfig(shared_memory={"more": [1]}))
    assert seen == [("one", {}, "r", 1), ("two", {"more": [1], "count": 1}, "r", 2)]


async def test_a_run_keeps_its_name() -> None:
    a = agent("A", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    state = written(await run(a, max_turns=1, on_limit="return", run_id="mine"), a)
    with pytest.raises(ConfigError, match=r"run_id='other'.*'mine' and keeps its name"):
        await run(a, state, run_id="other")
    assert (await run(a, state, run_id="mine")).context.run_id == "mine"


async def test_whoever_began_answers_next_after_the_reset() -> None:
    b = agent("B", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    a = agent("A", TO_B, handoffs=[b])
    state = written(await run(a, max_turns=2, on_limit="return"), a)
    assert (await run(a, state)).next_agent is a


async def test_places_are_taken_anew() -> None:
    b = agent("B", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    a = agent("A", TO_B, handoffs=[b])
    places = Capacity({"B": 1})
    state = written(await run(a, max_turns=2, on_limit="return", capacity=places), a)
    assert places.free("B") == 1
    with places.take("B") or pytest.fail("it is free"):
        with pytest.raises(HandoffError, match="'B' has no free slot") as raised:
            await run(a, state, capacity=places)
    assert (await run(a, written(raised.value.result, a), capacity=places)).final_output == "Done."
    assert places.free("B") == 1


async def test_a_place_is_that_of_whoever_was_handed_over_to_also_when_another_handler_answers() -> None:
    places = Capacity({"sales": 1})
    seen: list[int | None] = []

    def look() -> str:
        """Look."""
        seen.append(places.free("sales"))
        return "ok"

    class Broken:
        name, priority = "sales", 20

        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            raise ServerFailed("down", retryable=False)
            yield MessageDone(message=reply("never"))

    broken = Broken()
    front = ScriptedHandler([call("transfer_to_sales"), call("look"), call("look"), "Done."], name="front")
    a = Agent("A", handlers=[front, broken], handoffs=[broken], tools=[function_tool(look)])
    config: dict[str, Any] = {"capacity": places, "fallback": True}
    state = written(await run(a, max_turns=2, on_limit="return", **config), a)
    assert (await run(a, state, **config)).final_output == "Done."
    assert seen == [0, 0]
    assert places.free("sales") == 1


@pytest.mark.virtual_time
async def test_whoever_waits_has_all_its_patience_again() -> None:
    async def slow(request: Any) -> str:
        if request.turn == 3:
            await anyio.sleep_forever()
        return ""

    b = agent("B", call("look"), tools=[Effects().tool("look")])
    a = agent("A", TO_B, "I waited.", handoffs=[handoff(b, return_to_caller=True, run_timeout=0.2)])
    state = written(await run(a, max_turns=2, on_limit="return"), a)
    await anyio.sleep(0.3)
    patient = agent("B", "In time.")
    again = agent("A", "Good.", handoffs=[handoff(patient, return_to_caller=True, run_timeout=0.2)])
    assert (await run(again, state)).final_output == "Good."
    late = replace(patient, model=None, handlers=[slow])
    again = agent("A", "I waited.", handoffs=[handoff(late, return_to_caller=True, run_timeout=0.2)])
    assert (await run(again, state)).final_output == "I waited."


async def test_a_result_that_is_not_the_newest_has_no_state() -> None:
    a = agent("A", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    async with Runner.run_streamed(a, "Hi") as stream:
        await anext(aiter(stream))
        early = stream.result
        await stream.drain()
    with pytest.raises(ConfigError, match="has gone on since"):
        early.state()


async def test_a_run_within_another_has_no_state_of_its_own() -> None:
    helper = agent("helper", "Here.")
    result = await run(agent("A", call("helper", {"input": "?"}, id="h"), "Done.", tools=[helper.as_tool()]))
    with pytest.raises(ConfigError, match="take the state of the outer result"):
        result.nested["h"].state()


async def test_what_two_runs_of_one_state_do_is_their_own() -> None:
    a = agent("A", call("look_up", {"order": 1}), "One.", "Two.", tools=[look_up])
    state = written(await run(a, max_turns=1, on_limit="return", shared_memory={"list": [1]}), a)
    before = json.loads(state.to_json())
    one, two = await run(a, state), await run(a, state)
    assert (one.final_output, two.final_output, json.loads(state.to_json())) == ("One.", "Two.", before)
    one.context.shared_memory["list"].append(2)
    assert two.context.shared_memory == {"list": [1]}


async def test_run_sync_goes_on_as_well() -> None:
    a = agent("A", call("look_up", {"order": 1}), "Done.", tools=[look_up])
    state = written(await run(a, max_turns=1, on_limit="return"), a)
    result = await anyio.to_thread.run_sync(lambda: Runner.run_sync(a, state))
    assert result.final_output == "Done."


async def test_an_error_of_a_tool_says_in_the_state_what_it_was() -> None:
    def no() -> Any:
        raise ValueError("password=hunter2")

    a = agent("A", call("fail"), tools=[Effects().tool("fail", no, on_error="raise")])
    with pytest.raises(ToolError) as raised:
        await run(a)
    state = written(raised.value.result, a)
    assert (state.status, state.error) == (
        RunStatus.FAILED,
        "ToolError: Tool 'fail' failed: ValueError: password=[redacted]",
    )


async def test_what_an_error_says_is_written_without_secrets_though_the_run_went_on() -> None:
    def no() -> Any:
        raise ValueError("password=hunter2")

    away = Voice("first", ConnectionError("postgresql://shop:hunter2@db is away"))
    a = Agent(
        "A", handlers=[away, Voice("second", call("fail"), "Sorry.")], tools=[Effects().tool("fail", no)]
    )
    result = await run(a, fallback=True)
    assert [one.kind for one in result.errors] == ["fallback", "tool"]
    assert [one.message for one in written(result, a).document.errors] == [
        "handler 'first' failed, 'second' answers instead: ConnectionError: "
        "postgresql://[redacted]@db is away",
        "Tool 'fail' failed: ValueError: password=[redacted]",
    ]


async def test_replies_after_the_pause_have_ids_of_their_own() -> None:
    a = agent(
        "A",
        call("look_up", {"order": 1}, id="x"),
        call("look_up", {"order": 2}, id="x"),
        "Done.",
        tools=[look_up],
    )
    result = await run(a, written(await run(a, max_turns=1, on_limit="return"), a))
    assert_valid(result.messages)


async def test_a_handler_that_failed_and_was_handed_over_to_again_is_in_charge() -> None:
    """The default fails, its replacement hands back to it, and there the run stands."""

    def team() -> tuple[Agent[Any], Voice]:
        first = Voice("first", InvalidRequest("no"), "Here I am again.")
        first.expose = True  # type: ignore[attr-defined]
        second = Voice("second", call("transfer_to_first"))
        return Agent("A", handlers=[first, second]), first

    asked, _ = team()
    stopped = await run(asked, max_turns=1, fallback=True, on_limit="return")
    assert stopped.last_handler == "first"
    again, first = team()
    first.replies.pop(0)
    went_on = await run(again, written(stopped, again), fallback=True)
    assert (went_on.final_output, went_on.last_handler) == ("Here I am again.", "first")


async def test_who_took_over_is_told_of_the_transfer_though_both_have_the_same_model() -> None:
    """The run is stopped between the transfer and the target's first turn."""

    def team() -> tuple[Agent[Any], ScriptedHandler]:
        model = ScriptedHandler([call("transfer_to_b"), "B here."])
        return Agent("A", model=model, handoffs=[Agent("B", model=model)]), model

    whole, model = team()
    await run(whole)
    first, _ = team()
    stopped = await run(first, max_turns=1, on_limit="return")
    second, again = team()
    again.replies.pop(0)
    await run(second, written(stopped, second))
    assert again.requests[0].messages == model.requests[1].messages


async def test_a_resumed_run_comes_back_from_any_depth() -> None:
    """Without places to hold, too: it stood where two agents waited, each for the next."""
    careful = function_tool(lambda: "done", name_override="careful", needs_approval=True)
    c = agent("C", call("careful", id="w"), "C.", tools=[careful])
    b = agent("B", call("transfer_to_c", id="c"), "B.", handoffs=[handoff(c, return_to_caller=True)])
    made = agent("A", call("transfer_to_b", id="t"), "A.", handoffs=[handoff(b, return_to_caller=True)])
    first = await Runner.run(made, "Hi")
    state = first.state()
    result = await Runner.run(made, state.approve(state.interruptions[0]))
    assert (result.final_output, answers_of(result)) == ("A.", ["done", "C.", "B."])
