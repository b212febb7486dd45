"""A handoff whose target's output goes back to the caller, as the answer to its call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from scenes import facts
from scripted_agents import HI, TO_B, agent, answers_of, look_up, requests, shown, statuses

from routelock import (
    Agent,
    GuardrailResult,
    HandoffRequest,
    Request,
    RunConfig,
    Runner,
    RunResult,
    function_handler,
    handoff,
    tool,
)
from routelock.errors import (
    ConfigError,
    HandoffTimeout,
    MaxTurnsExceeded,
    OutputGuardrailTripped,
    ProviderError,
)
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import text_of
from routelock.run.events import AgentUpdated, HandoffFailed, HandoffOccurred, HandoffReturned
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio


def team(*first: Any, b: Agent[Any] | None = None, **options: Any) -> tuple[Agent[Any], Agent[Any]]:
    """A, who asks B and goes on."""
    b = b or agent("B", "Forty-two.")
    return agent(
        "A", *(first or (TO_B, "It is 42.")), handoffs=[handoff(b, return_to_caller=True, **options)]
    ), b


async def play(start: Agent[Any], stream: bool = False, **config: Any) -> RunResult[Any]:
    config["clock"] = lambda: 0.0
    settings = RunConfig(run_id="r", **config)
    if not stream:
        return await Runner.run(start, "Hi", run_config=settings)
    return await Runner.run_streamed(start, "Hi", run_config=settings).drain()


@pytest.mark.parametrize("stream", [False, True])
async def test_output_is_the_result_of_the_callers_call(stream: bool) -> None:
    a, b = team()
    result = await play(a, stream)
    assert (result.final_output, result.last_agent) == ("It is 42.", a)
    assert shown(a, 1)[-1] == {"role": "tool", "tool_call_id": "t", "content": "Forty-two."}
    assert shown(b)[-1] == HI


async def test_streamed_and_plain_are_the_same() -> None:
    assert facts(await play(team()[0])) == facts(await play(team()[0], stream=True))


async def test_caller_does_not_see_the_targets_work() -> None:
    b = Agent(
        "B", model=ScriptedHandler([call("look_up", {"order": 7}), "On its way."], name="B"), tools=[look_up]
    )
    a, _ = team(TO_B, "Done.", b=b)
    result = await play(a)
    assert [message["role"] for message in shown(a, 1)] == ["user", "assistant", "tool"]
    assert answers_of(result) == ["order 7 is on its way", "On its way."]


async def test_answered_call_is_valid_input_for_the_next_run() -> None:
    a, _ = team()
    first = await play(a)
    again = first.to_input_list()
    assert_valid(again)
    assert [message.get("tool_call_id") for message in again].count("t") == 1
    assert [text_of(message) for message in again if message["role"] == "assistant"][-1] == "It is 42."


async def test_next_run_hides_the_targets_work_from_the_caller() -> None:
    a, _ = team(TO_B, "It is 42.", "Again.")
    first = await play(a)
    await Runner.run(a, [*first.to_input_list(), HI])
    assert [message["role"] for message in shown(a, 2)] == ["user", "assistant", "tool", "assistant", "user"]


async def test_unfinished_answer_is_input_for_the_next_run() -> None:
    b = agent("B", call("look_up", {"order": 7}), tools=[look_up])
    first = await Runner.run(team(b=b)[0], "Hi", max_turns=2, run_config=RunConfig(on_limit="return"))
    assert "order 7 is on its way" in [text_of(message) for message in first.to_input_list()]


async def test_events_name_the_active_agent() -> None:
    a, _ = team()
    async with Runner.run_streamed(a, "Hi") as stream:
        events = [event async for event in stream]
    kinds = (AgentUpdated, HandoffOccurred, HandoffReturned)
    assert [event for event in events if isinstance(event, kinds)] == [
        AgentUpdated("A"),
        HandoffOccurred(source="A", target="B", call_id="t"),
        AgentUpdated("B"),
        HandoffReturned(source="B", target="A", call_id="t", output="Forty-two."),
        AgentUpdated("A"),
    ]


async def test_tools_beside_it_keep_the_call_order() -> None:
    both = [TO_B, call("look_up", {"order": 7}, id="l")]
    b = agent("B", "Forty-two.")
    a = agent("A", both, "Done.", tools=[look_up], handoffs=[handoff(b, return_to_caller=True)])
    await play(a)
    assert sorted(str(m.get("tool_call_id")) for m in shown(a, 1) if m["role"] == "tool") == ["l", "t"]


async def test_caller_learns_which_handoffs_were_skipped() -> None:
    """It goes on, so it must not take what it asked for beside this one for never asked, or for done."""
    b, c = agent("B", "Forty-two."), agent("C")
    asks = [call("transfer_to_b", id="t"), call("transfer_to_c", id="u")]
    a = agent("A", asks, "Done.", handoffs=[handoff(b, return_to_caller=True), c])
    await play(a)
    assert shown(a, 1)[2:] == [
        {"role": "tool", "tool_call_id": "u", "content": "Multiple handoffs detected, ignoring this one."},
        {"role": "tool", "tool_call_id": "t", "content": "Forty-two."},
    ]
    assert len(shown(b)) == 2  # who was asked sees a note of that one transfer, and the question


async def test_filter_changes_the_targets_view_only() -> None:
    a, b = team(preserve_context=False)
    await play(a)
    assert shown(b) == [HI]
    assert [message["role"] for message in shown(a, 1)] == ["user", "assistant", "tool"]


async def test_callers_may_wait_for_callers() -> None:
    c = agent("C", "C.")
    b = agent("B", call("transfer_to_c", id="c"), "B after C.", handoffs=[handoff(c, return_to_caller=True)])
    a, _ = team(TO_B, "A after B.", b=b)
    result = await play(a)
    assert result.final_output == "A after B."
    assert answers_of(result) == ["C.", "B after C."]


async def test_target_of_a_further_handoff_answers_the_caller() -> None:
    c = agent("C", "From C.")
    a, _ = team(TO_B, "Done.", b=agent("B", call("transfer_to_c"), handoffs=[c]))
    result = await play(a)
    assert (result.final_output, text_of(shown(a, 1)[-1])) == ("Done.", "From C.")


async def test_it_can_be_asked_for_again() -> None:
    b = agent("B", "First.", "Second.")
    a, _ = team(call("transfer_to_b", id="1"), call("transfer_to_b", id="2"), "Done.", b=b)
    result = await play(a)
    assert (result.final_output, statuses(result)) == ("Done.", [("A", "B", "taken")] * 2)


async def test_a_handler_can_be_asked() -> None:
    voice = ScriptedHandler(["Hello."], name="voice")
    a = agent(
        "A",
        call("transfer_to_voice", id="v"),
        "It said hello.",
        handoffs=[handoff(voice, return_to_caller=True)],
    )
    result = await play(a)
    assert (result.final_output, result.last_handler) == ("It said hello.", "A")


async def test_a_tool_may_ask_for_it() -> None:
    @tool
    def ask() -> HandoffRequest:
        return HandoffRequest("B")

    b = agent("B", "Forty-two.")
    a = agent("A", call("ask", id="q"), "Done.", tools=[ask], handoffs=[handoff(b, return_to_caller=True)])
    result = await play(a)
    assert result.final_output == "Done."
    assert requests(a)[1].messages[-1] == {"role": "tool", "tool_call_id": "q", "content": "Forty-two."}


async def test_the_next_run_starts_at_the_caller() -> None:
    a, _ = team(TO_B, "One.", "Two.")
    await play(a)
    assert (await play(a)).final_output == "Two."


async def test_the_record_says_that_the_work_is_done() -> None:
    a, _ = team()
    (record,) = (await play(a)).handoffs
    assert (record.status, record.tokens) == (HandoffStatus.COMPLETED, 15)


async def test_waiting_caller_keeps_its_capacity_slot() -> None:
    capacity, free = Capacity({"B": 1, "C": 1}), []

    def look(context: Any) -> str:
        free.append((context.agent, capacity.free("B"), capacity.free("C")))
        return ""

    c = Agent("C", look, model=ScriptedHandler(["C."]))
    b_says = ScriptedHandler([call("transfer_to_c", id="c"), "B."])
    b = Agent("B", look, model=b_says, handoffs=[handoff(c, return_to_caller=True)])
    a, _ = team(TO_B, "A.", b=b)
    await play(a, capacity=capacity)
    assert free == [("B", 0, 1), ("C", 0, 0), ("B", 0, 1)]
    assert (capacity.free("B"), capacity.free("C")) == (1, 1)


@pytest.mark.parametrize("stream", [False, True])
async def test_caller_is_told_of_the_targets_error(stream: bool) -> None:
    b = Agent("B", model=ScriptedHandler([ProviderError("down")]))
    a, _ = team(TO_B, "I do it myself.", b=b)
    result = await play(a, stream)
    assert (result.final_output, result.last_agent) == ("I do it myself.", a)
    assert text_of(shown(a, 1)[-1]) == "'B' failed: ProviderError: down"
    (record,) = result.handoffs
    assert (record.status, record.error) == (HandoffStatus.FAILED, "ProviderError: down")
    assert_valid(result.to_input_list())


async def test_turns_are_counted_over_all() -> None:
    a, _ = team()
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(a, "Hi", max_turns=2)


async def test_targets_guardrails_check_its_answer_and_the_runs_do_not() -> None:
    seen: list[str] = []

    def watch(context: Any, who: Any, output: Any) -> GuardrailResult:
        seen.append(f"{who.name}: {output}")
        return GuardrailResult(output == "no")

    a, _ = team(b=agent("B", "yes", output_guardrails=[watch]))
    await play(a, output_guardrails=[watch])
    assert seen == ["B: yes", "A: It is 42."]
    a, _ = team(b=agent("B", "no", output_guardrails=[watch]))
    result = await play(a)
    assert isinstance(result.errors[0].error, OutputGuardrailTripped)
    assert text_of(shown(a, 1)[-1]) == "'B' failed: OutputGuardrailTripped: guardrail 'watch' stopped it"


# -- waiting no longer --


async def _never(request: Request) -> str:
    await anyio.sleep_forever()
    return ""


async def _trickle(request: Request) -> AsyncGenerator[str]:
    yield "Let me "
    await anyio.sleep_forever()


@pytest.mark.virtual_time
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("slow", [_never, _trickle])
async def test_a_target_that_takes_too_long_is_given_up(slow: Any, stream: bool) -> None:
    a, _ = team(b=Agent("B", model=function_handler(slow)), run_timeout=0.05)
    result = await play(a, stream)
    assert (result.final_output, result.last_agent) == ("It is 42.", a)
    assert text_of(shown(a, 1)[-1]) == "'B' timed out: there was no answer within 0.05 s"
    (record,) = result.handoffs
    assert (record.status, record.error) == (
        HandoffStatus.FAILED,
        "'B' timed out: there was no answer within 0.05 s",
    )
    assert [problem.kind for problem in result.errors] == ["handoff"]
    assert_valid(result.to_input_list())


@pytest.mark.virtual_time
async def test_what_it_had_said_by_then_is_kept() -> None:
    a, _ = team(b=Agent("B", model=function_handler(_trickle)), run_timeout=0.05)
    result = await play(a, stream=True)
    assert [text_of(item.message) for item in result.items if item.agent == "B"] == ["Let me "]


async def test_a_handlers_own_timeout_is_its_failure() -> None:
    async def late(request: Request) -> str:
        raise HandoffTimeout("mine")

    a, _ = team(b=Agent("B", model=function_handler(late)), run_timeout=60.0)
    await play(a)
    assert text_of(shown(a, 1)[-1]) == "'B' failed: HandoffTimeout: mine"


@pytest.mark.virtual_time
async def test_giving_up_is_an_event() -> None:
    a, _ = team(b=Agent("B", model=function_handler(_never)), run_timeout=0.05)
    async with Runner.run_streamed(a, "Hi") as stream:
        failed = [event async for event in stream if isinstance(event, HandoffFailed)]
    assert [(event.source, event.target, event.call_id) for event in failed] == [("A", "B", "t")]


@pytest.mark.virtual_time
async def test_caller_with_the_earliest_deadline_goes_on() -> None:
    c = Agent("C", model=function_handler(_never))
    b = agent("B", call("transfer_to_c", id="c"), "B.", handoffs=[handoff(c, return_to_caller=True)])
    a, _ = team(TO_B, "A.", b=b, run_timeout=0.05)
    result = await play(a)
    late = "'C' timed out: there was no answer within 0.05 s"
    assert (result.final_output, answers_of(result)) == ("A.", [late, late])
    assert [message.get("tool_call_id") for message in result.messages if message["role"] == "tool"] == [
        "c",
        "t",
    ]
    assert_valid(result.to_input_list())
    assert shown(a, 1)[-1] == {"role": "tool", "tool_call_id": "t", "content": late}


@pytest.mark.virtual_time
@pytest.mark.parametrize("stream", [False, True])
async def test_deadline_of_the_caller_limits_the_acceptance_too(stream: bool) -> None:
    """B asks C, who never says yes or no; A goes on when its patience is over."""

    async def undecided(request: HandoffRequest) -> None:
        await anyio.sleep_forever()

    b = agent("B", call("transfer_to_c", id="c"), handoffs=[agent("C", on_handoff_request=undecided)])
    a, _ = team(TO_B, "A.", b=b, run_timeout=0.05)
    with anyio.fail_after(20):
        result = await play(a, stream)
    assert result.final_output == "A."
    assert [(record.target, record.status) for record in result.handoffs] == [
        ("B", HandoffStatus.FAILED),
        ("C", HandoffStatus.EXPIRED),
    ]
    assert result.handoffs[1].error == "the caller of 'B' timed out"
    assert text_of(shown(a, 1)[-1]) == "'B' timed out: there was no answer within 0.05 s"


@pytest.mark.virtual_time
async def test_turn_without_a_model_call_does_not_count() -> None:
    async def slow(context: Any, agent: Agent[Any]) -> str:
        await anyio.sleep(0.1)
        return "Be brief."

    b = Agent("B", slow, model=ScriptedHandler(["Too late."]))
    a, _ = team(b=b, run_timeout=0.05)
    result = await play(a)
    assert not requests(b)
    assert [(made.agent, made.turn) for made in result.calls] == [("A", 1), ("A", 2)]


async def test_in_time_nothing_happens() -> None:
    a, _ = team(run_timeout=60.0)
    assert (await play(a)).final_output == "It is 42."


@pytest.mark.parametrize("seconds", [0, -1.0, "5", True])
def test_a_time_to_wait_is_some_seconds(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="run_timeout must be seconds or None"):
        handoff(agent("B"), run_timeout=seconds)
