"""Transfers: what is checked before, what the target is shown, and what is kept of those that fail."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from interlock import (
    Agent,
    Handoff,
    Message,
    RunConfig,
    RunContext,
    Runner,
    RunResult,
    function_tool,
    handoff,
)
from interlock.errors import (
    ConfigError,
    HandoffError,
    HandoffFilterError,
    LoopDetected,
    MaxHandoffsExceeded,
    ModelBehaviorError,
)
from interlock.filters import HandoffInputData, HandoffInputFilter, compose, keep_last, remove_all_tools
from interlock.messages import calls_of, text_of
from interlock.port import Request
from interlock.testing import ScriptedHandler, assert_valid, call, reply

pytestmark = pytest.mark.anyio

HI: Message = {"role": "user", "content": "Hi"}
TO_B = call("transfer_to_b", id="t")


class Ticket(BaseModel):
    reason: str
    urgent: bool = False


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


def agent(name: str, *replies: Any, **options: Any) -> Agent[Any]:
    """An agent whose model says these things, in order."""
    return Agent(name, f"You are {name}.", model=ScriptedHandler(replies, name=name), **options)


def requests(of: Agent[Any]) -> list[Request]:
    assert isinstance(of.model, ScriptedHandler)
    return of.model.requests


def shown(to: Agent[Any], turn: int = 0) -> list[Message]:
    """What an agent's model was shown, without the system prompt; valid in every case."""
    messages = list(requests(to)[turn].messages)
    assert_valid(messages)
    return [message for message in messages if message["role"] != "system"]


def pair(*replies: Any, first: Any = TO_B, **options: Any) -> tuple[Agent[Any], Agent[Any]]:
    """Two agents; A transfers to B at once, B answers."""
    b = agent("B", "Done.")
    return agent("A", first, *replies, handoffs=[handoff(b, **options)]), b


def statuses(result: RunResult[Any]) -> list[tuple[str, str, str]]:
    return [(record.source, record.target, record.status) for record in result.handoffs]


# -- what the target is shown --


async def test_the_target_sees_everything_with_the_transfer_answered() -> None:
    """(rows 1-12, 1-18, 2-14)"""
    a, b = pair()
    result = await Runner.run(a, "Hi")
    assert shown(b) == [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [TO_B]},
        {"role": "tool", "tool_call_id": "t", "content": '{"assistant": "B"}'},
    ]
    assert (result.final_output, result.last_agent) == ("Done.", b)


async def test_the_target_runs_with_its_own_prompt_and_tools() -> None:
    """Not with the source's (rows 2-14, 2-22)."""
    c = agent("C")
    b = agent("B", "Done.", tools=[look_up], handoffs=[c])
    await Runner.run(agent("A", call("transfer_to_b"), handoffs=[b]), "Hi")
    (request,) = requests(b)
    assert [message for message in request.messages if message["role"] == "system"] == [
        {"role": "system", "content": "You are B."}
    ]
    assert [spec["function"]["name"] for spec in request.tools] == ["look_up", "transfer_to_c"]


async def test_a_name_leads_to_the_agent_of_that_name() -> None:
    """(rows 1-28, 2-42)"""
    a = agent(
        "A", call("transfer_to_b"), "Bye.", handoffs=[agent("B", call("transfer_to_a"), handoffs=["A"])]
    )
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("Bye.", a)


async def test_a_name_may_be_of_an_agent_that_the_run_adds() -> None:
    """(row 2-42)"""
    b = agent("B", "Done.")
    a = agent("A", call("transfer_to_b"), handoffs=["B"])
    result = await Runner.run(a, "Hi", run_config=RunConfig(agents=[b]))
    assert result.last_agent is b
    with pytest.raises(ConfigError, match="'A' hands off to 'B', which is no agent of this run"):
        await Runner.run(a, "Hi")


async def test_the_same_agent_speaks_through_the_handler_it_hands_over_to() -> None:
    """A handler as target changes who answers, not which agent is active (decision R1)."""
    remote = ScriptedHandler([call("look_up", {"order": 7}), "From afar."], name="remote")
    a = agent("A", call("transfer_to_remote"), tools=[look_up], handoffs=[remote])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("From afar.", a)
    assert [spec["function"]["name"] for spec in remote.requests[0].tools] == [
        "look_up",
        "transfer_to_remote",
    ]
    assert remote.requests[0].messages[0] == {"role": "system", "content": "You are A."}
    assert [used.handler for used in result.calls] == ["A", "remote", "remote"]


