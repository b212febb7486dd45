"""Guardrails stop a run: an agent's own when it is active, the run's around it."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from scripted_agents import outcome

from routelock import Agent, GuardrailResult, Request, Retry, RunConfig, Runner, function_handler, tool
from routelock.errors import (
    CallbackError,
    GuardrailTripped,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    ServerFailed,
)
from routelock.guardrails import Guardrail
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.history.validity import problems
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio


class Watch:
    """A guardrail that records its values, and trips on a word."""

    def __init__(self, trip_on: str = "") -> None:
        self.seen: list[Any] = []
        self.trip_on = trip_on

    def __call__(self, context: Any, agent: Any, value: Any) -> GuardrailResult:
        self.seen.append((agent.name, context.turn, value))
        found = bool(self.trip_on) and self.trip_on in str(value)
        return GuardrailResult(found, f"found {self.trip_on!r}")


def two(source: dict[str, Any], target: dict[str, Any]) -> Agent[Any]:
    last = Agent("B", model=ScriptedHandler(["B here."]), **target)
    return Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[last], **source)


async def test_input_guardrails_run_when_their_agent_becomes_active() -> None:
    """The specialist's do not run before the transfer, and see what the specialist sees."""
    a, b = Watch(), Watch()
    await Runner.run(two({"input_guardrails": [a]}, {"input_guardrails": [b]}), "Hi")
    assert [(name, turn) for name, turn, _ in a.seen + b.seen] == [("A", 1), ("B", 2)]
    assert a.seen[0][2] == [{"role": "user", "content": "Hi"}]
    assert [message["role"] for message in b.seen[0][2]] == ["user", "user"]  # the note, and the question
    assert b.seen[0][2][1] == {"role": "user", "content": "Hi"}


async def test_output_guardrails_are_those_of_the_agent_that_answers() -> None:
    """They are not inherited over a handoff."""
    a, b = Watch(), Watch()
    await Runner.run(two({"output_guardrails": [a]}, {"output_guardrails": [b]}), "Hi")
    assert a.seen == []
    assert b.seen == [("B", 2, "B here.")]


async def test_the_runs_guardrails_hold_for_the_whole_run() -> None:
    first, last = Watch(), Watch()
    config = RunConfig(input_guardrails=[first], output_guardrails=[last])
    await Runner.run(two({}, {}), "Hi", run_config=config)
    assert [(name, value) for name, _, value in first.seen] == [("A", [{"role": "user", "content": "Hi"}])]
    assert last.seen == [("B", 2, "B here.")]


async def test_a_tripped_input_guardrail_stops_before_the_model() -> None:
    script = ScriptedHandler([])
    agent = Agent("A", model=script, input_guardrails=[Watch(), Watch("secret")])
    with pytest.raises(InputGuardrailTripped, match=r"'Watch' stopped agent 'A'.*found 'secret'") as caught:
        await Runner.run(agent, "the secret")
    assert script.requests == []
    assert (caught.value.guardrail, caught.value.info) == ("Watch", "found 'secret'")
    assert caught.value.result.stop_reason == "error"


async def test_a_tripped_guardrail_of_the_run_stops_before_anything() -> None:
    script, own = ScriptedHandler([]), Watch()
    agent = Agent("A", model=script, input_guardrails=[own])
    with pytest.raises(InputGuardrailTripped):
        await Runner.run(agent, "secret", run_config=RunConfig(input_guardrails=[Watch("secret")]))
    assert (script.requests, own.seen) == ([], [])


async def test_target_guardrail_can_refuse_the_handoff_input() -> None:
    with pytest.raises(InputGuardrailTripped, match="stopped agent 'B'") as caught:
        await Runner.run(two({}, {"input_guardrails": [Watch("handed over to")]}), "Hi")
    result = caught.value.result
    assert (result.last_agent.name, outcome(result.handoffs[0])) == ("B", "taken")
    assert problems(result.to_input_list()) == []


