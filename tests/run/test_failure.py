"""A target that fails while its caller waits: the caller is told, and stays in charge."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from crashes import Crash
from manager_agents import both as both_managers
from plain_and_streamed import both
from scripted_agents import HI, TO_B, agent, answers_of, look_up, requests, shown

from routelock import (
    Agent,
    GuardrailResult,
    HandoffRequest,
    Request,
    RunConfig,
    Runner,
    RunState,
    Tool,
    function_handler,
    handoff,
    tool,
)
from routelock.errors import (
    BudgetExceeded,
    ConfigError,
    HandoffTimeout,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ProviderError,
    RateLimited,
    RunTimeout,
)
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import text_of
from routelock.run.events import HandoffCompleted, HandoffFailed, HandoffOccurred
from routelock.run.executor import Call
from routelock.run.limits import Limits
from routelock.sessions import InMemorySessions, Session
from routelock.state.journal import Journal
from routelock.state.steps import StepExecutor
from routelock.testing import ScriptedHandler, assert_valid, call

pytestmark = pytest.mark.anyio

Target = Callable[[], Agent[Any]]


def team(b: Agent[Any], *replies: Any, **options: Any) -> Agent[Any]:
    """A, who asks B, waits for the answer and goes on."""
    declared = handoff(b, return_to_caller=True, **options)
    return agent("A", TO_B, *(replies or ("I do it myself.",)), handoffs=[declared])


def _no(context: Any, who: Any, value: Any) -> GuardrailResult:
    return GuardrailResult(True, output_info="secret plans")


def _broken(*_: Any) -> Any:
    raise KeyError("broken")


async def _raises(request: Request) -> str:
    raise ValueError("boom")


async def _runs_out_of_turns(request: Request) -> str:
    inner = agent("inner", call("look_up", {"order": 1}), tools=[look_up])
    return str((await Runner.run(inner, "Hi", max_turns=1)).final_output)


class _SaysNothing(ScriptedHandler):
    """Breaks its contract."""

    async def stream(self, request: Request, /) -> AsyncGenerator[Any]:
        for event in ():
            yield event


def _fatal_tool() -> Tool:
    @tool(on_error="raise")
    def pay() -> str:
        """Pay."""
        raise OSError("no money")

    return pay


def _guarded_tool() -> Tool:
    @tool(input_guardrails=[_no])
    def pay() -> str:
        """Pay."""
        return "paid"

    return pay


def _hands_on_badly() -> Agent[Any]:
    return agent("B", call("transfer_to_c"), handoffs=[handoff(agent("C"), input_filter=_broken)])


FAILURES: dict[str, tuple[Target, str]] = {
    "the provider": (
        lambda: Agent("B", model=ScriptedHandler([ProviderError("down")], name="B")),
        "ProviderError: down",
    ),
    "the provider, after retries": (
        lambda: Agent("B", model=ScriptedHandler([RateLimited("busy", retry_after=0.0)] * 3, name="B")),
        "RateLimited: busy",
    ),
    "a handler of the app": (
        lambda: Agent("B", model=function_handler(_raises)),
        "ValueError: boom",
    ),
    "a handler's contract": (
        lambda: Agent("B", model=_SaysNothing([], name="B")),
        "HandlerError: Handler 'B' of agent 'B' ended in turn 2 without a MessageDone.",
    ),
    "a tool that stops the run": (
        lambda: agent("B", call("pay"), tools=[_fatal_tool()]),
        "ToolError: Tool 'pay' failed: OSError: no money",
    ),
    "a guardrail of a tool": (
        lambda: agent("B", call("pay"), tools=[_guarded_tool()]),
        "ToolGuardrailTripped: guardrail '_no' stopped it",
    ),
    "its input guardrail": (
        lambda: agent("B", "Yes.", input_guardrails=[_no]),
        "InputGuardrailTripped: Guardrail '_no' stopped agent 'B' in turn 2: 'secret plans'",
    ),
    "its output guardrail": (
        lambda: agent("B", "Secret plans.", output_guardrails=[_no]),
        "OutputGuardrailTripped: guardrail '_no' stopped it",
    ),
    "its instructions": (
        lambda: Agent("B", _broken, model=ScriptedHandler(["Yes."])),
        "CallbackError: The instructions of agent 'B' raised KeyError: 'broken'",
    ),
    "what says whether a tool is there": (
        lambda: agent("B", "Yes.", tools=[tool(lambda: "", name="x", description="X.", is_enabled=_broken)]),
        "CallbackError: The is_enabled function of tool 'x' of agent 'B' raised KeyError: 'broken'",
    ),
    "its own hook": (
        lambda: agent("B", "Yes.", on_handoff_received=_broken),
        "CallbackError: on_handoff_received of agent 'B' raised KeyError: 'broken'",
    ),
    "mistakes": (
        lambda: agent("B", *[call("nothing")] * 3),
        "ModelBehaviorError: Agent 'B' made nothing but mistakes in 3 turns in a row, up to turn 4.",
    ),
    "an output of another type": (
        lambda: agent("B", *["no number"] * 3, output_type=int),
        "ModelBehaviorError: Agent 'B' gave no valid final output in 3 turns in a row, up to turn 4:",
    ),
    "going round": (
        lambda: agent("B", *[call("look_up", {"order": 7})] * 6, tools=[look_up]),
        "LoopDetected: Agent 'B' was told that it repeats itself, and went on:",
    ),
    "silence": (
        lambda: agent("B", call("look_up", {"order": 7}), "", "", tools=[look_up]),
        "LoopDetected: Agent 'B' gave an empty reply in turn 4",
    ),
    "a filter when it hands on": (
        _hands_on_badly,
        "HandoffFilterError: ",
    ),
}


TOLD = {
    "the provider, after retries": "RateLimited: its model gave no reply this time. Try it once more,",
    "going round": "LoopDetected: it made no progress. Ask for something else, or go on without it.",
    "silence": "LoopDetected: it made no progress. Ask for something else, or go on without it.",
}
"""What the caller's model reads, where that is another text than what the app reads."""