async def test_the_next_run_starts_at_the_default_handler_again() -> None:
    """(decision R2)"""
    remote = ScriptedHandler(["From afar."], name="remote")
    a = agent("A", call("transfer_to_remote"), "At home.", handoffs=[remote])
    first = await Runner.run(a, "Hi")
    second = await Runner.run(a, [*first.to_input_list(), {"role": "user", "content": "And now?"}])
    assert second.final_output == "At home."


# -- input filters --


async def test_a_filter_that_changes_nothing_changes_nothing() -> None:
    """(row 1-12)"""
    a, b = pair(input_filter=lambda data: data)
    await Runner.run(a, "Hi")
    plain, other = pair()
    await Runner.run(plain, "Hi")
    assert shown(b) == shown(other)


async def _async_filter(data: HandoffInputData) -> HandoffInputData:
    return remove_all_tools(data)


class ObjectFilter:
    async def __call__(self, data: HandoffInputData) -> HandoffInputData:
        return remove_all_tools(data)


@pytest.mark.parametrize(
    "each",
    [
        remove_all_tools,
        _async_filter,
        ObjectFilter(),
        functools.partial(_async_filter),
        compose(remove_all_tools),
    ],
)
async def test_a_filter_may_be_any_function(each: HandoffInputFilter) -> None:
    """(rows 1-01, 1-12)"""
    a, b = pair(input_filter=each)
    result = await Runner.run(a, "Hi")
    assert shown(b) == [HI]
    assert len(result.items) == 4


async def test_a_filter_knows_who_hands_over_to_whom_and_why() -> None:
    """Openai-agents' filters cannot know (rows 1-03, 1-04, 1-24, pain 22)."""
    seen: list[HandoffInputData] = []

    def spy(data: HandoffInputData) -> HandoffInputData:
        seen.append(data)
        return data

    b = agent("B", "Done.")
    edge = handoff(b, input_filter=spy, input_type=Ticket, reason="bills")
    a = agent(
        "A",
        call("look_up", {"order": 7}, id="l"),
        call("transfer_to_b", {"reason": "late"}, id="t"),
        tools=[look_up],
        handoffs=[edge],
    )
    await Runner.run(a, "Hi", context={"user": "Ada"})
    (data,) = seen
    assert (data.source, data.target, data.tool_call_id, data.reason) == ("A", "B", "t", "bills")
    assert data.arguments == Ticket(reason="late")
    assert data.run_context is not None
    assert (data.run_context.context, data.run_context.agent) == ({"user": "Ada"}, "A")
    parts = [
        [item.id for item in part] for part in (data.input_history, data.pre_handoff_items, data.new_items)
    ]
    assert parts == [[0], [1, 2], [3, 4]]
    assert [item.kind for item in data.all_items] == ["input", "model", "tool", "model", "handoff"]


async def test_a_replacement_of_the_new_items_changes_the_view_and_not_the_transcript() -> None:
    """(row 1-06)"""
    a, b = pair(input_filter=lambda data: data.clone(input_items=()))
    result = await Runner.run(a, "Hi")
    assert shown(b) == [HI]
    assert [item.kind for item in result.new_items] == ["model", "handoff", "model"]


async def test_what_a_filter_hid_stays_hidden_from_later_agents() -> None:
    """Filters add up, also over a nesting handoff and back at the source (pain 22)."""
    c = agent("C", call("transfer_to_a", id="t3"), handoffs=["A"])
    b = agent("B", call("transfer_to_c", id="t2"), handoffs=[handoff(c, nest_handoff_history=True)])
    a = agent(
        "A",
        [call("look_up", {"order": 7}, id="l"), TO_B],
        "Bye.",
        tools=[look_up],
        handoffs=[handoff(b, input_filter=remove_all_tools)],
    )
    result = await Runner.run(a, "Hi")
    for seer, turn in ((b, 0), (c, 0), (a, 1)):
        assert "on its way" not in json.dumps(shown(seer, turn))
    assert "on its way" in json.dumps(result.messages)


async def test_a_filter_may_break_pairs_and_the_view_is_valid_all_the_same() -> None:
    """No orphan goes to a provider, each repair is told, the transcript stays whole (row 1-12, pain 1)."""
    a, b = pair(input_filter=lambda data: data.clone(new_items=data.new_items[1:]))
    result = await Runner.run(a, "Hi")
    assert [message["role"] for message in shown(b)] == ["user", "assistant", "tool"]
    assert result.repairs == ("added the missing call for orphan tool result 't' (message 1)",)
    assert len(result.items) == 4


async def test_a_filter_that_drops_an_answer_is_repaired_too() -> None:
    a, b = pair(input_filter=lambda data: data.clone(new_items=data.new_items[:1]))
    result = await Runner.run(a, "Hi")
    assert text_of(shown(b)[-1]) == "No result was recorded for this call."
    assert result.repairs == ("added a missing answer to tool call 't'",)