@pytest.mark.parametrize("where", ["agent", "run"])
async def test_tripped_output_guardrail_hides_the_output(where: str) -> None:
    watch = Watch("5")
    own, others = ([watch], []) if where == "agent" else ([], [watch])
    agent = Agent("A", model=ScriptedHandler(["It is 5."]), output_guardrails=own)
    config = RunConfig(output_guardrails=others)
    with pytest.raises(OutputGuardrailTripped) as caught:
        await Runner.run(agent, "Hi", run_config=config)
    assert caught.value.result.final_output is None
    assert caught.value.result.messages[-1].get("content") == "It is 5."


async def check_async(context: Any, agent: Any, value: Any) -> GuardrailResult:
    await anyio.lowlevel.checkpoint()
    return GuardrailResult(True, "async")


def check_with(limit: int, context: Any, agent: Any, value: Any) -> GuardrailResult:
    return GuardrailResult(len(value) > limit, limit)


@pytest.mark.parametrize(
    ("guardrail", "name"), [(check_async, "check_async"), (functools.partial(check_with, 1), "check_with")]
)
async def test_guardrails_may_be_async_and_partial(guardrail: Guardrail, name: str) -> None:
    agent = Agent("A", model=ScriptedHandler(["Hello."]), output_guardrails=[guardrail])
    with pytest.raises(GuardrailTripped) as caught:
        await Runner.run(agent, "Hi")
    assert caught.value.guardrail == name


def broken(context: Any, agent: Any, value: Any) -> GuardrailResult:
    raise KeyError("mine")


def wrong(context: Any, agent: Any, value: Any) -> Any:
    return True


@pytest.mark.pairwise
@pytest.mark.parametrize("guardrail", [broken, wrong])
@pytest.mark.parametrize("kind", ["input_guardrails", "output_guardrails"])
@pytest.mark.parametrize("whose", ["agent", "run"])
async def test_a_guardrail_that_fails_stops_the_run(guardrail: Any, kind: str, whose: str) -> None:
    """A check that could not be made must not count as passed."""
    own: Any = {kind: [guardrail]}
    options: Any = own if whose == "agent" else {}
    agent: Agent = Agent("A", model=ScriptedHandler(["Hello."]), **options)
    config = RunConfig(**(own if whose == "run" else {}))
    with pytest.raises(CallbackError, match=r"An (in|out)put guardrail of"):
        await Runner.run(agent, "Hi", run_config=config)


async def test_wrong_result_of_a_guardrail_is_explained() -> None:
    agent = Agent("A", model=ScriptedHandler(["Hello."]), output_guardrails=[wrong])
    with pytest.raises(
        CallbackError, match=r"return a GuardrailResult, such as GuardrailResult\(False\) .*, not True"
    ):
        await Runner.run(agent, "Hi")


async def test_refused_input_is_checked_again_on_resume() -> None:
    watch = Watch("secret")
    agent = Agent("A", model=ScriptedHandler(["Hello."]), input_guardrails=[watch])
    with pytest.raises(InputGuardrailTripped) as caught:
        await Runner.run(agent, "secret")
    with pytest.raises(InputGuardrailTripped):
        await Runner.run(agent, caught.value.result.state())
    assert len(watch.seen) == 2


BESIDE = RunConfig(guardrails_beside=True)


class Meeting:
    """A guardrail and a model that wait for one another: they meet only when they run at the same time."""

    def __init__(self, *, trips: bool = False, after: bool = False, fails: bool = False) -> None:
        self.trips, self.after, self.fails = trips, after, fails
        self.asked, self.answered, self.judged = anyio.Event(), anyio.Event(), anyio.Event()
        self.shown: list[str] = []
        self.ran: list[str] = []

    async def guardrail(self, context: Any, agent: Any, value: Any) -> GuardrailResult:
        await (self.answered if self.after else self.asked).wait()
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        self.judged.set()
        return GuardrailResult(self.trips, "no")

    async def model(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        self.asked.set()
        if self.fails:
            raise ServerFailed("down")
        yield TextDelta("Hel")
        if not self.after:
            await (anyio.sleep_forever() if self.trips else self.judged.wait())
        yield TextDelta("lo.")
        self.answered.set()
        yield MessageDone(message={"role": "assistant", "content": "Hello."}, usage=Usage(1, 5, 2))

    def agent(self, *more: Any) -> Agent[Any]:
        handlers = [function_handler(self.model, name="m"), *more]
        return Agent("A", handlers=handlers, input_guardrails=[self.guardrail])

    async def play(self, stream: bool, config: RunConfig = BESIDE) -> Any:
        if not stream:
            return await Runner.run(self.agent(), "Hi", run_config=config)
        async with Runner.run_streamed(self.agent(), "Hi", run_config=config) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    assert self.judged.is_set(), "shown before it was judged"
                    self.shown.append(event.text)
        return events.result


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [False, True])
async def test_parallel_guardrail_delays_output_until_it_passes(stream: bool, after: bool) -> None:
    meeting = Meeting(after=after)
    result = await meeting.play(stream)
    assert (result.final_output, result.usage) == ("Hello.", Usage(1, 5, 2))
    assert "".join(meeting.shown) == ("Hello." if stream else "")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [False, True])
