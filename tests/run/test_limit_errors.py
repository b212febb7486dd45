"""Budgets: reaching one is an outcome with all the work in it, and nothing goes round for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_agents import outcome

from routelock import Agent, RunConfig, Runner, RunResult, function_handler, function_tool, handoff
from routelock.errors import (
    CallbackError,
    ConfigError,
    LimitExceeded,
    LoopDetected,
    MaxHandoffsExceeded,
    MaxTurnsExceeded,
    ModelBehaviorError,
)
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.history.validity import problems
from routelock.run.records import Problem
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "Go on."}


@function_tool
async def count(number: int) -> str:
    """Count."""
    return f"{number}!"


@function_tool
async def clock() -> str:
    """Tell the time, which is always the same."""
    return "noon"


def counting(turns: int = 30, *, last: str | None = None) -> Agent[Any]:
    replies: list[Any] = [call("count", {"number": number}) for number in range(turns)]
    return Agent("A", model=ScriptedHandler([*replies, last] if last else replies), tools=[count])


def pair(a: list[Any], b: list[Any]) -> Agent[Any]:
    """A and B, who may hand over to each other."""
    second = Agent("B", model=ScriptedHandler(b, name="b"), tools=[count], handoffs=["A"])
    return Agent("A", model=ScriptedHandler(a, name="a"), tools=[count], handoffs=[second])


TO_A, TO_B = call("transfer_to_a"), call("transfer_to_b")


async def stopped(agent: Agent[Any], error: type[LimitExceeded], **config: Any) -> RunResult[Any]:
    with pytest.raises(error) as caught:
        await Runner.run(agent, "Hi", max_turns=50, run_config=RunConfig(**config))
    result = caught.value.result
    assert problems([*result.to_input_list(), USER]) == []
    return result


# -- max_turns --


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("turns", [1, 3])
async def test_the_error_carries_the_work_that_was_done(turns: int, stream: bool) -> None:
    run = Runner.run_streamed(counting(), "Hi", max_turns=turns).drain if stream else None
    with pytest.raises(MaxTurnsExceeded, match=rf"Max turns \({turns}\) exceeded: agent 'A'") as caught:
        await (run() if run else Runner.run(counting(), "Hi", max_turns=turns))
    result = caught.value.result
    assert [message.get("content") for message in result.messages[2::2]] == [f"{n}!" for n in range(turns)]
    assert (result.stop_reason, result.final_output, result.usage.requests) == ("error", None, turns)


async def test_a_limit_can_be_a_result() -> None:
    """With ``on_limit="return"`` reaching a budget is an outcome, not an exception."""
    result = await Runner.run(counting(), "Hi", max_turns=3, run_config=RunConfig(on_limit="return"))
    assert (result.stop_reason, result.final_output) == ("limit", None)
    assert len(result.raw_replies) == 3


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_can_make_the_final_output(is_async: bool) -> None:
    """The function's value is the final output; it is given the error with the result."""

    def wrap_up(error: LimitExceeded) -> str:
        return f"{type(error).__name__} after {len(error.result.raw_replies)}"

    async def wrap_up_async(error: LimitExceeded) -> str:
        await anyio.lowlevel.checkpoint()
        return wrap_up(error)

    config = RunConfig(on_limit=wrap_up_async if is_async else wrap_up)
    result = await Runner.run(counting(), "Hi", max_turns=2, run_config=config)
    assert (result.final_output, result.stop_reason) == ("MaxTurnsExceeded after 2", "limit")


async def test_a_function_that_raises_does_not_lose_the_work() -> None:
    def broken(error: LimitExceeded) -> str:
        raise KeyError("mine")

    with pytest.raises(CallbackError, match="on_limit function of the run raised KeyError") as caught:
        await Runner.run(counting(), "Hi", max_turns=2, run_config=RunConfig(on_limit=broken))
    assert caught.value.result.stop_reason == "error"
    assert len(caught.value.result.raw_replies) == 2


async def test_a_function_may_raise_the_error_after_all() -> None:
    def only_for_handoffs(error: LimitExceeded) -> str:
        raise error

    config = RunConfig(on_limit=only_for_handoffs)
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Runner.run(counting(), "Hi", max_turns=2, run_config=config)
    assert caught.value.result.stop_reason == "error"