@pytest.mark.parametrize("inputs", ["Hi", [{"role": "system", "content": "Be kind."}, HI]])
async def test_a_filter_that_hides_everything_leaves_the_reason(inputs: Any) -> None:
    """No provider takes an empty request (rows 1-12, 2-15)."""
    a, b = pair(
        input_filter=lambda data: data.clone(
            input_history=[item for item in data.input_history if item.message["role"] == "system"],
            new_items=(),
        ),
        reason="Wants a refund.",
    )
    await Runner.run(a, inputs)
    assert shown(b) == [{"role": "user", "content": "Wants a refund."}]


async def test_a_filter_that_hides_everything_for_no_reason_leaves_something_to_answer() -> None:
    """(row 2-15)"""
    a, b = pair(input_filter=keep_last(0))
    result = await Runner.run(a, "Hi")
    assert shown(b) == [{"role": "user", "content": "Please continue."}]
    assert result.repairs == ("added a user message, because nothing was left to answer",)


def _raises(data: HandoffInputData) -> HandoffInputData:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("each", "says"),
    [
        (_raises, "raised on handoff 'A' -> 'B': KeyError: 'oops'"),
        (lambda data: {"new_items": []}, "must return a HandoffInputData, not dict"),
        (lambda data: None, "must return a HandoffInputData, not NoneType"),
        (lambda data: data.all_items, "must return a HandoffInputData, not tuple"),
        (lambda data: data.clone(new_items=[{"content": "x"}]), "has role None"),
        (lambda data: dataclasses.replace(data, new_items=(3,)), "must be a dict with a role"),
    ],
)
@pytest.mark.parametrize("where", ["edge", "run"])
async def test_a_broken_filter_stops_the_run_and_loses_nothing(each: Any, says: str, where: str) -> None:
    """The target never sees the unfiltered history; what happened is on the error (rows 1-13, 1-14)."""
    b = agent("B", "Done.")
    edge = handoff(b, input_filter=each) if where == "edge" else handoff(b)
    a = agent("A", [call("look_up", {"order": 7}, id="l"), TO_B], tools=[look_up], handoffs=[edge])
    config = RunConfig(handoff_input_filter=each if where == "run" else None)
    with pytest.raises(
        HandoffFilterError, match=f"input_filter of the {where.replace('edge', 'handoff')}"
    ) as caught:
        await Runner.run(a, "Hi", run_config=config)
    assert says in str(caught.value)
    assert requests(b) == []
    result = caught.value.result
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "tool"]
    assert_valid(result.messages)
    assert statuses(result) == [("A", "B", "failed")]
    assert says in result.handoffs[0].error
    assert result.last_agent is a
    assert result.usage.requests == 1


async def test_the_cause_of_a_broken_filter_is_chained() -> None:
    a, _ = pair(input_filter=_raises)
    with pytest.raises(HandoffFilterError) as caught:
        await Runner.run(a, "Hi")
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_broken_filter_is_noted_on_the_transfer_that_it_broke() -> None:
    """Not on the one beside it that was not taken."""
    b, c = agent("B"), agent("C")
    a = agent("A", [TO_B, call("transfer_to_c")], handoffs=[handoff(b, input_filter=_raises), c])
    with pytest.raises(HandoffFilterError) as caught:
        await Runner.run(a, "Hi")
    assert statuses(caught.value.result) == [("A", "B", "failed"), ("A", "C", "not_taken")]
    assert "KeyError" in caught.value.result.handoffs[0].error


# -- which shaping applies --


def _marking(text: str) -> HandoffInputFilter:
    return lambda data: data.clone(new_items=[{"role": "user", "content": text}])


def _what_applied(messages: list[Message]) -> str:
    last = text_of(messages[-1])
    if last in ("edge", "run"):
        return last
    if "<CONVERSATION HISTORY>" in text_of(messages[0]):
        return "nested"
    return "last" if messages == [HI] else "all"


