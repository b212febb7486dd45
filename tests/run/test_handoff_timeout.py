"""`run_timeout` of a handoff that does not return: the target's answer is final, unless it is too slow."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from scripted_agents import TO_B, agent, answers_of, look_up, requests, shown

from routelock import (
    Agent,
    GuardrailResult,
    Request,
    RunConfig,
    RunContext,
    Runner,
    RunResult,
    RunState,
    function_handler,
    handoff,
    tool,
)
from routelock.errors import HandoffTimeout, ProviderError
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Capacity
from routelock.history.messages import text_of
from routelock.run.events import HandoffCompleted, HandoffFailed, HandoffReturned
from routelock.run.executor import InProcess
from routelock.state.journal import Journal
from routelock.testing import ScriptedHandler, assert_valid, call
from routelock.tracing.recorder import TraceWriter
from routelock.tracing.records import ModelEnded, ModelStarted, RunStarted, TraceRecord

pytestmark = pytest.mark.anyio

LATE = "'B' timed out: there was no answer within 0.02 s"
TOLD = f"{LATE}. Answer the user yourself."


async def never(request: Request) -> str:
    await anyio.sleep_forever()
    return ""


@tool
async def dawdle() -> str:
    """Take longer than the source waits."""
    await anyio.sleep(1)
    return "done"


class Records:
    """A trace that keeps its records."""

    def __init__(self) -> None:
        self.all: list[TraceRecord] = []

    def begin(self, start: RunStarted, parent: TraceWriter | None) -> TraceWriter:
        return self

    def write(self, record: TraceRecord) -> None:
        self.all.append(record)


def slow(name: str = "B") -> Agent[Any]:
    return Agent(name, model=function_handler(never, name=name))


def team(b: Agent[Any], *replies: Any, seconds: float = 0.02, **options: Any) -> Agent[Any]:
    """A, who hands over to B for good, and stands by."""
    way = handoff(b, run_timeout=seconds, **options)
    return agent("A", TO_B, *(replies or ("I do it myself.",)), handoffs=[way])


async def play(start: Agent[Any], stream: bool = False, input: Any = "Hi", **config: Any) -> RunResult[Any]:
    settings = RunConfig(**{"run_id": "r", **config})
    with anyio.fail_after(60):
        if stream:
            return await Runner.run_streamed(start, input, run_config=settings).drain()
        return await Runner.run(start, input, run_config=settings)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_in_time_is_final(stream: bool) -> None:
    made = team(agent("B", "B here."), seconds=60.0)
    result = await play(made, stream)
    assert (result.final_output, result.last_agent.name) == ("B here.", "B")
    assert answers_of(result) == ['{"assistant": "B"}']
    assert [(record.status, record.error) for record in result.handoffs] == [("COMPLETED", None)]
    assert len(requests(made)) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_the_source_answers_when_the_target_is_too_slow(stream: bool) -> None:
    made = team(slow())
    result = await play(made, stream)
    assert (result.final_output, result.last_agent.name) == ("I do it myself.", "A")
    (record,) = result.handoffs
    assert (record.status, record.error) == (HandoffStatus.FAILED, LATE)
    assert [(each.kind, each.call_id) for each in result.errors] == [("handoff", "t")]
    assert_valid(result.to_input_list())


async def test_the_source_knows_why_it_goes_on() -> None:
    made = team(slow())
    await play(made)
    assert shown(made, 1)[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [TO_B]},
        {"role": "tool", "tool_call_id": "t", "content": '{"assistant": "B"}'},
        {"role": "user", "content": TOLD},
    ]


async def test_the_next_run_goes_on_from_there() -> None:
    made = team(slow(), "I do it myself.", "Again.")
    first = await play(made)
    await play(made, input=[*first.to_input_list(), {"role": "user", "content": "And?"}])
    assert [message["role"] for message in shown(made, 2)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "user",
    ]


async def test_the_events_say_so() -> None:
    kinds = (HandoffCompleted, HandoffFailed, HandoffReturned)
    with anyio.fail_after(60):
        async with Runner.run_streamed(team(slow()), "Hi") as stream:
            events = [event async for event in stream if isinstance(event, kinds)]
    assert events == [
        HandoffCompleted(source="A", target="B", call_id="t", status=HandoffStatus.FAILED, error=LATE),
        HandoffFailed(source="A", target="B", call_id="t", reason=LATE),
    ]


@pytest.mark.virtual_time
async def test_deadline_holds_for_a_further_handoff() -> None:
    made = team(agent("B", call("transfer_to_c"), handoffs=[slow("C")]))
    result = await play(made)
    assert result.final_output == "I do it myself."
    assert [record.status for record in result.handoffs] == ["COMPLETED", "FAILED"]


async def test_a_failure_ends_the_run_as_of_any_target() -> None:
    """Only an agent that waits for the answer is told."""
    broken = Agent("B", model=ScriptedHandler([ProviderError("down")]))
    with pytest.raises(ProviderError) as caught:
        await play(team(broken, seconds=60.0))
    assert caught.value.result.handoffs[0].status is HandoffStatus.FAILED


async def test_raise_on_ends_the_run() -> None:
    with pytest.raises(HandoffTimeout):
        await play(team(slow()), raise_on=["failed_handoff"])


@pytest.mark.virtual_time
@pytest.mark.parametrize("executor", [None, InProcess()])
async def test_call_that_is_too_late_to_make_is_not_counted(executor: InProcess | None) -> None:
    made = team(agent("B", call("dawdle"), "Never.", tools=[dawdle]))
    with pytest.raises(HandoffTimeout) as caught:
        await play(made, raise_on=["failed_handoff"], executor=executor)
    result = caught.value.result
    assert (result.usage.requests, len(result.calls)) == (2, 2)


@pytest.mark.virtual_time
@pytest.mark.parametrize("raise_on", [[], ["failed_handoff"]])
@pytest.mark.parametrize("executor", [None, InProcess()])
async def test_call_that_is_too_late_to_make_ends_in_the_trace(
    executor: InProcess | None, raise_on: list[str]
) -> None:
    made = team(agent("B", call("dawdle"), "Never.", tools=[dawdle]))
    records = Records()
    with suppress(HandoffTimeout):
        await play(made, trace=records, executor=executor, raise_on=raise_on)
    began = [each.call for each in records.all if isinstance(each, ModelStarted)]
    assert began == [each.call for each in records.all if isinstance(each, ModelEnded)]


@pytest.mark.virtual_time
@pytest.mark.parametrize("executor", [None, InProcess()])
async def test_source_goes_on_after_a_call_beside_a_guardrail_was_too_late(
    executor: InProcess | None,
) -> None:
    async def instructions() -> str:
        await anyio.sleep(1)
        return "Help."

    async def passes(context: Any, agent: Any, messages: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=False)

    b = Agent("B", instructions, model=ScriptedHandler([]), input_guardrails=[passes])
    result = await play(team(b), executor=executor, guardrails_beside=True)
    assert (result.final_output, result.last_agent.name) == ("I do it myself.", "A")


async def test_nested_answer_goes_to_its_own_caller() -> None:
    """Z waits for A, which hands over to B for good: what B says answers Z."""
    a = team(agent("B", "B here."), seconds=60.0)
    z = agent("Z", call("transfer_to_a", id="a"), "Z here.", handoffs=[handoff(a, return_to_caller=True)])
    result = await play(z)
    assert (result.final_output, text_of(shown(z, 1)[-1])) == ("Z here.", "B here.")
    assert [record.status for record in result.handoffs] == ["COMPLETED", "COMPLETED"]
    assert_valid(result.to_input_list())


async def test_standby_agent_answers_the_waiting_caller() -> None:
    z = agent(
        "Z", call("transfer_to_a", id="a"), "Z here.", handoffs=[handoff(team(slow()), return_to_caller=True)]
    )
    result = await play(z)
    assert (result.final_output, text_of(shown(z, 1)[-1])) == ("Z here.", "I do it myself.")
    assert [record.status for record in result.handoffs] == ["COMPLETED", "FAILED"]


async def test_a_failure_is_told_beyond_one_that_stands_by() -> None:
    broken = Agent("B", model=ScriptedHandler([ProviderError("down")], name="B"))
    a = team(broken, seconds=60.0)
    z = agent("Z", call("transfer_to_a", id="a"), "Z here.", handoffs=[handoff(a, return_to_caller=True)])
    result = await play(z)
    assert (result.final_output, text_of(shown(z, 1)[-1])) == ("Z here.", "'B' failed: ProviderError: down")
    assert [record.status for record in result.handoffs] == ["FAILED", "FAILED"]
    assert_valid(result.to_input_list())


@pytest.mark.parametrize("seconds", [None, 60.0])
async def test_it_does_not_wait_for_itself(seconds: float | None) -> None:
    """B hands back; however long A takes then, it is in charge, and no earlier A goes on in its stead."""
    said: list[str] = []

    async def a_says(request: Request) -> Any:
        said.append("A")
        if len(said) == 1:
            return {"content": None, "tool_calls": [TO_B]}
        await anyio.sleep(0.1)
        return "A again."

    b = agent("B", call("transfer_to_a"), handoffs=[handoff("A", run_timeout=seconds)])
    made = Agent("A", model=function_handler(a_says, name="A"), handoffs=[handoff(b, run_timeout=0.05)])
    result = await play(made)
    assert (result.final_output, len(said)) == ("A again.", 2)
    assert [record.status for record in result.handoffs] == ["COMPLETED", "COMPLETED"]


async def test_places_are_given_back() -> None:
    capacity = Capacity({"A": 1, "B": 1, "C": 1})
    b = agent("B", call("transfer_to_a"), handoffs=["A"])
    stands_by, too = handoff("A", run_timeout=60.0), call("transfer_to_a")
    for made in (
        team(agent("B", "B here."), seconds=60.0),
        team(slow()),
        team(agent("B", call("transfer_to_c"), handoffs=[slow("C")])),
        agent("A", TO_B, "A again.", handoffs=[handoff(b, run_timeout=60.0)]),
        agent("A", TO_B, "A.", handoffs=[handoff(agent("B", too, handoffs=[stands_by]), run_timeout=60.0)]),
    ):
        await play(made, capacity=capacity)
        assert [capacity.free(name) for name in "ABC"] == [1, 1, 1]


async def test_the_target_stays_for_the_next_message() -> None:
    made = team(agent("B", "B here."), seconds=60.0)
    assert (await play(made, next_agent="sticky")).next_agent.name == "B"
    assert (await play(team(slow()), next_agent="sticky")).next_agent.name == "A"


async def test_the_target_stays_when_it_is_cut_off() -> None:
    made = team(agent("B", call("look_up", {"order": 1}), tools=[look_up]), seconds=60.0)
    result = await Runner.run(
        made, "Hi", max_turns=2, run_config=RunConfig(next_agent="sticky", on_limit="return")
    )
    assert result.next_agent.name == "B"


async def test_memory_is_that_of_the_source_again() -> None:
    seen: list[Any] = []

    @tool
    def look(context: RunContext[Any]) -> str:
        """Look at the memory."""
        seen.append(sorted(context.shared_memory))
        return "looked"

    way = handoff(slow(), run_timeout=0.02, share=["cart"])
    made = agent("A", TO_B, call("look"), "Done.", tools=[look], handoffs=[way])
    await play(made, shared_memory={"cart": 1, "token": 2})
    assert seen == [["cart", "token"]]


@pytest.mark.parametrize("answers", [True, False])
async def test_it_goes_on_in_another_process(answers: bool) -> None:
    """The target waits for an approval; the source stands by in the state as well."""
    careful = tool(lambda: "done", name="careful", description="Wait.", needs_approval=True)
    b = agent("B", call("careful", id="w"), "B here.", tools=[careful])
    made = team(b, seconds=60.0)
    text = (await play(made)).state().to_json()
    if not answers:  # B is slow there
        made = team(Agent("B", model=function_handler(never, name="B"), tools=[careful]))
        text = text.replace('"seconds":60.0', '"seconds":0.02')
        made = agent("A", "I do it myself.", handoffs=made.handoffs)
    state = RunState.from_json(text, agents=[made])
    assert len(state.document.waiting) == 1
    with anyio.fail_after(60):
        result = await Runner.run(made, state.approve(state.interruptions[0]))
    expected = ("B here.", "B") if answers else ("I do it myself.", "A")
    assert (result.final_output, result.last_agent.name) == expected
    assert_valid(result.to_input_list())


async def test_state_after_a_timeout_resumes_with_the_source() -> None:
    made = team(slow())
    with anyio.fail_after(60):
        async with Runner.run_streamed(made, "Hi") as stream:
            async for event in stream:
                if isinstance(event, HandoffFailed):
                    break
    state = RunState.from_json(stream.result.state().to_json(), agents=[made])
    result = await Runner.run(made, state)
    assert (result.final_output, text_of(shown(made, 1)[-1])) == ("I do it myself.", TOLD)


async def test_a_journal_does_not_wait_again(tmp_path: Any) -> None:
    dies = [True]

    class Crash(BaseException): ...

    @tool
    async def note() -> str:
        """Note it."""
        if dies:
            raise Crash
        return "noted"

    def made(b: Agent[Any], *replies: Any) -> Agent[Any]:
        return agent("A", *replies, tools=[note], handoffs=[handoff(b, run_timeout=0.02)])

    with anyio.fail_after(60):
        with pytest.raises(Crash):
            async with Journal(tmp_path / "runs.db") as journal:
                await journal.run(made(slow(), TO_B, call("note", id="n")), "Hi", run_id="r")
        dies.clear()
        async with Journal(tmp_path / "runs.db") as journal:
            result = await journal.run(made(agent("B", "B here."), "Done."), run_id="r")
    assert (result.final_output, result.handoffs[0].error) == ("Done.", LATE)