async def test_a_limited_run_can_be_taken_up_again() -> None:
    """With more budget, without repeating a tool."""
    agent = counting(4, last="Done.")
    first = await Runner.run(agent, "Hi", max_turns=3, run_config=RunConfig(on_limit="return"))
    second = await Runner.run(agent, [*first.to_input_list(), USER])
    assert second.final_output == "Done."
    told = [message.get("content") for message in second.messages if message["role"] == "tool"]
    assert told == ["0!", "1!", "2!", "3!"]


async def test_an_answer_in_the_last_turn_is_in_time() -> None:
    assert (await Runner.run(counting(2, last="Done."), "Hi", max_turns=3)).final_output == "Done."


async def test_none_is_no_limit() -> None:
    result = await Runner.run(counting(40, last="Done."), "Hi", max_turns=None)
    assert result.usage.requests == 41


async def test_all_agents_share_the_turns() -> None:
    """A target does not get a budget of its own."""
    a = [call("count", {"number": 0}), TO_B]
    agent = pair(a, [call("count", {"number": number}) for number in range(1, 9)])
    with pytest.raises(MaxTurnsExceeded, match="agent 'B' wanted another") as caught:
        await Runner.run(agent, "Hi", max_turns=5)
    assert [made.agent for made in caught.value.result.calls] == ["A", "A", "B", "B", "B"]


# -- max_handoffs --


def touring(hops: int) -> Agent[Any]:
    """A and B hand over to each other, and something new comes up each time."""
    a: list[Any] = []
    b: list[Any] = []
    for hop in range(hops):
        script, way = (a, TO_B) if hop % 2 == 0 else (b, TO_A)
        script += [reply(calls=[call("count", {"number": hop}), way])]
    return pair([*a, TO_B, "A ends."], [*b, TO_A, "B ends."])


async def test_five_handoffs_are_allowed_unless_said_otherwise() -> None:
    """Chaining is allowed and bounded; the sixth is refused, asking again ends the run.

    What new comes up in between does not earn another transfer.
    """
    result = await stopped(touring(9), MaxHandoffsExceeded)
    assert [outcome(record) for record in result.handoffs] == ["taken"] * 5 + ["failed"] * 2
    assert "the limit of 5 transfers is reached" in str(result.handoffs[-1].error)


async def test_a_refused_transfer_lets_the_agent_answer_itself() -> None:
    """The model is told first; the run ends only if it insists."""
    agent = pair([TO_B], [TO_A, "B answers."])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(max_handoffs=1))
    assert [outcome(record) for record in result.handoffs] == ["taken", "failed"]
    assert (result.final_output, result.stop_reason) == ("B answers.", "done")


async def test_no_handoff_at_all_may_be_allowed() -> None:
    agent = pair([TO_B, "A answers."], [])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(max_handoffs=0))
    assert (result.final_output, result.last_agent.name) == ("A answers.", "A")


async def test_handoffs_may_be_unlimited() -> None:
    result = await Runner.run(touring(12), "Hi", max_turns=None, run_config=RunConfig(max_handoffs=None))
    assert sum(outcome(record) == "taken" for record in result.handoffs) >= 12


async def test_a_handoff_limit_can_be_a_result() -> None:
    result = await Runner.run(touring(9), "Hi", run_config=RunConfig(max_handoffs=2, on_limit="return"))
    assert result.stop_reason == "limit"
    assert [outcome(record) for record in result.handoffs] == ["taken", "taken", "failed", "failed"]


# -- going round --


async def test_ping_pong_stops_within_four_handoffs() -> None:
    """Not at max_turns; the model is told before the run ends."""
    result = await stopped(pair([TO_B] * 9, [TO_A] * 9), LoopDetected)
    assert sum(outcome(record) == "taken" for record in result.handoffs) <= 4
    assert "this transfer was already made" in str(result.messages)


async def test_a_circle_of_three_stops_as_well() -> None:
    c = Agent("C", model=ScriptedHandler([TO_A] * 9), handoffs=["A"])
    b = Agent("B", model=ScriptedHandler([call("transfer_to_c")] * 9), handoffs=[c])
    result = await stopped(Agent("A", model=ScriptedHandler([TO_B] * 9), handoffs=[b]), LoopDetected)
    assert sum(outcome(record) == "taken" for record in result.handoffs) <= 4


