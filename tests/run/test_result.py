"""What a run leaves behind: complete, typed, and valid input for the next one."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import SCENES, Stage
from scripted_agents import outcome
from thoroughness import examples

from routelock import Agent, RunConfig, Runner, RunResult, function_tool, handoff, tool
from routelock.context import RunContext
from routelock.errors import InvalidRequest, RoutelockError, RunNotDone
from routelock.handoff_request import HandoffStatus
from routelock.history.marked import item_of
from routelock.history.messages import Message, RunItem, calls_of
from routelock.history.repair import NO_ANSWER
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "Go on."}


async def played(scene: str, messages: Any = "Hi") -> RunResult[Any]:
    """Play a scene and return its result, the partial one of an error included."""
    one = SCENES[scene]
    try:
        return await Runner.run(
            one.agent(Stage()), messages, max_turns=one.max_turns, run_config=one.settings()
        )
    except RoutelockError as error:
        return error.result


# -- to_input_list --


@pytest.mark.parametrize("scene", SCENES)
async def test_the_conversation_is_valid_input_for_the_next_run(scene: str) -> None:
    """Whatever the run did, `Runner.run(b, result.to_input_list() + [user])` is legal."""
    result = await played(scene)
    script = ScriptedHandler(["Here I am."])
    following = await Runner.run(Agent("Next", model=script), [*result.to_input_list(), USER])
    assert following.final_output == "Here I am."
    assert problems(script.requests[0].messages) == []
    assert following.repairs == ()


@pytest.mark.parametrize("scene", SCENES)
async def test_the_conversation_can_be_stored_as_json(scene: str) -> None:
    history = (await played(scene)).to_input_list()
    assert json.loads(json.dumps(history)) == history


async def test_a_valid_conversation_is_passed_on_as_it_is() -> None:
    """Only who made a call is said beside it."""
    result = await played("one tool")
    assert [item_of(each, 0, "input").message for each in result.to_input_list()] == result.messages
    assert [each.get("_agent") for each in result.to_input_list()] == [None, "A", None, None]


async def test_edits_of_the_next_input_do_not_change_the_result() -> None:
    """The caller's list is the caller's: parts, calls and keys may be edited."""
    given: Any = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    result = await played("one tool", given)
    before = json.dumps(result.messages)
    for message in result.to_input_list():
        if isinstance(parts := message.get("content"), list):
            parts[0]["text"] = "[gone]"
        for made in calls_of(message):
            made["function"]["name"] = "[gone]"
        message["content"] = "[gone]"
    given[0]["content"][0]["text"] = "[gone]"
    assert json.dumps(result.messages) == before


async def test_nudge_stays_a_nudge_in_the_next_run() -> None:
    """What the runtime said in the user's role is marked, also when it was saved in between."""
    nudge = RunItem(id=1, kind="nudge", message={"role": "user", "content": "You repeat yourself."})
    first = dataclasses.replace(
        await played("answer"), items=(RunItem(id=0, kind="input", message=USER), nudge)
    )
    history = json.loads(json.dumps(first.to_input_list()))
    b = ScriptedHandler(["B here."])
    declared = handoff(Agent("B", model=b), preserve_context=False)
    script = ScriptedHandler([call("transfer_to_b")])
    result = await Runner.run(Agent("A", model=script, handoffs=[declared]), history)
    assert [item.kind for item in result.items[:2]] == ["input", "nudge"]
    assert list(script.requests[0].messages) == [USER, nudge.message]
    assert list(b.requests[0].messages) == [USER]


async def test_calls_that_were_never_answered_are_given_an_answer() -> None:
    """A run that was left in the middle does not poison the conversation."""
    async with Runner.run_streamed(SCENES["siblings"].agent(Stage()), "Hi") as stream:
        async for event in stream:
            if event.type == "tool_called":
                break
    history = stream.result.to_input_list()
    assert problems(stream.result.messages) != []
    assert problems(history) == []
    assert [message.get("content") for message in history if message["role"] == "tool"] == [NO_ANSWER] * 3


async def test_next_input_has_no_empty_reply() -> None:
    result = await played("silence")
    assert len(result.messages) == 2
    assert result.to_input_list() == [{"role": "user", "content": "Hi"}]