@pytest.mark.parametrize("what", FAILURES)
async def test_the_caller_is_told_and_goes_on(what: str) -> None:
    target, why = FAILURES[what]
    played = await both(lambda: team(target()), max_turns=20)
    assert (played.error, played.result.final_output) == (None, "I do it myself.")
    assert played.result.last_agent.name == "A"
    told = text_of(shown(played.agent, 1)[-1])
    assert told.startswith(f"'B' failed: {TOLD.get(what, why)}")
    assert "plans" not in told or "Input" in told  # what a guardrail stopped does not get round it


@pytest.mark.parametrize("what", FAILURES)
async def test_the_record_has_failed_and_says_why(what: str) -> None:
    target, why = FAILURES[what]
    played = await both(lambda: team(target()), max_turns=20)
    first = played.result.handoffs[0]
    assert (first.target, first.status) == ("B", HandoffStatus.FAILED)
    assert str(first.error).startswith(why)
    (problem,) = [each for each in played.result.errors if each.call_id == "t"]
    assert (problem.kind, problem.agent) == ("handoff", "A")
    assert problem.error is not None


@pytest.mark.parametrize("what", FAILURES)
async def test_what_it_took_is_counted(what: str) -> None:
    played = await both(lambda: team(FAILURES[what][0]()), max_turns=20)
    result = played.result
    hops = sum(record.usage.total_tokens for record in result.handoffs if record.usage is not None)
    of_a = result.usage_by_agent["A"].total_tokens
    assert result.usage.total_tokens == of_a + hops