async def test_refused_input_has_no_reply_and_counted_usage(stream: bool, after: bool) -> None:
    meeting = Meeting(trips=True, after=after)
    with pytest.raises(InputGuardrailTripped) as caught:
        await meeting.play(stream)
    result = caught.value.result
    assert (meeting.shown, [item.kind for item in result.items]) == ([], ["input"])
    assert result.usage == (Usage(1, 5, 2) if after else Usage(requests=1, estimated=True))


async def test_tool_waits_for_the_input_guardrail() -> None:
    order: list[str] = []

    async def slow(context: Any, agent: Any, value: Any) -> GuardrailResult:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        order.append("judged")
        return GuardrailResult(False)

    @tool
    async def act() -> str:
        """Act."""
        order.append("acted")
        return "done"

    agent = Agent("A", model=ScriptedHandler([call("act"), "Ok."]), tools=[act], input_guardrails=[slow])
    await Runner.run(agent, "Hi", run_config=BESIDE)
    assert order == ["judged", "acted"]


async def test_input_is_checked_once_with_a_fallback_model() -> None:
    meeting = Meeting(fails=True)
    agent = meeting.agent(ScriptedHandler(["From the other."], name="other"))
    config = RunConfig(guardrails_beside=True, fallback=True, retry=Retry(attempts=1))
    result = await Runner.run(agent, "Hi", run_config=config)
    assert result.final_output == "From the other."


async def test_parallel_guardrail_checks_again_on_resume() -> None:
    agent = Meeting(trips=True, after=True).agent()
    with pytest.raises(InputGuardrailTripped) as first:
        await Runner.run(agent, "Hi", run_config=BESIDE)
    with pytest.raises(InputGuardrailTripped):
        await Runner.run(agent, first.value.result.state(), run_config=BESIDE)


@pytest.mark.virtual_time
async def test_run_cancelled_during_an_input_guardrail_has_no_reply() -> None:
    script = ScriptedHandler(["Hello."])

    async def never(context: Any, agent: Any, value: Any) -> GuardrailResult:
        await anyio.sleep_forever()
        raise AssertionError

    stream = Runner.run_streamed(Agent("A", model=script, input_guardrails=[never]), "Hi", run_config=BESIDE)
    with anyio.move_on_after(0.05):
        await stream.drain()
    await stream.aclose()
    result = stream.result
    assert ([item.kind for item in result.items], result.usage.requests) == (["input"], 1)


async def test_refusal_during_cancellation_is_no_exception_group() -> None:
    with anyio.CancelScope() as scope:

        async def refuse(context: Any, agent: Any, value: Any) -> GuardrailResult:
            scope.cancel()
            return GuardrailResult(True, "no")

        model = function_handler(Meeting(trips=True).model, name="m")
        agent = Agent("A", model=model, input_guardrails=[refuse])
        await Runner.run(agent, "Hi", run_config=BESIDE)
    assert scope.cancelled_caught


async def test_only_the_first_call_of_an_agent_waits() -> None:
    watch = Watch()
    a = two({"input_guardrails": [watch]}, {"input_guardrails": [watch]})
    await Runner.run(a, "Hi", run_config=BESIDE)
    assert [(name, turn) for name, turn, _ in watch.seen] == [("A", 1), ("B", 2)]