async def test_filters_do_not_touch_what_is_kept() -> None:
    """Filters change the view, never the transcript."""
    target = Agent("B", model=ScriptedHandler(["B here."]))
    declared = handoff(target, preserve_context=False)
    agent = Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[declared])
    result = await Runner.run(agent, [{"role": "user", "content": "One"}, USER])
    assert list(result.calls[1].messages) == [USER]
    roles = [message["role"] for message in result.to_input_list()]
    assert roles == ["user", "user", "assistant", "tool", "assistant"]


@given(scenes=st.lists(st.sampled_from(sorted(SCENES)), min_size=2, max_size=4))
@examples(20)
async def test_runs_can_be_strung_together(scenes: list[str]) -> None:
    """Every request of every run is valid, however the runs before ended, also after a save as JSON."""
    history: Any = []
    for scene in scenes:
        result = await played(scene, [*history, USER])
        assert [made.turn for made in result.calls if problems(made.messages)] == []
        history = json.loads(json.dumps(result.to_input_list()))
    assert problems([*history, USER]) == []


# -- items --


async def test_new_items_are_what_the_run_added() -> None:
    given: list[Any] = [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, USER]
    result = await Runner.run(SCENES["one tool"].agent(Stage()), given)
    assert [item.kind for item in result.items] == ["input"] * 3 + ["model", "tool", "model"]
    assert [item.kind for item in result.new_items] == ["model", "tool", "model"]
    assert result.messages == [item.message for item in result.items]


@pytest.mark.parametrize("scene", SCENES)
async def test_items_are_numbered_in_order(scene: str) -> None:
    result = await played(scene)
    assert [item.id for item in result.items] == list(range(len(result.items)))


async def test_items_say_whose_turn_it_was() -> None:
    result = await played("transfer")
    assert [(item.kind, item.agent) for item in result.items] == [
        ("input", None),
        ("model", "A"),
        ("handoff", "A"),
        ("tool", "A"),
        ("handoff", "A"),
        ("model", "B"),
    ]


# -- output --


async def test_the_output_can_be_typed() -> None:
    result = await played("structured")
    assert result.final_output_as(object) is result.final_output
    assert result.final_output_as(int) is result.final_output
    with pytest.raises(TypeError, match="is of type Weather, not int"):
        result.final_output_as(int, raise_if_incorrect_type=True)
    assert result.final_output_as(type(result.final_output), raise_if_incorrect_type=True).degrees == 21


async def test_the_last_agent_is_kept_alive() -> None:
    """A strong reference; the SDK's may vanish with the collector."""
    result = await played("transfer")
    agent = weakref.ref(result.last_agent)
    gc.collect()
    assert agent() is not None
    assert result.last_agent.name == "B"


@pytest.mark.parametrize(
    ("scene", "reason"),
    [("answer", "done"), ("limit returned", "limit"), ("too many turns", "error"), ("failing", "error")],
)
async def test_why_a_run_ended_is_said(scene: str, reason: str) -> None:
    assert (await played(scene)).stop_reason == reason


async def test_a_result_cannot_be_changed() -> None:
    result = await played("answer")
    with pytest.raises(FrozenInstanceError):
        result.final_output = "Mine."  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# -- records --


async def test_every_transfer_is_on_record_taken_or_not() -> None:
    """All hops in order, each with its outcome."""
    first, second = (await played("transfer")).handoffs
    assert (first.id, first.source, first.target, first.tool_name) == ("h-r-1", "A", "B", "transfer_to_b")
    assert (first.call_id, first.turn, first.status) == ("call_1_0", 1, HandoffStatus.COMPLETED)
    assert (second.id, second.source, second.target, second.tool_name) == ("h-r-2", "A", "C", "transfer_to_c")
    assert (second.call_id, second.status, second.tried) == ("call_1_2", HandoffStatus.REJECTED, False)
    assert second.error == "Multiple handoffs detected, ignoring this one."


async def test_a_failed_transfer_says_why() -> None:
    (record,) = (await played("refused transfer")).handoffs
    assert (outcome(record), record.error) == ("failed", "LookupError: nobody is there")


async def test_problems_keep_the_exception_and_the_call() -> None:
    """Errors go to the model first, and stay visible on the result."""
    (problem,) = (await played("siblings")).errors
    assert (problem.kind, problem.agent, problem.turn, problem.call_id) == ("tool", "A", 1, "call_1_1")
    assert isinstance(problem.error, ValueError)


async def test_failed_model_call_has_a_record_without_reply() -> None:
    result = await played("failing")
    assert [made.reply is None for made in result.calls] == [False, True]
    assert len(result.raw_replies) == 1