@pytest.mark.parametrize("what", FAILURES)
async def test_next_run_continues_from_the_callers_view(what: str) -> None:
    target, _ = FAILURES[what]
    made = team(target(), "I do it myself.", "Again.")
    first = await Runner.run(made, "Hi", max_turns=20)
    assert_valid(first.to_input_list())
    await Runner.run(made, [*first.to_input_list(), HI])
    roles = [message["role"] for message in shown(made, 2)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_the_events_say_what_became_of_it() -> None:
    played = await both(lambda: team(FAILURES["the provider"][0]()))
    kinds = (HandoffOccurred, HandoffCompleted, HandoffFailed)
    why = "ProviderError: down"
    assert [event for event in played.events if isinstance(event, kinds)] == [
        HandoffOccurred(source="A", target="B", call_id="t"),
        HandoffCompleted(source="A", target="B", call_id="t", status=HandoffStatus.FAILED, error=why),
        HandoffFailed(source="A", target="B", call_id="t", reason=f"'B' failed: {why}"),
    ]


async def test_guardrails_beside_are_told_too() -> None:
    played = await both(lambda: team(agent("B", "Yes.", input_guardrails=[_no])), guardrails_beside=True)
    assert played.result.final_output == "I do it myself."
    assert played.result.usage_by_agent["B"].requests == 1


async def test_a_fallback_comes_first() -> None:
    def target() -> Agent[Any]:
        first, second = ScriptedHandler([ProviderError("down")]), ScriptedHandler(["42."], name="second")
        return Agent("B", model=first, handlers=[second])

    played = await both(lambda: team(target(), "It is 42."), fallback=True)
    assert text_of(shown(played.agent, 1)[-1]) == "42."


async def test_no_handler_is_left() -> None:
    def target() -> Agent[Any]:
        first, second = ScriptedHandler([ProviderError("down")]), ScriptedHandler([OSError("away")], name="2")
        return Agent("B", model=first, handlers=[second])

    played = await both(lambda: team(target()), fallback=True)
    assert text_of(shown(played.agent, 1)[-1]) == "'B' failed: OSError: away"
    assert played.result.final_output == "I do it myself."


async def test_the_innermost_caller_is_told() -> None:
    def three() -> Agent[Any]:
        c = Agent("C", model=ScriptedHandler([ProviderError("down")], name="C"))
        b = agent("B", call("transfer_to_c", id="c"), "B.", handoffs=[handoff(c, return_to_caller=True)])
        return team(b, "A after B.")

    played = await both(three)
    assert played.answers == ["'C' failed: ProviderError: down", "B."]
    assert [record.status for record in played.result.handoffs] == ["COMPLETED", "FAILED"]


async def test_failure_can_pass_through_all_callers() -> None:
    def three() -> Agent[Any]:
        c = Agent("C", model=ScriptedHandler([ProviderError("down")], name="C"))
        again = ProviderError("also down")
        b = agent("B", call("transfer_to_c", id="c"), again, handoffs=[handoff(c, return_to_caller=True)])
        return team(b)

    played = await both(three)
    assert played.answers == ["'C' failed: ProviderError: down", "'B' failed: ProviderError: also down"]
    assert [record.status for record in played.result.handoffs] == ["FAILED", "FAILED"]
    assert played.result.final_output == "I do it myself."


async def test_failure_after_a_further_handoff_reaches_the_caller() -> None:
    def three() -> Agent[Any]:
        c = Agent("C", model=ScriptedHandler([ProviderError("down")], name="C"))
        return team(agent("B", call("transfer_to_c", id="c"), handoffs=[c]))

    played = await both(three)
    assert played.answers[-1] == "'C' failed: ProviderError: down"
    assert [record.status for record in played.result.handoffs] == ["COMPLETED", "FAILED"]
    assert played.result.last_agent.name == "A"


async def test_a_handler_may_fail() -> None:
    def made() -> Agent[Any]:
        voice = ScriptedHandler([ProviderError("hoarse")], name="voice")
        asks = call("transfer_to_voice", id="t")
        return agent("A", asks, "No voice.", handoffs=[handoff(voice, return_to_caller=True)])

    played = await both(made)
    assert (played.result.final_output, played.result.last_handler) == ("No voice.", "A")
    assert played.answers == ["'voice' failed: ProviderError: hoarse"]


async def test_a_tool_that_asked_is_answered_with_it() -> None:
    def made() -> Agent[Any]:
        @tool
        def ask() -> HandoffRequest:
            """Ask B."""
            return HandoffRequest("B")

        b = Agent("B", model=ScriptedHandler([ProviderError("down")], name="B"))
        declared = handoff(b, return_to_caller=True)
        return agent("A", call("ask", id="q"), "Done.", tools=[ask], handoffs=[declared])

    result = (await both_managers(made)).result
    assert result.final_output == "Done."
    assert [item.message.get("tool_call_id") for item in result.items if item.kind == "handoff"] == ["q"]


async def test_places_are_given_back() -> None:
    capacity = Capacity({"B": 1, "C": 1})
    await both(lambda: team(_hands_on_badly()), capacity=capacity)
    assert (capacity.free("B"), capacity.free("C")) == (1, 1)


async def test_failed_target_releases_its_slot() -> None:
    capacity, free = Capacity({"B": 1, "C": 1}), list[Any]()

    @tool
    def look() -> str:
        """Look."""
        free.append((capacity.free("B"), capacity.free("C")))
        return "looked"

    c = handoff(agent("C"), return_to_caller=True, input_filter=_broken)
    b = agent("B", call("transfer_to_c"), handoffs=[c])
    declared = handoff(b, return_to_caller=True)
    a = agent("A", TO_B, call("look"), "Done.", tools=[look], handoffs=[declared])
    await Runner.run(a, "Hi", run_config=RunConfig(capacity=capacity))
    assert free == [(1, 1)]


async def test_its_mistakes_are_not_held_against_the_caller() -> None:
    def made() -> Agent[Any]:
        b = agent("B", *[call("nothing")] * 3)
        return team(b, call("nothing either"), "Now I know.")

    played = await both(made, max_turns=20)
    assert played.result.final_output == "Now I know."


async def test_its_silence_is_not_held_against_the_caller() -> None:
    b = lambda: agent("B", call("look_up", {"order": 7}), "", "", tools=[look_up])  # noqa: E731
    played = await both(lambda: team(b(), "", "Now I speak."), max_turns=20)
    assert played.result.final_output == "Now I speak."


async def test_mistakes_of_the_target_do_not_count_for_the_caller() -> None:
    def made() -> Agent[Any]:
        b = agent("B", "no number", "no number either", "7", output_type=int)
        return team(b, call("nothing"), "Seven.")

    played = await both(made)
    assert played.result.final_output == "Seven."


async def test_a_transfer_that_was_made_is_no_mistake() -> None:
    """A name beside it that is none does not make the turn nothing but mistakes."""
    both_calls = [call("nothing"), call("transfer_to_b")]

    def made() -> Agent[Any]:
        b = agent("B", "One.", "Two.", "Three.")
        return agent("A", *[both_calls] * 3, "Done.", handoffs=[handoff(b, return_to_caller=True)])

    played = await both(made, max_turns=20)
    assert (played.error, played.result.final_output) == (None, "Done.")


async def test_the_caller_may_ask_once_more() -> None:
    def made() -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler([ProviderError("down"), "42."], name="B"))
        return team(b, call("transfer_to_b", id="u"), "It is 42.")

    played = await both(made)
    assert played.answers == ["'B' failed: ProviderError: down", "42."]