@pytest.mark.parametrize(
    ("edge", "run", "applied"),
    [
        ({}, {}, "all"),
        ({"input_filter": _marking("edge")}, {}, "edge"),
        ({}, {"handoff_input_filter": _marking("run")}, "run"),
        ({"input_filter": _marking("edge")}, {"handoff_input_filter": _marking("run")}, "edge"),
        ({"input_filter": _marking("edge"), "nest_handoff_history": True}, {}, "edge"),
        ({"nest_handoff_history": True}, {"handoff_input_filter": _marking("run")}, "run"),
        ({}, {"handoff_input_filter": _marking("run"), "nest_handoff_history": True}, "run"),
        ({"preserve_context": False}, {}, "last"),
        ({"preserve_context": False}, {"nest_handoff_history": True}, "last"),
        ({"preserve_context": False}, {"handoff_input_filter": _marking("run")}, "last"),
        ({"nest_handoff_history": None}, {"nest_handoff_history": False}, "all"),
        ({"nest_handoff_history": None}, {"nest_handoff_history": True}, "nested"),
        ({"nest_handoff_history": True}, {"nest_handoff_history": False}, "nested"),
        ({"nest_handoff_history": True}, {"nest_handoff_history": True}, "nested"),
        ({"nest_handoff_history": False}, {"nest_handoff_history": False}, "all"),
        ({"nest_handoff_history": False}, {"nest_handoff_history": True}, "all"),
    ],
)
async def test_the_edge_comes_before_the_run_and_filters_before_nesting(
    edge: dict[str, Any], run: dict[str, Any], applied: str
) -> None:
    """(rows 1-15, 1-33, decision R5)"""
    a, b = pair(**edge)
    await Runner.run(a, "Hi", run_config=RunConfig(**run))
    assert _what_applied(shown(b)) == applied


async def test_without_context_the_target_sees_its_prompt_and_the_last_user_message() -> None:
    """(row 2-15)"""
    a, b = pair(preserve_context=False)
    before: list[Message] = [
        HI,
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Refund!"},
    ]
    result = await Runner.run(a, before)
    assert requests(b)[0].messages == (
        {"role": "system", "content": "You are B."},
        {"role": "user", "content": "Refund!"},
    )
    assert len(result.items) == 6


async def test_without_context_and_without_a_user_message_the_reason_is_shown() -> None:
    """(row 2-15)"""
    a, b = pair(preserve_context=False, reason="Wants a refund.")
    await Runner.run(a, [{"role": "assistant", "content": "Hello."}])
    assert shown(b) == [{"role": "user", "content": "Wants a refund."}]


async def test_a_nested_view_ends_on_the_users_message() -> None:
    """(row 1-30, pain 7)"""
    a, b = pair(nest_handoff_history=True)
    await Runner.run(a, "Hi")
    summary, newest = shown(b)
    assert (summary["role"], newest) == ("assistant", HI)
    assert "transfer_to_b" in text_of(summary)


async def test_the_run_may_bring_its_own_mapper() -> None:
    """Sync or async (rows 1-02, 1-33)."""

    async def mapper(messages: list[Message]) -> list[Message]:
        return [{"role": "user", "content": f"{len(messages)} messages so far"}]

    a, b = pair()
    config = RunConfig(nest_handoff_history=True, handoff_history_mapper=mapper)
    await Runner.run(a, "Hi", run_config=config)
    assert shown(b) == [{"role": "user", "content": "3 messages so far"}]


def _mapper_raises(messages: list[Message]) -> list[Message]:
    raise KeyError("oops")


@pytest.mark.parametrize(
    ("mapper", "says"),
    [
        (_mapper_raises, "KeyError: 'oops'"),
        (lambda messages: None, "not NoneType"),
        (lambda messages: {"role": "user"}, "not dict"),
        (lambda messages: [5], "not int"),
        (lambda messages: [{"content": "x"}], "has role None"),
    ],
)
async def test_a_broken_mapper_stops_the_run_and_loses_nothing(mapper: Any, says: str) -> None:
    """(row 1-14)"""
    a, b = pair(nest_handoff_history=True)
    with pytest.raises(HandoffFilterError, match="nest_handoff_history") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(handoff_history_mapper=mapper))
    assert says in str(caught.value)
    assert requests(b) == []
    assert len(caught.value.result.items) == 3


async def test_a_mapper_that_shows_nothing_leaves_something_to_answer() -> None:
    a, b = pair(nest_handoff_history=True)
    await Runner.run(a, "Hi", run_config=RunConfig(handoff_history_mapper=lambda messages: []))
    assert shown(b) == [{"role": "user", "content": "Please continue."}]


# -- callbacks and arguments --


async def test_on_handoff_is_called_with_the_context() -> None:
    """Sync or async, before the target is asked (row 1-22)."""
    seen: list[tuple[str, int]] = []

    def note(context: RunContext[Any]) -> None:
        seen.append((context.agent, context.turn))

    async def note_slowly(context: RunContext[Any]) -> None:
        note(context)

    for each in (note, note_slowly):
        a, _ = pair(on_handoff=each)
        await Runner.run(a, "Hi")
    assert seen == [("A", 1), ("A", 1)]