async def test_repairs_are_reported() -> None:
    """What the caller passed was broken, and the result says what was repaired."""
    poisoned: list[Any] = [USER, {"role": "assistant", "tool_calls": [call("look", id="c")]}, USER]
    result = await Runner.run(Agent("A", model=ScriptedHandler(["Hi"])), poisoned)
    assert result.repairs == ("added a missing answer to tool call 'c'",)
    assert result.messages[:3] == poisoned


async def test_the_context_of_the_end_is_kept() -> None:
    @function_tool
    async def remember(context: RunContext[Any]) -> str:
        """Remember."""
        context.shared_memory["seen"] = context.turn
        return "ok"

    agent = Agent("A", model=ScriptedHandler([call("remember"), "Done."]), tools=[remember])
    result = await Runner.run(agent, "Hi", context="mine", run_config=RunConfig(run_id="r"))
    assert result.context.context == "mine"
    assert (result.context.turn, result.context.shared_memory) == (2, {"seen": 1})
    assert result.context.usage == result.usage == Usage(requests=2, input_tokens=20, output_tokens=10)


async def test_error_of_two_runs_has_the_last_result() -> None:
    """One object raised by two runs must not show the first one's."""
    error = InvalidRequest("no")
    agent = Agent("A", model=ScriptedHandler([error, error]))
    for text in ("first", "second"):
        with pytest.raises(InvalidRequest):
            await Runner.run(agent, text)
        assert error.result.messages == [{"role": "user", "content": text}]


async def test_repr_of_a_long_run_is_one_line() -> None:
    """asyncio formats what a finished task returned, and a long history would take it seconds."""
    agent = Agent("A", model=ScriptedHandler(["Hello."]))
    result = await Runner.run(agent, [{"role": "user", "content": "x" * 10_000}] * 10)
    assert repr(result) == "RunResult(done, last_agent='A', turns=1, final_output='Hello.')"


async def test_repr_without_an_output_shows_none() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await Runner.run(Agent("A", model=ScriptedHandler([InvalidRequest("no")])), "Hi")
    assert repr(caught.value.result) == "RunResult(error, last_agent='A', turns=1, final_output=None)"


async def test_output_is_required_of_a_run_that_waits() -> None:
    @tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    agent = Agent("A", model=ScriptedHandler([call("pay")]), tools=[pay])
    result = await Runner.run(agent, "Hi")
    assert (result.stop_reason, result.final_output) == ("requires_action", None)
    with pytest.raises(RunNotDone, match="it waits for pay: answer or approve these calls"):
        result.require_output()


async def test_output_is_required_of_a_run_that_a_limit_ended() -> None:
    agent = Agent("A", model=ScriptedHandler([call("nothing"), "Done."]))
    result = await Runner.run(agent, "Hi", max_turns=1, run_config=RunConfig(on_limit="return"))
    with pytest.raises(RunNotDone, match="it ended with a limit"):
        result.require_output()


async def test_output_is_required_of_a_run_that_goes_on() -> None:
    stream = Runner.run_streamed(Agent("A", model=ScriptedHandler(["Hello."])), "Hi")
    assert stream.final_output is None
    with pytest.raises(RunNotDone, match="still goes on"):
        stream.result.require_output()
    assert (await stream.drain()).require_output() == "Hello."


async def test_required_output_may_be_none() -> None:
    agent = Agent("A", model=ScriptedHandler(['{"response": null}']), output_type=int | None)
    result = await Runner.run(agent, "Hi")
    assert (result.stop_reason, result.require_output()) == ("done", None)


async def test_result_type_has_a_default_parameter() -> None:
    """A strict type checker then takes it for a result of anything, as an agent without a type is one."""
    [output] = vars(RunResult)["__parameters__"]
    assert output.__default__ is Any


async def test_calls_share_their_messages() -> None:
    """A run of n turns keeps n messages, not n times n."""

    @function_tool
    async def again(number: int) -> int:
        """Count."""
        return number

    replies = [*(call("again", {"number": number}) for number in range(20)), "Done."]
    result = await Runner.run(Agent("A", model=ScriptedHandler(replies), tools=[again]), "Hi", max_turns=None)
    assert len({id(made.shown.growing) for made in result.calls}) == 1
    assert [len(made.messages) for made in result.calls] == list(range(1, 42, 2))