async def test_asking_again_and_again_ends() -> None:
    def made() -> Agent[Any]:
        b = Agent("B", model=ScriptedHandler([ProviderError("down")] * 30, name="B"))
        declared = handoff(b, return_to_caller=True)
        return agent("A", *(call("transfer_to_b", id=f"t{n}") for n in range(30)), handoffs=[declared])

    played = await both(made, max_turns=None, max_handoffs=None)
    assert type(played.error).__name__ == "LoopDetected"
    assert len(played.result.handoffs) < 8


async def test_a_turn_without_a_model_call_does_not_count() -> None:
    made = team(FAILURES["its instructions"][0]())
    result = await Runner.run(made, "Hi", max_turns=2)
    assert [(each.agent, each.turn) for each in result.calls] == [("A", 1), ("A", 2)]


async def test_a_turn_that_failed_counts() -> None:
    made = team(FAILURES["the provider"][0]())
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(made, "Hi", max_turns=2)


async def test_open_calls_of_a_failed_target_are_answered() -> None:
    """One tool waits for an approval while another one stops the target: it cannot be approved any more."""

    def made() -> Agent[Any]:
        careful = tool(lambda: "done", name="careful", description="Wait.", needs_approval=True)
        b = agent("B", [call("careful", id="w"), call("pay", id="p")], tools=[careful, _fatal_tool()])
        return team(b)

    result = (await both_managers(made)).result
    assert (result.stop_reason, result.interruptions) == ("done", ())
    assert_valid(result.to_input_list())
    answered = {item.message.get("tool_call_id"): text_of(item.message) for item in result.items}
    assert answered["w"] == "This call was not carried out: the agent had failed before."


async def test_a_transfer_that_it_had_left_is_on_record() -> None:
    def made() -> Agent[Any]:
        b = agent("B", [call("pay"), call("transfer_to_c")], tools=[_fatal_tool()], handoffs=[agent("C")])
        return team(b)

    played = await both(made)
    assert [(each.target, each.status) for each in played.result.handoffs] == [
        ("B", "FAILED"),
        ("C", "REJECTED"),
    ]


# -- what ends the run all the same --