async def test_on_handoff_is_given_the_parsed_input() -> None:
    """(row 1-23)"""
    seen: list[Any] = []

    async def note(context: RunContext[Any], ticket: Ticket) -> None:
        seen.append(ticket)

    a, _ = pair(
        first=call("transfer_to_b", {"reason": "late", "urgent": True}), on_handoff=note, input_type=Ticket
    )
    result = await Runner.run(a, "Hi")
    assert seen == [Ticket(reason="late", urgent=True)]
    assert result.handoffs[0].input == Ticket(reason="late", urgent=True)


async def test_a_callback_with_a_spare_parameter_is_not_given_what_nobody_declared() -> None:
    """(row 1-22)"""
    seen: list[Any] = []

    def note(context: RunContext[Any], extra: Any = "nothing") -> None:
        seen.append(extra)

    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), on_handoff=note)
    await Runner.run(a, "Hi")
    assert seen == ["nothing"]


async def test_an_input_needs_no_callback_to_be_kept() -> None:
    """(row 1-24)"""
    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), input_type=Ticket)
    result = await Runner.run(a, "Hi")
    assert result.handoffs[0].input == Ticket(reason="late")


async def test_an_input_that_is_no_object_is_unwrapped() -> None:
    """(row 1-23)"""
    a, _ = pair(first=call("transfer_to_b", {"response": ["x"]}), input_type=list[str])
    result = await Runner.run(a, "Hi")
    assert result.handoffs[0].input == ["x"]


@pytest.mark.parametrize("arguments", ["", "{}", "null", " ", '{"anything": 1}', "{ }\n"])
async def test_without_input_nothing_need_be_passed(arguments: str) -> None:
    """Providers differ in how they say nothing (row 1-25)."""
    a, b = pair(first=call("transfer_to_b", arguments, id="t"))
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b


async def test_arguments_that_are_none_are_nothing() -> None:
    """(row 1-25)"""
    first: Any = {"id": "t", "type": "function", "function": {"name": "transfer_to_b", "arguments": None}}
    a, b = pair(first=reply(calls=[first]))
    assert (await Runner.run(a, "Hi")).last_agent is b


JUNK = '{"reason": "' + "x" * 1_000_000
BROKEN = ['{"reason": ', '{"reason": "late",}', "[]", "5", '"late"', "true", "not json", JUNK, "[" * 100_000]


@pytest.mark.parametrize("options", [{}, {"ask_reason": True}, {"input_type": Ticket}])
@pytest.mark.parametrize("arguments", BROKEN, ids=range(len(BROKEN)))
async def test_broken_arguments_are_answered_and_the_model_may_try_again(
    arguments: str, options: dict[str, Any]
) -> None:
    """The run used to be lost (rows 1-26, 2-12, pain 12)."""
    called: list[Any] = []
    b = agent("B", "Done.")
    edge = handoff(b, on_handoff=lambda *args: called.append(args), **options)
    good = {"reason": "late"} if options else {}
    a = agent(
        "A", call("transfer_to_b", arguments, id="t1"), call("transfer_to_b", good, id="t2"), handoffs=[edge]
    )
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b
    assert len(called) == 1
    answer = text_of(shown(a, 1)[-1])
    assert answer.startswith("The transfer to 'B' was not made: ")
    assert len(answer) <= 800
    assert statuses(result) == [("A", "B", "failed"), ("A", "B", "taken")]
    assert [(problem.kind, problem.call_id) for problem in result.errors] == [("handoff", "t1")]
    assert result.usage.requests == 3


@pytest.mark.parametrize(
    "arguments", ["", "{}", "null", '{"reason": 5}', '{"reason": null}', '{"why": "late"}']
)
async def test_what_does_not_fit_the_input_type_is_refused_and_nothing_is_guessed(arguments: str) -> None:
    """No coercion, no ``{}`` in place of what is missing (rows 1-23, 1-25)."""
    a, b = pair("I cannot.", first=call("transfer_to_b", arguments), input_type=Ticket)
    result = await Runner.run(a, "Hi")
    assert requests(b) == []
    assert "reason" in text_of(shown(a, 1)[-1])
    assert statuses(result) == [("A", "B", "failed")]


async def test_broken_arguments_can_end_the_run() -> None:
    """(row 1-26)"""
    a, _ = pair(first=call("transfer_to_b", "{"))
    with pytest.raises(HandoffError, match="Agent 'A', turn 1: The transfer to 'B' was not made") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(raise_on=["failed_handoff"]))
    assert_valid(caught.value.result.messages)
    assert statuses(caught.value.result) == [("A", "B", "failed")]