async def test_nudged_model_may_still_answer() -> None:
    result = await Runner.run(pair([TO_B, TO_B, "A answers."], [TO_A]), "Hi")
    assert (result.final_output, result.stop_reason) == ("A answers.", "done")


@pytest.mark.parametrize("hops", range(1, 5))
async def test_handing_over_with_progress_is_never_stopped(hops: int) -> None:
    """A -> B -> A -> B is fine when each tool result is new."""
    agent = touring(hops)
    result = await Runner.run(agent, "Hi", run_config=RunConfig(max_handoffs=hops))
    assert sum(outcome(record) == "taken" for record in result.handoffs) == hops


async def test_there_and_back_and_on_is_no_loop() -> None:
    """A -> B -> A -> C, with progress, is what agents are for."""
    c = Agent("C", model=ScriptedHandler(["C answers."]))
    b = Agent("B", model=ScriptedHandler([call("count", {"number": 1}), TO_A]), tools=[count], handoffs=["A"])
    a = Agent("A", model=ScriptedHandler([TO_B, call("transfer_to_c")]), handoffs=[b, c])
    result = await Runner.run(a, "Hi")
    assert result.final_output == "C answers."
    assert result.errors == ()


@dataclass
class Order:
    number: int


def desk(*numbers: int) -> Agent[Any]:
    """A hands one order after the other to B, who has no tools and hands back."""
    b = Agent("B", model=ScriptedHandler([TO_A] * len(numbers)), handoffs=["A"])
    asks = [call("transfer_to_b", {"number": number}) for number in numbers]
    return Agent("A", model=ScriptedHandler([*asks, "All done."]), handoffs=[handoff(b, input_type=Order)])


async def test_handing_over_other_data_is_progress() -> None:
    """A -> B -> A -> B is fine when each time another order is handed over."""
    result = await Runner.run(desk(1, 2), "Hi")
    assert (result.final_output, result.errors, len(result.handoffs)) == ("All done.", (), 4)


async def test_handing_over_the_same_data_again_is_none() -> None:
    result = await Runner.run(desk(1, 1), "Hi")
    assert [record.taken for record in result.handoffs] == [True, True, False]
    assert "nothing new has come up since" in result.errors[0].message


async def test_the_guard_can_be_turned_off() -> None:
    config = {"detect_loops": False, "max_handoffs": 6}
    result = await stopped(pair([TO_B] * 9, [TO_A] * 9), MaxHandoffsExceeded, **config)
    assert sum(outcome(record) == "taken" for record in result.handoffs) == 6


def nudges(result: RunResult[Any]) -> list[Problem]:
    return [problem for problem in result.errors if problem.kind == "loop"]


async def test_repeated_call_is_nudged_and_then_stopped() -> None:
    """First a word to the model, then a typed stop with the best partial result."""
    agent = Agent("A", model=ScriptedHandler([call("clock")] * 20), tools=[clock])
    result = await stopped(agent, LoopDetected)
    assert result.usage.requests == 6
    assert [problem.turn for problem in nudges(result)] == [3]
    assert [item.kind for item in result.items].count("nudge") == 1


async def test_a_nudge_is_the_models_next_user_message() -> None:
    script = ScriptedHandler([*[call("clock")] * 3, "It is noon."])
    result = await Runner.run(Agent("A", model=script, tools=[clock]), "Hi")
    assert result.final_output == "It is noon."
    last = script.requests[3].messages[-1]
    assert last["role"] == "user"
    assert "returned the same results (clock)" in str(last.get("content"))
    assert problems(script.requests[3].messages) == []


def circling(turns: int, *names: str) -> list[Any]:
    return [call(names[number % len(names)]) for number in range(turns)]


@function_tool
async def weather() -> str:
    """Tell the weather, which is always the same."""
    return "rain"


@function_tool
async def news() -> str:
    """Tell the news, which are always the same."""
    return "none"


@pytest.mark.parametrize("names", [("clock", "weather"), ("clock", "weather", "news")])
async def test_a_circle_of_calls_is_nudged_and_then_stopped(names: tuple[str, ...]) -> None:
    """The third time round it is told, and three turns later it ends: within ten turns."""
    agent = Agent("A", model=ScriptedHandler(circling(40, *names)), tools=[clock, weather, news])
    result = await stopped(agent, LoopDetected)
    assert [problem.turn for problem in nudges(result)] == [2 * len(names) + 1]
    assert result.usage.requests == 2 * len(names) + 4 <= 10
    assert ", ".join(names) in nudges(result)[0].message