async def test_raise_on_ends_the_run() -> None:
    played = await both(lambda: team(FAILURES["the provider"][0]()), raise_on=["failed_handoff"])
    assert isinstance(played.error, ProviderError)
    assert played.result.handoffs[0].status is HandoffStatus.FAILED


async def test_raise_on_ends_the_run_on_a_timeout() -> None:
    async def never(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    b = Agent("B", model=function_handler(never))
    with pytest.raises(HandoffTimeout), anyio.fail_after(60):
        await Runner.run(team(b, run_timeout=0.02), "Hi", run_config=RunConfig(raise_on=["failed_handoff"]))


async def test_raise_on_ends_the_run_on_a_targets_mistake() -> None:
    played = await both(lambda: team(agent("B", call("nothing"))), raise_on=["unknown_tool"])
    assert isinstance(played.error, ModelBehaviorError)
    arguments = call("look_up", {"order": "x"})
    played = await both(lambda: team(agent("B", arguments, tools=[look_up])), raise_on=["bad_arguments"])
    assert isinstance(played.error, ModelBehaviorError)


async def test_limits_of_the_run_end_it() -> None:
    def b() -> Agent[Any]:
        return agent("B", *(call("look_up", {"order": n}) for n in range(9)), tools=[look_up])

    assert isinstance((await both(lambda: team(b()), max_turns=4)).error, MaxTurnsExceeded)
    played = await both(lambda: team(b()), limits=Limits(tool_calls=3), max_turns=20)
    assert isinstance(played.error, BudgetExceeded)


async def test_the_time_of_the_run_ends_it() -> None:
    async def never(request: Request) -> str:
        await anyio.sleep_forever()
        return ""

    with pytest.raises(RunTimeout), anyio.fail_after(60):
        await Runner.run(
            team(Agent("B", model=function_handler(never))), "Hi", run_config=RunConfig(timeout=0.05)
        )


async def test_limit_of_a_run_in_a_handler_is_a_failure() -> None:
    async def asks(request: Request) -> str:
        inner = agent("inner", *[call("look_up", {"order": n}) for n in range(9)], tools=[look_up])
        return (await Runner.run(inner, "Hi", max_turns=2)).final_output

    played = await both(lambda: team(Agent("B", model=function_handler(asks))))
    assert played.result.final_output == "I do it myself."


@pytest.mark.parametrize("journaled", [False, True])
async def test_another_handler_answers_for_one_whose_own_run_failed(journaled: bool, tmp_path: Path) -> None:
    async def asks(request: Request) -> str:
        inner = agent("inner", *[call("look_up", {"order": n}) for n in range(9)], tools=[look_up])
        return (await Runner.run(inner, "Hi", max_turns=2)).final_output

    second = ScriptedHandler(["Then I say it."], name="second")
    made = Agent("A", model=function_handler(asks), handlers=[second])
    config = RunConfig(fallback=True)
    if not journaled:
        result = await Runner.run(made, "Hi", run_config=config)
    else:
        async with Journal(tmp_path / "runs.db") as journal:
            result = await journal.run(made, "Hi", run_id="r", run_config=config)
    assert result.final_output == "Then I say it."


async def test_wrong_wiring_ends_the_run() -> None:
    async def miswired(request: Request) -> str:
        raise ConfigError("no such model")

    played = await both(lambda: team(Agent("B", model=function_handler(miswired))))
    assert isinstance(played.error, ConfigError)


async def test_a_tests_own_complaint_ends_the_run() -> None:
    async def complains(request: Request) -> str:
        raise AssertionError("not like this")

    with pytest.raises(AssertionError):
        await Runner.run(team(Agent("B", model=function_handler(complains))), "Hi")


async def test_a_cancelled_run_is_not_told() -> None:
    began = anyio.Event()

    async def waits(request: Request) -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    made = team(Agent("B", model=function_handler(waits)))
    async with anyio.create_task_group() as group:
        group.start_soon(Runner.run, made, "Hi")
        await began.wait()
        group.cancel_scope.cancel()
    assert len(requests(made)) == 1


# -- resumed, and through a journal --


@pytest.mark.parametrize("stream", [False, True])
async def test_a_resumed_target_may_fail(stream: bool) -> None:
    """It is stopped within its turn, goes on in another process, and fails there."""
    careful = tool(lambda: 1 / 0, name="careful", description="Wait.", needs_approval=True, on_error="raise")
    made = team(agent("B", call("careful", id="w"), tools=[careful]))
    first = await Runner.run(made, "Hi")
    state = RunState.from_json(first.state().to_json(), agents=[made])
    state = state.approve(state.interruptions[0])
    last = Runner.run_streamed(made, state).drain() if stream else Runner.run(made, state)
    result = await last
    assert result.final_output == "I do it myself."
    told = "'B' failed: ToolError: Tool 'careful' failed: ZeroDivisionError: division by zero"
    assert text_of(shown(made, 1)[-1]) == told


@pytest.mark.parametrize("what", FAILURES)
async def test_run_ended_by_a_target_can_be_resumed(what: str) -> None:
    """The caller was told, and then the run was left: nothing of the target's turn is taken up again."""
    target, why = FAILURES[what]
    made = team(target())
    async with Runner.run_streamed(made, "Hi", max_turns=20) as stream:
        async for event in stream:
            if isinstance(event, HandoffFailed) and event.call_id == "t":
                break
    text = stream.result.state().to_json()
    result = await Runner.run(made, RunState.from_json(text, agents=[made]), max_turns=20)
    assert result.final_output == "I do it myself."
    assert text_of(shown(made, 1)[-1]).startswith(f"'B' failed: {TOLD.get(what, why)}")
    assert_valid(result.to_input_list())


LASTING = {
    "the provider": (lambda: ScriptedHandler([ProviderError("down")], name="B"), "ProviderError: down"),
    "a handler of the app": (
        lambda: function_handler(_raises, name="B"),
        "ValueError: boom",
    ),
}


@pytest.mark.parametrize("what", LASTING)
async def test_a_journal_goes_the_same_way_again(what: str, tmp_path: Path) -> None:
    """After the crash the target would answer; what was recorded is that it failed, and what came of that."""
    model, why = LASTING[what]
    lives = {"dies": True}

    @tool
    async def note() -> str:
        """Note it."""
        if lives["dies"]:
            raise Crash
        return "noted"

    def made(b: Any, *replies: Any) -> Agent[Any]:
        declared = handoff(Agent("B", model=b), return_to_caller=True)
        return agent("A", *replies, tools=[note], handoffs=[declared])

    path = tmp_path / "runs.db"
    with pytest.raises(Crash):
        async with Journal(path) as journal:
            await journal.run(made(model(), TO_B, call("note", id="n")), "Hi", run_id="r")
    lives["dies"] = False
    async with Journal(path) as journal:
        result = await journal.run(made(ScriptedHandler(["42."], name="B"), "Done."), run_id="r")
    assert result.final_output == "Done."
    assert answers_of(result) == [f"'B' failed: {why}", "noted"]


@pytest.mark.parametrize("way", ["handoff", "tool"])
@pytest.mark.parametrize("function", [_raises, _runs_out_of_turns])
async def test_the_model_reads_the_same_with_an_executor(way: str, function: Any) -> None:
    kept: dict[str, str] = {}

    async def step(call: Call, work: Callable[[], Awaitable[str]]) -> str:
        return kept[call.key] if call.key in kept else kept.setdefault(call.key, await work())

    async def answers(executor: Any) -> list[str]:
        target = Agent("B", model=function_handler(function))
        handoffs = [handoff(target, return_to_caller=True)] if way == "handoff" else []
        made = call(
            "transfer_to_b" if way == "handoff" else "b", None if handoffs else {"input": "Hi"}, id="t"
        )
        a = agent(
            "A", made, "Done.", handoffs=handoffs, tools=[] if handoffs else [target.as_tool("b", "Asks.")]
        )
        return answers_of(await Runner.run(a, "Hi", run_config=RunConfig(executor=executor, run_id="r")))

    plain = await answers(None)
    assert "HandlerError" not in plain[0]
    assert await answers(StepExecutor(step)) == plain
    assert await answers(StepExecutor(step)) == plain  # replayed


async def test_a_session_keeps_what_the_caller_saw() -> None:
    """What a guardrail of the target stopped is shown to no later run."""
    session = Session("s", InMemorySessions())
    made = team(FAILURES["its output guardrail"][0](), "I do it myself.", "Again.")
    await Runner.run(made, "Hi", session=session)
    await Runner.run(made, "Once more.", session=session)
    roles = [message["role"] for message in shown(made, 2)]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert "Secret plans." not in str(requests(made)[2].messages)
