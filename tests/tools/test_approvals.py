"""Calls that wait for approval: nothing is done before the decision, and only the approved call after it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payments import PAY, WATCHED, Till, run
from scripted_agents import agent, answers_of, requests, shown
from thoroughness import examples

from routelock import (
    Agent,
    Message,
    RunConfig,
    Runner,
    RunState,
    Tool,
    ToolContext,
    function_tool,
    handoff,
    tool,
)
from routelock.errors import CallbackError, ConfigError, RunTimeout, ToolError
from routelock.run.events import ApprovalRequested, ToolCalled
from routelock.sessions import InMemorySessions, Session
from routelock.testing import assert_valid, call
from routelock.tools.approvals import Interruption

pytestmark = pytest.mark.anyio


def named(name: str) -> Tool:
    return function_tool(lambda: "here", name_override=name)


class Order(pydantic.BaseModel):
    """What is to be paid."""

    amount: int
    note: str = ""


def clerk(till: Till, *replies: Any, **options: Any) -> Agent[Any]:
    return agent("clerk", *replies, tools=[till.tool(**options)])


# -- what waits --


@WATCHED
async def test_run_ends_before_the_call_is_carried_out(watched: bool) -> None:
    till = Till()
    result = await run(clerk(till, PAY), "Pay 5.", watched)
    one = Interruption(
        agent="clerk", name="pay", arguments='{"amount": 5}', call_id="p", run_id=result.context.run_id
    )
    assert (result.stop_reason, result.interruptions) == ("requires_action", (one,))
    assert (till.paid, result.final_output, result.pending) == ([], None, ())


async def test_stream_has_the_waiting_call_and_no_tool_started() -> None:
    stream = Runner.run_streamed(clerk(Till(), PAY), "Pay 5.")
    events = [event async for event in stream]
    asked = ApprovalRequested(agent="clerk", call_id="p", name="pay", arguments='{"amount": 5}')
    assert asked in events
    assert not any(isinstance(event, ToolCalled) for event in events)


async def test_other_calls_of_the_reply_are_carried_out() -> None:
    till, seen = Till(), list[int]()

    @function_tool
    def look(order: int) -> str:
        """Look."""
        seen.append(order)
        return "here"

    asks = agent(
        "A",
        [call("look", {"order": 1}, id="l"), PAY],
        tools=[look, till.tool()],
    )
    result = await Runner.run(asks, "Hi")
    assert (seen, till.paid) == ([1], [])
    assert answers_of(result) == ["here"]


@WATCHED
@pytest.mark.parametrize("approved", [True, False])
async def test_result_of_an_approved_call_follows_the_others(watched: bool, approved: bool) -> None:
    """The transcript only grows: a later result has a later place, for the model and in a session."""
    session = Session("s", InMemorySessions())
    asks = agent("A", [PAY, call("look", id="l")], "Done.", "Yes?", tools=[named("look"), Till().tool()])
    first = await run(asks, "Hi", watched, session=session)
    state, one = first.state(), first.interruptions[0]
    said = state.approve(one) if approved else state.reject(one)
    second = await run(asks, said, watched, session=session)
    third = await run(asks, "And now?", watched, session=session)
    assert [_answered(shown(asks, turn)) for turn in (1, 2)] == [["l", "p"]] * 2
    assert [_answered(each) for each in (second.messages, second.to_input_list())] == [["l", "p"]] * 2
    assert _answered((await session.load()).messages) == ["l", "p"]
    assert third.repairs == ()


def _answered(messages: Sequence[Message]) -> list[str]:
    return [str(message.get("tool_call_id")) for message in messages if message["role"] == "tool"]


@pytest.mark.parametrize(("amount", "waits"), [(5, False), (500, True)])
async def test_a_function_decides_by_the_arguments(amount: int, waits: bool) -> None:
    till = Till()

    async def much(context: ToolContext[Any], arguments: dict[str, Any]) -> bool:
        await anyio.lowlevel.checkpoint()
        assert (context.tool_name, context.tool_call_id) == ("pay", "p")
        return arguments["amount"] > 100

    result = await Runner.run(
        clerk(till, call("pay", {"amount": amount}, id="p"), "Ok.", needs_approval=much), "Hi"
    )
    assert bool(result.interruptions) is waits
    assert till.paid == ([] if waits else [amount])


async def test_needs_approval_that_raises_ends_the_run() -> None:
    till = Till()

    def broken(context: Any, arguments: Any) -> bool:
        raise LookupError("no policy")

    with pytest.raises(CallbackError, match="needs_approval of 'pay' raised LookupError: no policy"):
        await Runner.run(clerk(till, PAY, needs_approval=broken), "Hi")
    assert till.paid == []


@pytest.mark.parametrize("arguments", ['{"amount": "much"}', "{", "[]", '{"other": 1}'])
async def test_invalid_call_needs_no_approval(arguments: str) -> None:
    bad: Any = {"id": "p", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    asks = clerk(Till(), {"role": "assistant", "content": None, "tool_calls": [bad]}, "Sorry.")
    result = await Runner.run(asks, "Hi")
    assert (result.interruptions, result.final_output) == ((), "Sorry.")


@pytest.mark.pairwise
@pytest.mark.parametrize("needs", [True, lambda context, arguments: True], ids=["always", "by a function"])
@pytest.mark.parametrize("arguments", ["", "null", "{}"])
async def test_odd_arguments_do_not_get_round_the_approval(arguments: str, needs: Any) -> None:
    """A tool without parameters and a plain handoff treat them as no arguments."""
    done: list[str] = []

    @tool(needs_approval=needs)
    def wipe() -> str:
        """Wipe."""
        done.append("wiped")
        return "ok"

    a = agent("A", call("wipe", arguments, id="w"), tools=[wipe])
    assert [one.name for one in (await Runner.run(a, "Hi")).interruptions] == ["wipe"]
    b = agent("B", "Done.")
    a = agent("A", call("transfer_to_b", arguments, id="t"), handoffs=[handoff(b, needs_approval=needs)])
    assert [one.name for one in (await Runner.run(a, "Hi")).interruptions] == ["transfer_to_b"]
    assert done == []


@pytest.mark.parametrize("wrong", ["yes", 1, None])
async def test_needs_approval_is_a_bool_or_a_function(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="needs_approval must be a bool or a function"):
        Till().tool(needs_approval=wrong)
    with pytest.raises(ConfigError, match="needs_approval must be a bool or a function"):
        handoff(agent("B"), needs_approval=wrong)


# -- what is said --


@WATCHED
async def test_approved_call_is_made_once(watched: bool) -> None:
    till = Till()
    asks = clerk(till, PAY, "Paid.")
    first = await run(asks, "Pay 5.", watched)
    second = await run(asks, first.state().approve(first.interruptions[0]), watched)
    assert (till.paid, second.final_output, second.stop_reason) == ([5], "Paid.", "done")
    assert answers_of(second) == ["paid 5"]
    assert second.usage.requests == 2


@WATCHED
async def test_rejected_call_is_not_made_and_the_model_gets_the_reason(watched: bool) -> None:
    till = Till()
    asks = clerk(till, PAY, "All right.")
    first = await run(asks, "Pay 5.", watched)
    state = first.state().reject(first.interruptions[0], message="Too much.")
    second = await run(asks, state, watched)
    assert (till.paid, second.final_output) == ([], "All right.")
    assert answers_of(second) == ["This call was not approved: Too much."]
    assert second.errors == (), "a decision is not an error"


async def test_undecided_call_waits_again_without_a_model_call() -> None:
    till = Till()
    asks = clerk(till, PAY, "Paid.")
    first = await run(asks, "Pay 5.")
    second = await run(asks, first.state())
    assert second.interruptions == first.interruptions
    assert (till.paid, len(requests(asks))) == ([], 1)


@WATCHED
@pytest.mark.parametrize("nested", [False, True])
async def test_undecided_call_waits_even_if_approval_is_no_longer_needed(watched: bool, nested: bool) -> None:
    till = Till()
    asks = clerk(till, PAY, "Paid.")
    asks = (
        agent("boss", call("clerk", {"input": "Pay."}), "Done.", tools=[asks.as_tool()]) if nested else asks
    )
    first = await run(asks, "Pay 5.", watched)
    free = clerk(till, "Paid.", needs_approval=False)
    free = agent("boss", "Done.", tools=[free.as_tool()]) if nested else free
    second = await run(free, first.state(), watched)
    assert (second.stop_reason, second.interruptions) == ("requires_action", first.interruptions)
    assert (till.paid, requests(free)) == ([], [])
    third = await run(free, second.state().approve(second.interruptions[0]), watched)
    assert (till.paid, third.final_output) == ([5], "Done." if nested else "Paid.")


@WATCHED
async def test_waiting_handoff_still_needs_its_decision(
    watched: bool,
) -> None:
    target = agent("B", "Hello.")
    first = await run(
        agent("A", call("transfer_to_b"), handoffs=[handoff(target, needs_approval=True)]), "Hi"
    )
    free = agent("A", handoffs=[handoff(target)])
    second = await run(free, first.state(), watched)
    assert (second.interruptions, requests(target)) == (first.interruptions, [])
    third = await run(free, second.state().approve(second.interruptions[0]), watched)
    assert third.final_output == "Hello."


@WATCHED
@pytest.mark.parametrize("always", [False, True])
async def test_rejection_stands_even_if_approval_is_no_longer_needed(watched: bool, always: bool) -> None:
    till, target = Till(), agent("B", "Hello.")
    first = await run(clerk(till, PAY), "Pay 5.", watched)
    free = clerk(till, "All right.", needs_approval=False)
    second = await run(free, first.state().reject(first.interruptions[0], always=always), watched)
    assert (till.paid, second.final_output) == ([], "All right.")
    waits = agent("A", call("transfer_to_b"), handoffs=[handoff(target, needs_approval=True)])
    first = await run(waits, "Hi", watched)
    free = agent("A", "I stay.", handoffs=[handoff(target)])
    second = await run(free, first.state().reject(first.interruptions[0], always=always), watched)
    assert (second.final_output, requests(target)) == ("I stay.", [])


OF_THE_CALLER: Any = {"type": "function", "function": {"name": "pay"}}


@pytest.mark.pairwise
@WATCHED
@pytest.mark.parametrize("by_now", ["the caller's", "gone", "other arguments"])
async def test_no_is_no_whatever_the_tool_is_by_now(watched: bool, by_now: str) -> None:
    first = await run(clerk(Till(), PAY), "Pay 5.", watched)
    tools = [named("pay")] if by_now == "other arguments" else []
    changed = agent("clerk", "All right.", tools=tools)
    config = RunConfig(
        external_tools=[OF_THE_CALLER] if by_now == "the caller's" else [], raise_on=["unknown_tool"]
    )
    state = first.state().reject(first.interruptions[0], message="Too much.")
    second = await run(changed, state, watched, run_config=config)
    assert answers_of(second) == ["This call was not approved: Too much."]
    assert (second.final_output, second.pending, second.errors) == ("All right.", (), ())


async def test_two_calls_can_be_decided_one_after_the_other() -> None:
    till = Till()
    asks = clerk(till, [PAY, call("pay", {"amount": 6}, id="q")], "Done.")
    first = await run(asks, "Hi")
    second = await run(asks, first.state().approve(first.interruptions[1]))
    assert (till.paid, [one.call_id for one in second.interruptions]) == ([6], ["p"])
    third = await run(asks, second.state().reject(second.interruptions[0]))
    assert (till.paid, third.final_output) == ([6], "Done.")
    assert_valid(shown(asks, 1))


@pytest.mark.parametrize("approved", [True, False])
async def test_decision_may_apply_to_the_rest_of_the_run(approved: bool) -> None:
    till = Till()
    more = call("pay", {"amount": 6}, id="q")
    asks = clerk(till, [PAY, call("pay", {"amount": 7}, id="r")], more, "Done.")
    first = await run(asks, "Hi")
    state, one = first.state(), first.interruptions[0]
    state = state.approve(one, always=True) if approved else state.reject(one, always=True)
    assert state.interruptions == (), "it holds for the other one as well"
    second = await run(asks, state)
    assert second.final_output == "Done."
    assert (sorted(till.paid[:2]), till.paid[2:]) == (([5, 7], [6]) if approved else ([], []))


async def test_decision_about_a_tool_applies_to_one_agent() -> None:
    till = Till()
    b = agent("B", call("pay", {"amount": 9}, id="b"), tools=[till.tool()])
    a = agent("A", PAY, call("transfer_to_b"), tools=[till.tool()], handoffs=[b])
    first = await run(a, "Hi")
    second = await run(a, first.state().approve(first.interruptions[0], always=True))
    assert till.paid == [5]
    assert [(one.agent, one.call_id) for one in second.interruptions] == [("B", "b")]


async def test_an_approval_is_bound_to_the_arguments() -> None:
    """A decision does not apply to a call that was changed after it."""
    till = Till()
    asks = clerk(till, PAY, "Paid.")
    first = await run(asks, "Hi")
    text = first.state().approve(first.interruptions[0]).to_json()
    changed = RunState.from_json(text.replace('\\"amount\\": 5', '\\"amount\\": 5000'), agents=[asks])
    second = await Runner.run(asks, changed)
    assert till.paid == []
    assert [json.loads(one.arguments) for one in second.interruptions] == [{"amount": 5000}]


@pytest.mark.parametrize(
    "change",
    [{"arguments": '{"amount": 6}'}, {"call_id": "q"}, {"name": "x"}, {"agent": "x"}, {"path": ("x",)}],
)
async def test_decision_about_a_call_that_does_not_wait_is_an_error(change: dict[str, Any]) -> None:
    first = await run(clerk(Till(), PAY), "Hi")
    with pytest.raises(ConfigError, match=r"does not wait for approval .* Calls that wait: pay \(p\)"):
        first.state().approve(replace(first.interruptions[0], **change))


@pytest.mark.parametrize("wrong", ["p", (), None])
async def test_decision_is_about_one_call(wrong: Any) -> None:
    state = (await run(clerk(Till(), PAY), "Hi")).state()
    with pytest.raises(ConfigError, match="Pass one Interruption"):
        state.approve(wrong)


async def test_second_decision_about_a_call_is_an_error() -> None:
    first = await run(clerk(Till(), PAY), "Hi")
    state = first.state().approve(first.interruptions[0])
    with pytest.raises(ConfigError, match="Calls that wait: none"):
        state.reject(first.interruptions[0])


@pytest.mark.parametrize("message", [None, 5, ["Too much."]])
async def test_why_not_is_text(message: Any) -> None:
    state = (await run(clerk(Till(), PAY), "Hi")).state()
    with pytest.raises(ConfigError, match="must be text"):
        state.reject(state.interruptions[0], message=message)


async def test_rejection_message_may_have_half_a_surrogate_pair() -> None:
    asks = clerk(Till(), PAY, "All right.")
    state = (await run(asks, "Hi")).state()
    second = await run(asks, state.reject(state.interruptions[0], message="No \ud83d"))
    assert answers_of(second) == ["This call was not approved: No \ufffd"]


# -- what waits when a run ends before it comes to it --


def boom() -> str:
    """Fail."""
    raise ValueError("boom")


def failing(**options: Any) -> Tool:
    return tool(on_error="raise", **options)(boom)


@WATCHED
@pytest.mark.parametrize("nested", [False, True])
async def test_waiting_call_survives_an_error(watched: bool, nested: bool) -> None:
    """A later run whose tool needs no approval does not carry it out without a decision either."""
    till = Till()

    def made(pays: Agent[Any], *replies: Any) -> Agent[Any]:
        tools = [pays.as_tool() if nested else pays.tools[0], failing(needs_approval=True)]
        return agent("boss", *replies, tools=tools)

    asked = call("clerk", {"input": "Pay."}, id="c") if nested else PAY
    asks = made(clerk(till, PAY), [asked, call("boom", id="b")])
    first = await run(asks, "Hi", watched)
    fails, waits = sorted(first.interruptions, key=lambda one: one.name)
    with pytest.raises(ToolError) as caught:
        await run(asks, first.state().approve(fails), watched)
    second = caught.value.result
    assert second is not None
    assert (second.stop_reason, second.interruptions) == ("error", (waits,))
    free = made(clerk(till, "Paid.", needs_approval=False), "Done.")
    third = await run(free, second.state(), watched)
    assert (third.interruptions, till.paid) == ((waits,), [])
    last = await run(free, third.state().approve(waits), watched)
    assert (last.final_output, last.interruptions, till.paid) == ("Done.", (), [5])


async def test_waiting_call_is_reported_beside_an_error() -> None:
    both = agent("clerk", [PAY, call("boom", id="b")], tools=[Till().tool(), failing()])
    with pytest.raises(ToolError) as caught:
        await run(both, "Hi")
    assert caught.value.result is not None
    assert [one.call_id for one in caught.value.result.interruptions] == ["p"]


async def test_stream_left_at_an_approval_keeps_the_waiting_call() -> None:
    till = Till()
    asks = clerk(till, [PAY, call("pay", {"amount": 6}, id="q")], "Done.")
    async with Runner.run_streamed(asks, "Pay.") as stream:
        async for event in stream:
            if isinstance(event, ApprovalRequested):
                break
    assert [one.call_id for one in stream.result.interruptions] == ["p", "q"]
    second = await run(clerk(till, "Done.", needs_approval=False), stream.result.state())
    assert (second.interruptions, till.paid) == (stream.result.interruptions, [])


async def test_waiting_call_survives_a_failed_resume() -> None:
    def broken(context: Any, of: Any) -> bool:
        raise ValueError("broken")

    first = await run(clerk(Till(), PAY), "Pay 5.")
    with pytest.raises(CallbackError) as caught:
        await run(clerk(Till(), is_enabled=broken), first.state())
    assert caught.value.result is not None
    assert caught.value.result.state().interruptions == first.interruptions


async def test_waiting_call_of_a_sub_run_survives_a_waiting_caller() -> None:
    till = Till()

    def boss(*replies: Any, within: Agent[Any], needs_approval: bool = False) -> Agent[Any]:
        return agent("boss", *replies, tools=[within.as_tool(needs_approval=needs_approval)])

    asked = call("clerk", {"input": "Pay."}, id="c")
    first = await run(boss(asked, within=clerk(till, PAY)), "Hi")
    changed = boss("Done.", within=clerk(till, "Paid.", needs_approval=False), needs_approval=True)
    second = await run(changed, first.state())
    assert [one.call_id for one in second.interruptions] == ["c", "p"]
    third = await run(changed, second.state().approve(second.interruptions[0]))
    assert (third.interruptions, till.paid) == (first.interruptions, [])


@pytest.mark.pairwise
@WATCHED
@pytest.mark.parametrize("by_now", ["gone", "the caller's", "a function"])
async def test_removed_agent_tool_is_reported(watched: bool, by_now: str) -> None:
    till, made = Till(), list[str]()
    both = [PAY, call("pay", {"amount": 6}, id="q")]
    asked = call("clerk", {"input": "Pay."}, id="c")
    first = await run(agent("boss", asked, tools=[clerk(till, both).as_tool()]), "Hi", watched)
    pays = agent("boss", tools=[clerk(till, "Paid.").as_tool()])
    second = await run(pays, first.state().approve(first.interruptions[0]), watched)
    assert till.paid == [5]

    @function_tool(name_override="clerk")
    def other(input: str) -> str:
        """Ask."""
        made.append(input)
        return "asked"

    changed = agent("boss", "I see.", tools=[other] if by_now == "a function" else [])
    callers: Any = {"type": "function", "function": {"name": "clerk"}}
    config = RunConfig(external_tools=[callers] if by_now == "the caller's" else [])
    state = second.state().approve(second.interruptions[0])
    third = await run(changed, state, watched, run_config=config)
    assert (third.final_output, third.interruptions, third.pending) == ("I see.", (), ())
    assert (till.paid, made) == ([5], [])
    (answer,) = answers_of(third)
    assert "had started this call and is not available any more" in answer
    assert [problem.message for problem in third.errors] == [answer]


async def test_conversation_may_continue_without_a_decision() -> None:
    """The next run reports to the model that the call was not made."""
    till = Till()
    asks = clerk(till, PAY, "As you like.")
    first = await run(asks, "Hi")
    second = await Runner.run(asks, [*first.to_input_list(), {"role": "user", "content": "Never mind."}])
    assert (till.paid, second.final_output) == ([], "As you like.")


async def test_call_with_half_a_surrogate_pair_can_be_approved() -> None:
    asked: Any = {
        "id": "t",
        "type": "function",
        "function": {"name": "transfer_to_b", "arguments": '{"x": "\ud83d"}'},
    }
    turn = {"role": "assistant", "content": None, "tool_calls": [asked]}
    a = agent("A", turn, handoffs=[handoff(agent("B", "Done."), needs_approval=True)])
    first = await Runner.run(a, "Hi")
    second = await run(a, first.state().approve(first.interruptions[0]))
    assert (second.final_output, second.interruptions) == ("Done.", ())


# -- agents as tools --


def team(till: Till, *, replies: tuple[Any, ...] = ("Paid.",), **options: Any) -> Agent[Any]:
    """A boss agent that calls a clerk agent, which pays."""
    helper = agent("clerk", call("pay", {"amount": 5}, id="p"), *replies, tools=[till.tool()])
    return agent(
        "boss", call("clerk", {"input": "Pay."}, id="c"), "All paid.", tools=[helper.as_tool(**options)]
    )


@WATCHED
async def test_call_in_a_sub_run_can_wait(watched: bool) -> None:
    till = Till()
    boss = team(till)
    first = await run(boss, "Hi", watched)
    (one,) = first.interruptions
    assert (one.agent, one.name, one.path) == ("clerk", "pay", ("c",))
    assert first.stop_reason == "requires_action"
    second = await run(boss, first.state().approve(one), watched)
    assert (second.final_output, till.paid) == ("All paid.", [5])
    assert answers_of(second) == ["Paid."]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("watched", "at_once"), [(True, None), (False, 1)])
async def test_approved_sub_run_that_timed_out_continues_later(watched: bool, at_once: int | None) -> None:
    """The run timed out before; its finished calls are not made again."""
    till, done = Till(), list[str]()

    @tool
    def note() -> str:
        """Note."""
        done.append("noted")
        return "noted"

    @tool(needs_approval=True)
    async def wait() -> str:
        """Take too long."""
        await anyio.sleep_forever()
        return ""

    helper = agent("clerk", call("note"), PAY, "Paid.", tools=[note, till.tool()])
    calls = [call("wait", id="w"), call("clerk", {"input": "Pay."}, id="c")]
    boss = agent("boss", calls, "Done.", tools=[wait, helper.as_tool()])
    first = await run(boss, "Hi")
    state = first.state()
    for one in first.interruptions:
        state = state.approve(one)
    with pytest.raises(RunTimeout) as caught:
        await run(boss, state, watched, run_config=RunConfig(timeout=0.1, tools_at_once=at_once))
    result = await run(boss, caught.value.result.state(), watched)
    assert (result.final_output, done, till.paid) == ("Done.", ["noted"], [5])


async def test_the_books_count_each_model_call_once() -> None:
    boss = team(Till())
    first = await run(boss, "Hi")
    assert first.usage.requests == 2
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert second.usage.requests == 4
    assert {name: usage.requests for name, usage in second.usage_by_agent.items()} == {"boss": 2, "clerk": 2}


async def test_sub_run_continues_where_it_stopped() -> None:
    boss = team(Till())
    first = await run(boss, "Hi")
    second = await run(boss, first.state().reject(first.interruptions[0], message="No."))
    inner = second.nested["c"]
    assert [item.kind for item in inner.items] == ["input", "model", "tool", "model"]
    assert answers_of(inner) == ["This call was not approved: No."]


async def test_max_turns_hold_over_all_parts() -> None:
    boss = team(Till(), max_turns=1)
    first = await run(boss, "Hi")
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert "Max turns (1) exceeded" in second.errors[0].message


async def test_three_deep_and_twice() -> None:
    till = Till()
    deepest = agent("clerk", PAY, call("pay", {"amount": 6}, id="p2"), "Paid.", tools=[till.tool()])
    middle = agent("middle", call("clerk", {"input": "Pay."}, id="m"), "Ok.", tools=[deepest.as_tool()])
    top = agent("top", call("middle", {"input": "Pay."}, id="t"), "Done.", tools=[middle.as_tool()])
    result = await run(top, "Hi")
    while result.interruptions:
        assert [one.path for one in result.interruptions] == [("t", "m")]
        result = await run(top, result.state().approve(result.interruptions[0]))
    assert (result.final_output, till.paid, result.usage.requests) == ("Done.", [5, 6], 7)


async def test_decision_for_the_rest_of_the_run_applies_to_sub_runs() -> None:
    till = Till()
    helper = agent("clerk", PAY, "Paid.", call("pay", {"amount": 6}, id="p"), "Paid.", tools=[till.tool()])
    asks = [call("clerk", {"input": "Pay."}, id=f"c{n}") for n in range(2)]
    boss = agent("boss", *asks, "Done.", tools=[helper.as_tool()])
    first = await run(boss, "Hi")
    second = await run(boss, first.state().approve(first.interruptions[0], always=True))
    assert (second.final_output, till.paid) == ("Done.", [5, 6])


@WATCHED
async def test_two_parallel_sub_runs_can_wait(watched: bool) -> None:
    till = Till()
    helpers = [
        agent(name, call("pay", {"amount": n}, id="p"), "Ok.", tools=[till.tool()])
        for n, name in enumerate("xy")
    ]
    calls = [call(one.name, {"input": "?"}, id=f"c{one.name}") for one in helpers]
    boss = agent("boss", calls, "Done.", tools=[one.as_tool() for one in helpers])
    first = await run(boss, "Hi", watched)
    assert [(one.agent, one.path) for one in first.interruptions] == [("x", ("cx",)), ("y", ("cy",))]
    state = first.state().approve(first.interruptions[1])
    second = await run(boss, state, watched)
    assert (till.paid, [one.agent for one in second.interruptions]) == ([1], ["x"])
    third = await run(boss, second.state().approve(second.interruptions[0]), watched)
    assert (third.final_output, till.paid) == ("Done.", [1, 0])
    assert_valid(shown(boss, 1))


async def test_asking_an_agent_can_need_approval_itself() -> None:
    till = Till()
    boss = team(till, needs_approval=True)
    first = await run(boss, "Hi")
    assert [(one.name, one.path) for one in first.interruptions] == [("clerk", ())]
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert [(one.name, one.path) for one in second.interruptions] == [("pay", ("c",))]
    third = await run(boss, second.state().approve(second.interruptions[0]))
    assert (third.final_output, till.paid) == ("All paid.", [5])


async def test_omitted_default_does_not_bypass_the_approval() -> None:
    payer = agent("payer", "Paid.")
    boss = agent(
        "boss",
        call("pay", {"amount": 900}, id="p"),
        "Done.",
        tools=[payer.as_tool("pay", input_type=Order, needs_approval=True)],
    )
    first = await run(boss, "Hi")
    assert [one.call_id for one in first.interruptions] == ["p"]
    assert requests(payer) == []


async def test_approved_call_is_made_in_the_last_turn() -> None:
    till = Till()
    boss = team(till)
    first = await run(boss, "Hi", max_turns=3)
    second = await run(boss, first.state().approve(first.interruptions[0]), max_turns=3)
    assert (till.paid, [*second.nested]) == ([5], ["c"])


async def test_missing_agent_of_a_sub_run_is_an_error() -> None:
    till = Till()
    first = await run(team(till), "Hi")
    state = first.state().approve(first.interruptions[0])
    other = agent("teller", "Paid.", tools=[till.tool()])
    boss = agent("boss", "All paid.", tools=[other.as_tool("clerk")])
    with pytest.raises(ConfigError, match="names the agent 'clerk', which is not there"):
        await Runner.run(boss, RunState.from_json(state.to_json(), agents=[boss]))


async def test_memory_is_shared_with_a_resumed_run() -> None:
    @function_tool
    async def note(context: ToolContext[Any]) -> str:
        """Note."""
        context.shared_memory["noted"] = context.shared_memory.get("noted", 0) + 1
        return "ok"

    noted = replace(note, needs_approval=True)
    helper = agent("clerk", call("note", id="n"), "Ok.", tools=[noted])
    boss = agent(
        "boss",
        call("note", id="n0"),
        call("clerk", {"input": "?"}, id="c"),
        "Done.",
        tools=[note, helper.as_tool()],
    )
    first = await run(boss, "Hi")
    second = await run(boss, first.state().approve(first.interruptions[0]))
    assert second.context.shared_memory == {"noted": 2}


# -- always --


@examples(40)
@given(words=st.lists(st.sampled_from(["approve", "reject", "wait"]), max_size=12), watched=st.booleans())
async def test_each_call_is_made_at_most_once_if_approved(words: list[str], watched: bool) -> None:
    till = Till()
    helper = agent("clerk", call("pay", {"amount": 3}, id="p"), "Ok.", tools=[till.tool()])
    calls = [
        call("pay", {"amount": 1}, id="a"),
        call("clerk", {"input": "?"}, id="c"),
        call("pay", {"amount": 2}, id="b"),
    ]
    boss = agent("boss", calls, "Done.", tools=[till.tool(), helper.as_tool()])
    result = await run(boss, "Hi", watched)
    approved: list[int] = []
    for word in words:
        if not result.interruptions:
            break
        one, state = result.interruptions[0], result.state()
        if word == "approve":
            state = state.approve(one)
            approved.append(json.loads(one.arguments)["amount"])
        elif word == "reject":
            state = state.reject(one)
        result = await run(boss, state, watched)
        assert sorted(till.paid) == sorted(approved)
    assert (result.final_output == "Done.") is not bool(result.interruptions)
    if result.final_output:
        assert_valid(shown(boss, 1))
        assert len(answers_of(result)) == 3