async def test_a_circle_that_is_told_may_still_end_well() -> None:
    script = ScriptedHandler([*circling(7, "clock", "weather"), "It rains at noon."])
    result = await Runner.run(Agent("A", model=script, tools=[clock, weather]), "Hi")
    assert (result.final_output, len(nudges(result))) == ("It rains at noon.", 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_loop_can_be_a_result(stream: bool) -> None:
    agent = Agent("A", model=ScriptedHandler(circling(40, "clock", "weather")), tools=[clock, weather])
    config = RunConfig(on_limit="return")
    if stream:
        result = await Runner.run_streamed(agent, "Hi", run_config=config).drain()
    else:
        result = await Runner.run(agent, "Hi", run_config=config)
    assert (result.stop_reason, result.usage.requests) == ("limit", 8)
    assert isinstance(result.errors[-1].error, LoopDetected)


async def test_a_circle_through_two_agents_is_stopped() -> None:
    """Each asks the same again and hands over: the transfer is refused, and asking again ends the run."""
    a = [reply(calls=[call("clock"), TO_B])] * 9
    b = [reply(calls=[call("clock"), TO_A])] * 9
    second = Agent("B", model=ScriptedHandler(b, name="b"), tools=[clock], handoffs=["A"])
    first = Agent("A", model=ScriptedHandler(a, name="a"), tools=[clock], handoffs=[second])
    result = await stopped(first, LoopDetected, max_handoffs=None)
    assert result.usage.requests <= 4


async def test_a_circle_through_two_handlers_is_stopped() -> None:
    front = ScriptedHandler([reply(calls=[call("clock"), call("transfer_to_back")])] * 9, name="front")
    back = ScriptedHandler([reply(calls=[call("clock"), call("transfer_to_front")])] * 9, name="back")
    agent = Agent("A", handlers=[front, back], tools=[clock], handoffs=[handoff(front), handoff(back)])
    result = await stopped(agent, LoopDetected, max_handoffs=None)
    assert result.usage.requests <= 4


async def test_repeated_question_to_an_agent_is_stopped() -> None:
    """With ``return_to_caller`` too: an answer that is known is nothing new."""
    b = Agent("B", model=ScriptedHandler(["The same."] * 9))
    declared = handoff(b, return_to_caller=True)
    result = await stopped(Agent("A", model=ScriptedHandler([TO_B] * 9), handoffs=[declared]), LoopDetected)
    assert sum(record.taken for record in result.handoffs) <= 2


async def test_asking_until_the_answer_is_another_is_fine() -> None:
    b = Agent("B", model=ScriptedHandler([f"{number} of 5" for number in range(1, 6)]))
    declared = handoff(b, return_to_caller=True)
    result = await Runner.run(
        Agent("A", model=ScriptedHandler([*[TO_B] * 5, "Ready."]), handoffs=[declared]), "Hi", max_turns=20
    )
    assert (result.final_output, result.errors) == ("Ready.", ())


async def test_a_user_message_is_progress() -> None:
    """A run counts for itself: what the last one asked may be asked again."""
    agent = Agent(
        "A",
        model=ScriptedHandler([*circling(2, "clock"), "Noon.", *circling(2, "clock"), "Still noon."]),
        tools=[clock],
    )
    first = await Runner.run(agent, "Hi")
    second = await Runner.run(agent, [*first.to_input_list(), USER])
    assert nudges(first) == nudges(second) == []


MOVES = st.sampled_from(["stay", "hand over"])


@given(moves=st.lists(MOVES, max_size=12))
async def test_random_ways_with_progress_are_never_stopped(moves: list[str]) -> None:
    """Every turn brings a new result, after any handoff."""
    names = ["A", "B", "C"]
    scripts: dict[str, list[Any]] = {name: [] for name in names}
    at = 0
    for number, move in enumerate(moves):
        calls = [call("count", {"number": number})]
        if move == "hand over":
            there = (at + 1 + number % 2) % 3
            calls.append(call(f"transfer_to_{names[there].lower()}"))
        scripts[names[at]].append(reply(calls=calls))
        at = there if move == "hand over" else at
    scripts[names[at]].append("Done.")
    agents = [
        Agent(
            name,
            model=ScriptedHandler(scripts[name], name=name),
            tools=[count],
            handoffs=[other for other in names if other != name],
        )
        for name in names
    ]
    config = RunConfig(max_handoffs=None, agents=agents)
    result = await Runner.run(agents[0], "Hi", max_turns=None, run_config=config)
    assert (result.final_output, result.errors) == ("Done.", ())
    assert sum(record.taken for record in result.handoffs) == moves.count("hand over")


@given(seed=st.integers(0, 2**32))
async def test_random_ways_without_progress_always_end(seed: int) -> None:
    """Three agents who ask the same two things and hand over at will.

    There are six ways between them. Each is gone once after each of the two results that are new, and
    no agent stays for more than 2 * 2 + 4 turns.
    """
    names = ["A", "B", "C"]
    tools = ["clock", "weather"]
    dice = random.Random(seed)  # not drawn on the way: an event loop hides what drawing raises

    async def wander(request: Request) -> Any:
        calls = [call(dice.choice(tools))] if dice.random() < 0.5 else []
        others = [name for name in names if name != request.agent]
        if not calls or dice.random() < 0.5:
            calls.append(call(f"transfer_to_{dice.choice(others).lower()}"))
        return {"role": "assistant", "content": None, "tool_calls": calls}

    agents = [
        Agent(
            name,
            model=function_handler(wander, name=name),
            tools=[clock, weather],
            handoffs=[other for other in names if other != name],
        )
        for name in names
    ]
    config = RunConfig(max_handoffs=None, max_mistakes=99, agents=agents)
    with pytest.raises(LoopDetected) as caught:
        await Runner.run(agents[0], "Hi", max_turns=None, run_config=config)
    taken = sum(record.taken for record in caught.value.result.handoffs)
    assert taken <= 6 * 3
    assert len(caught.value.result.calls) <= (taken + 1) * 8 + 2


# -- many handoffs --


def crowded(handoffs: int, *, name: str = "A", last: Any = "I know myself.") -> Agent[Any]:
    targets = [Agent(f"{name}{number}", model=ScriptedHandler(["Hi"])) for number in range(handoffs)]
    return Agent(
        name, model=ScriptedHandler([call("count", {"number": 1}), last]), tools=[count], handoffs=targets
    )


async def test_many_offered_handoffs_cause_one_warning() -> None:
    result = await Runner.run(crowded(6), "Hi")
    assert [warning.split(",")[0] for warning in result.warnings] == ["agent 'A' is offered 6 handoffs"]


async def test_two_agents_with_many_handoffs_are_one_warning() -> None:
    other = crowded(7, name="B")
    agent = replace(crowded(6, last=TO_B), handoffs=[*crowded(6).handoffs, other])
    result = await Runner.run(agent, "Hi")
    assert result.last_agent is other
    assert len(result.warnings) == 1


async def test_five_handoffs_are_fine() -> None:
    assert (await Runner.run(crowded(5), "Hi")).warnings == ()


async def test_handoffs_that_are_not_enabled_do_not_count() -> None:
    closed = handoff(Agent("B", model=ScriptedHandler([])), is_enabled=False)
    agent = replace(crowded(5), handoffs=[*crowded(5).handoffs, closed])
    assert (await Runner.run(agent, "Hi")).warnings == ()


@pytest.mark.parametrize(("over", "warned"), [(None, 0), (2, 1), (3, 0), (0, 1)])
async def test_how_many_handoffs_are_many_can_be_set(over: int | None, warned: int) -> None:
    result = await Runner.run(crowded(3), "Hi", run_config=RunConfig(warn_handoffs_over=over))
    assert len(result.warnings) == warned


async def test_a_warning_needs_a_number() -> None:
    with pytest.raises(ConfigError, match="warn_handoffs_over must be at least 0"):
        RunConfig(warn_handoffs_over=-1)


async def test_the_same_call_with_a_new_result_is_progress() -> None:
    """Polling is legitimate."""
    polled: list[int] = []

    @function_tool
    async def poll() -> str:
        """Poll."""
        polled.append(1)
        return f"{len(polled)} of 8"

    agent = Agent("A", model=ScriptedHandler([*[call("poll")] * 8, "Ready."]), tools=[poll])
    result = await Runner.run(agent, "Hi")
    assert (result.final_output, nudges(result)) == ("Ready.", [])


async def test_another_call_in_between_starts_the_count_again() -> None:
    script = [*[call("clock")] * 2, call("count", {"number": 1}), *[call("clock")] * 2, "Noon."]
    result = await Runner.run(Agent("A", model=ScriptedHandler(script), tools=[clock, count]), "Hi")
    assert nudges(result) == []


async def test_the_same_calls_are_left_alone_without_the_guard() -> None:
    script = [*[call("clock")] * 8, "Noon."]
    agent = Agent("A", model=ScriptedHandler(script), tools=[clock])
    result = await Runner.run(agent, "Hi", run_config=RunConfig(detect_loops=False))
    assert (result.final_output, nudges(result)) == ("Noon.", [])


# -- mistakes --


async def test_nothing_but_mistakes_ends_the_run() -> None:
    """Three invalid turns in a row are a typed error with everything in it."""
    agent = Agent("A", model=ScriptedHandler([call("nothing")] * 9), tools=[count])
    with pytest.raises(ModelBehaviorError, match="nothing but mistakes in 3 turns in a row") as caught:
        await Runner.run(agent, "Hi")
    assert len(caught.value.result.errors) == 3


async def test_one_good_call_makes_up_for_mistakes() -> None:
    bad, good = call("nothing"), [call("nothing"), call("count", {"number": 1})]
    agent = Agent("A", model=ScriptedHandler([bad, bad, good, bad, bad, "Done."]), tools=[count])
    assert (await Runner.run(agent, "Hi")).final_output == "Done."


async def test_how_many_mistakes_are_allowed_can_be_set() -> None:
    agent = Agent("A", model=ScriptedHandler([call("nothing")] * 9))
    with pytest.raises(ModelBehaviorError, match="in 1 turns"):
        await Runner.run(agent, "Hi", run_config=RunConfig(max_mistakes=1))


async def test_repeated_multiple_transfers_are_a_mistake() -> None:
    both = [TO_B, call("transfer_to_c")]
    targets = [Agent(name, model=ScriptedHandler([])) for name in ("B", "C")]
    agent = Agent("A", model=ScriptedHandler([both] * 9), handoffs=targets)
    with pytest.raises(ModelBehaviorError, match="several transfers at once"):
        await Runner.run(agent, "Hi", run_config=RunConfig(multiple_handoffs="reject"))


async def test_a_failing_tool_is_no_mistake_of_the_model() -> None:
    @function_tool
    async def down(number: int) -> str:
        """Fail."""
        raise OSError("down")

    script = ScriptedHandler([*[call("down", {"number": number}) for number in range(5)], "It is down."])
    assert (await Runner.run(Agent("A", model=script, tools=[down]), "Hi")).final_output == "It is down."


async def test_repeatedly_failing_target_ends_the_run() -> None:
    """Bounded, typed, and never taken for an answer."""

    def no(context: Any) -> None:
        raise LookupError("closed")

    declared = handoff(Agent("B", model=ScriptedHandler([])), on_handoff=no)
    agent = Agent("A", model=ScriptedHandler([TO_B] * 9), handoffs=[declared])
    with pytest.raises(ModelBehaviorError, match="closed"):
        await Runner.run(agent, "Hi")


async def test_limit_of_an_inner_run_is_not_the_outer_runs() -> None:
    """A failure inside must not look like a success outside."""
    inner = Agent("inner", model=ScriptedHandler([call("count", {"number": 1})]), tools=[count])

    async def within(request: Any) -> str:
        return str((await Runner.run(inner, "Go on.", max_turns=1)).final_output)

    outer = Agent("outer", model=function_handler(within))
    with pytest.raises(MaxTurnsExceeded) as caught:
        await Runner.run(outer, "Hi", run_config=RunConfig(on_limit="return"))
    assert caught.value.result.last_agent is outer


async def test_returned_result_names_the_limit() -> None:
    agent = Agent("A", model=ScriptedHandler([call("count", {"number": 1})]), tools=[count])
    result = await Runner.run(agent, "Hi", max_turns=1, run_config=RunConfig(on_limit="return"))
    assert [(each.kind, type(each.error)) for each in result.errors] == [("limit", MaxTurnsExceeded)]