async def test_a_model_that_only_sends_broken_arguments_is_stopped() -> None:
    """(pain 4)"""
    a, _ = pair(*[call("transfer_to_b", "{") for _ in range(3)], first=call("transfer_to_b", "{"))
    with pytest.raises(ModelBehaviorError, match="nothing but mistakes in 3 turns in a row") as caught:
        await Runner.run(a, "Hi")
    assert_valid(caught.value.result.messages)
    assert len(requests(a)) == 3


async def test_a_callback_that_raises_keeps_the_source_in_charge() -> None:
    """The transfer is not made, the exception is not lost (row 1-27)."""

    def broken(context: RunContext[Any]) -> None:
        raise RuntimeError("ticket system is down")

    a, b = pair("I help you myself.", on_handoff=broken)
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("I help you myself.", a)
    assert requests(b) == []
    assert "RuntimeError: ticket system is down" in text_of(shown(a, 1)[-1])
    (problem,) = result.errors
    assert isinstance(problem.error, RuntimeError)
    (record,) = result.handoffs
    assert (record.status, record.error) == ("failed", "RuntimeError: ticket system is down")


async def test_a_callback_that_raises_can_end_the_run() -> None:
    """(row 1-27)"""

    def broken(context: RunContext[Any]) -> None:
        raise RuntimeError("down")

    a, _ = pair(on_handoff=broken)
    with pytest.raises(HandoffError, match="RuntimeError: down") as caught:
        await Runner.run(a, "Hi", run_config=RunConfig(raise_on=["failed_handoff"]))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"reason": "late"}, "late"), ({}, "No reason provided"), ({"reason": ""}, "No reason provided")],
)
async def test_a_reason_is_asked_for_but_not_demanded(arguments: dict[str, Any], reason: str) -> None:
    """(row 2-05)"""
    a, b = pair(first=call("transfer_to_b", arguments), ask_reason=True)
    result = await Runner.run(a, "Hi")
    assert result.last_agent is b
    assert result.handoffs[0].reason == reason


async def test_a_declared_reason_stands_where_the_model_gives_none() -> None:
    a, _ = pair(ask_reason=True, reason="bills")
    assert (await Runner.run(a, "Hi")).handoffs[0].reason == "bills"


async def test_the_reason_that_the_model_gives_goes_to_the_callback() -> None:
    seen: list[Any] = []

    def note(context: RunContext[Any], reason: str | None) -> None:
        seen.append(reason)

    a, _ = pair(first=call("transfer_to_b", {"reason": "late"}), ask_reason=True, on_handoff=note)
    await Runner.run(a, "Hi")
    assert seen == ["late"]


# -- targets decided in the moment --


def deciding(target: Any, **options: Any) -> Handoff:
    return Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: target, **options)


async def test_a_function_may_decide_where_to_go() -> None:
    """(row 1-10)"""
    seen: list[str] = []
    c = agent("C", "From C.")

    async def decide(context: RunContext[Any], arguments: str) -> Agent[Any]:
        seen.append(arguments)
        return c

    a = agent(
        "A",
        call("transfer_to_b", '{"x": 1}', id="t"),
        handoffs=[Handoff(target=agent("B"), on_invoke_handoff=decide)],
    )
    result = await Runner.run(a, "Hi")
    assert result.last_agent is c
    assert statuses(result) == [("A", "C", "taken")]
    assert seen == ['{"x": 1}']
    assert text_of(shown(c)[-1]) == '{"assistant": "C"}'


async def test_a_function_may_decide_for_a_handler_or_a_name() -> None:
    """(row 1-10)"""
    remote = ScriptedHandler(["From afar."], name="remote")
    a = agent("A", call("transfer_to_b"), handoffs=[deciding(remote)])
    assert (await Runner.run(a, "Hi")).final_output == "From afar."
    c = agent("C", "From C.")
    a = agent("A", call("transfer_to_b"), handoffs=[deciding("C")])
    assert (await Runner.run(a, "Hi", run_config=RunConfig(agents=[c]))).last_agent is c


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (5, "on_invoke_handoff must return an Agent or a Handler, not int"),
        (None, "on_invoke_handoff must return an Agent or a Handler, not NoneType"),
        ("nobody", "'nobody', which is no agent of this run"),
    ],
)
async def test_a_function_that_decides_for_nobody_is_answered(target: Any, says: str) -> None:
    """(row 1-10)"""
    a = agent("A", call("transfer_to_b"), "I stay.", handoffs=[deciding(target)])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, statuses(result)) == ("I stay.", [("A", "B", "failed")])
    assert says in text_of(shown(a, 1)[-1])


async def test_nobody_is_called_back_about_a_transfer_that_is_not_made() -> None:
    """The callback books, mails or logs: it comes last, when nothing else can fail (row 1-27)."""
    called: list[Any] = []
    edge = deciding(None, on_handoff=called.append)
    await Runner.run(agent("A", call("transfer_to_b"), "I stay.", handoffs=[edge]), "Hi")
    assert called == []


async def test_going_to_and_fro_between_decided_targets_is_noticed() -> None:
    """The loop is judged by where it leads, not by what was declared (pain 10)."""
    b = agent("B", *[call("transfer_to_a")] * 5, handoffs=["A"])
    edge = Handoff(agent_name="somebody", on_invoke_handoff=lambda context, arguments: b)
    a = agent("A", *[call("transfer_to_somebody")] * 5, handoffs=[edge])
    with pytest.raises(LoopDetected) as caught:
        await Runner.run(a, "Hi")
    assert [record.status for record in caught.value.result.handoffs] == [
        "taken",
        "taken",
        "failed",
        "failed",
    ]


async def test_nobody_can_decide_to_go_nowhere() -> None:
    """(row 1-49)"""
    edges: list[Agent[Any]] = []
    a = agent(
        "A",
        call("transfer_to_b"),
        "I stay.",
        handoffs=[Handoff(agent_name="B", on_invoke_handoff=lambda context, arguments: edges[0])],
    )
    edges.append(a)
    await Runner.run(a, "Hi")
    assert "cannot hand off to itself" in text_of(shown(a, 1)[-1])


async def test_a_target_without_a_model_leaves_the_source_in_charge() -> None:
    """Whatever fails about a transfer becomes the answer, before anything changes (pain 26)."""
    a = agent("A", call("transfer_to_b"), "I stay.", handoffs=[deciding(Agent("C"))])
    result = await Runner.run(a, "Hi")
    assert (result.final_output, result.last_agent) == ("I stay.", a)
    assert "has no model" in text_of(shown(a, 1)[-1])
    assert statuses(result)[0][2] == "failed"


class Welcome(Handoff):
    def get_transfer_message(self, agent: Any) -> str:
        return f"You are talking to {agent.name} now."


class BrokenWelcome(Handoff):
    def get_transfer_message(self, agent: Any) -> str:
        raise KeyError("welcome")


async def test_a_subclass_may_word_the_answer() -> None:
    """(row 1-18)"""
    b = agent("B", "Done.")
    await Runner.run(agent("A", TO_B, handoffs=[Welcome(target=b)]), "Hi")
    assert text_of(shown(b)[-1]) == "You are talking to B now."


async def test_a_subclass_that_cannot_word_the_answer_does_not_lose_the_call() -> None:
    a = agent("A", TO_B, "I stay.", handoffs=[BrokenWelcome(target=agent("B"))])
    result = await Runner.run(a, "Hi")
    assert result.final_output == "I stay."
    assert "KeyError" in text_of(shown(a, 1)[-1])


# -- limits --


def circle(count: int, **options: Any) -> Agent[Any]:
    """A and B, who send the user to and fro and would do so for ever."""
    b = agent("B", *[call("transfer_to_a")] * count, handoffs=["A"])
    return agent("A", *[call("transfer_to_b")] * count, handoffs=[b], **options)


async def test_ping_pong_is_stopped_long_before_the_last_turn() -> None:
    """First told, then stopped, with the partial result (row 2-17, pain 10)."""
    a = circle(9)
    with pytest.raises(LoopDetected, match="asked again after it was told") as caught:
        await Runner.run(a, "Hi", max_turns=100)
    result = caught.value.result
    assert [record.status for record in result.handoffs] == ["taken", "taken", "failed", "failed"]
    assert "nothing new has come up" in text_of(shown(a, 2)[-1])
    assert_valid(result.messages)


async def test_who_listens_to_the_warning_goes_on() -> None:
    """(pain 10)"""
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    a = agent("A", call("transfer_to_b"), call("transfer_to_b"), "I answer.", handoffs=[b])
    assert (await Runner.run(a, "Hi")).final_output == "I answer."


async def test_going_there_and_back_and_on_is_no_loop() -> None:
    """A, B, A, C is a legitimate path (row 2-17, pain 10)."""
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    c = agent("C", "Done.")
    a = agent("A", call("transfer_to_b"), call("transfer_to_c"), handoffs=[b, c])
    result = await Runner.run(a, "Hi")
    assert statuses(result) == [("A", "B", "taken"), ("B", "A", "taken"), ("A", "C", "taken")]


async def test_a_new_tool_result_makes_the_same_way_possible_again() -> None:
    """(pain 10)"""
    b = agent("B", call("transfer_to_a"), "Done.", handoffs=["A"])
    a = agent(
        "A",
        call("transfer_to_b"),
        call("look_up", {"order": 7}),
        call("transfer_to_b"),
        tools=[look_up],
        handoffs=[b],
    )
    assert (await Runner.run(a, "Hi")).last_agent is b


@pytest.mark.parametrize("limit", [0, 1, 5])
async def test_so_many_transfers_and_no_more(limit: int) -> None:
    """One more is refused, asking again ends the run (row 2-17)."""
    a = circle(9)
    config = RunConfig(max_handoffs=limit, detect_loops=False)
    with pytest.raises(MaxHandoffsExceeded, match=f"limit of {limit} transfers is reached") as caught:
        await Runner.run(a, "Hi", max_turns=100, run_config=config)
    taken = [record.status for record in caught.value.result.handoffs]
    assert taken == ["taken"] * limit + ["failed", "failed"]
    assert_valid(caught.value.result.messages)


async def test_without_a_limit_only_the_turns_are_counted() -> None:
    a = circle(20)
    config = RunConfig(max_handoffs=None, detect_loops=False, on_limit="return")
    result = await Runner.run(a, "Hi", max_turns=25, run_config=config)
    assert [record.status for record in result.handoffs] == ["taken"] * 25
    assert result.stop_reason == "limit"


async def test_a_limit_can_be_a_result() -> None:
    """(pain 17)"""
    result = await Runner.run(circle(9), "Hi", run_config=RunConfig(max_handoffs=1, on_limit="return"))
    assert result.stop_reason == "limit"
    assert_valid(result.to_input_list())


# -- records --


async def test_all_hops_are_on_the_result_in_order() -> None:
    """(row 2-23)"""
    c = agent("C", "Done.")
    b = agent("B", call("transfer_to_c", id="t2"), handoffs=[handoff(c, reason="details")])
    a = agent("A", call("transfer_to_b", id="t1"), handoffs=[handoff(b, tool_name_override="transfer_to_b")])
    result = await Runner.run(a, "Hi", run_config=RunConfig(run_id="r"))
    assert [
        (
            record.id,
            record.source,
            record.target,
            record.tool_name,
            record.call_id,
            record.turn,
            record.reason,
        )
        for record in result.handoffs
    ] == [
        ("h-r-1", "A", "B", "transfer_to_b", "t1", 1, None),
        ("h-r-2", "B", "C", "transfer_to_c", "t2", 2, "details"),
    ]


async def test_what_a_run_leaves_is_input_for_the_next() -> None:
    """(rows 1-45, 2-21)"""
    a, b = pair("Back at the desk.")
    first = await Runner.run(a, "Hi")
    more: list[Message] = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
    second = await Runner.run(a, more)
    assert second.final_output == "Back at the desk."
    assert shown(a, 1) == more
    assert first.last_agent is b


@pytest.mark.parametrize("call_id", ["", "call_1_0", "same"])
async def test_a_second_run_does_not_use_a_call_id_of_the_first_again(call_id: str) -> None:
    """Some providers send no ids, others begin anew in every request (row 1-47, pain 9)."""
    asks = reply(calls=[call("look_up", {"order": 7}, id=call_id)])
    model = ScriptedHandler([_as_sent(asks), "One.", _as_sent(asks), "Two."])
    a = Agent("A", model=model, tools=[look_up])
    first = await Runner.run(a, "Hi")
    second = await Runner.run(a, [*first.to_input_list(), HI])
    for request in model.requests:
        assert_valid(request.messages)
    ids = [made["id"] for message in second.messages for made in calls_of(message)]
    assert len(set(ids)) == 2
    assert second.repairs == ()


def _as_sent(scripted: Any) -> Callable[[Request], Any]:
    """The reply as a provider sent it: `ScriptedHandler` would fill in ids that are new."""
    from interlock.events import MessageDone

    return lambda request: MessageDone(message=scripted.message)


async def test_an_answer_without_its_call_in_the_input_is_not_given_to_a_later_call() -> None:
    model = ScriptedHandler([call("look_up", {"order": 7}, id="x"), "Done."])
    a = Agent("A", model=model, tools=[look_up])
    await Runner.run(a, [HI, {"role": "tool", "tool_call_id": "x", "content": "old"}])
    answers = [text_of(message) for message in model.requests[1].messages if message["role"] == "tool"]
    assert answers == ["old", "order 7 is on its way"]


async def test_a_transfer_among_calls_without_ids_in_the_input_is_made() -> None:
    """Leaving out what was not taken must not trip over what others recorded."""
    bare: Any = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "f", "arguments": ""}}],
    }
    b, c = agent("B", "Done."), agent("C")
    a = agent("A", [TO_B, call("transfer_to_c")], handoffs=[b, c])
    assert (await Runner.run(a, [HI, bare])).last_agent is b
    assert "transfer_to_c" not in json.dumps(shown(b))
