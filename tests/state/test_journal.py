"""Runs that survive the process: nothing is asked or done twice that was written down."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from crashes import Crash, Dies, is_crash
from scenes import SCENES, Scene, Stage, facts
from scripted_agents import agent, requests

from routelock import Agent, RunConfig, Runner, function_handler, function_tool, handoff, tool
from routelock.errors import (
    CallbackError,
    ConfigError,
    HandlerError,
    JournalError,
    MaxTurnsExceeded,
    ProviderTimeout,
    RateLimited,
    RoutelockError,
    RunTimeout,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.run.events import RunDone
from routelock.run.executor import Call, Outcome
from routelock.state.journal import Journal, JournalSteps
from routelock.testing import ScriptedHandler, call

pytestmark = pytest.mark.anyio

PAY = call("pay", {"amount": 5}, id="p")
TO_B = call("transfer_to_b", id="t")


class Till:
    """Counts what is paid; may die while it pays."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.dies = False

    def tool(self, **options: Any) -> Any:
        async def pay(amount: int) -> str:
            """Pay."""
            await anyio.lowlevel.checkpoint()
            if self.dies:
                raise Crash
            self.paid.append(amount)
            return f"paid {amount}"

        return tool(**options)(pay)


class Dying:
    """A model that dies in the middle of its last reply."""

    def __init__(self, *replies: Any) -> None:
        self.name = "dying"
        self._inner = ScriptedHandler(replies)
        self._left = len(replies)

    async def stream(self, request: Any) -> AsyncGenerator[HandlerEvent]:
        if not self._left:
            yield TextDelta("I was about to s")
            raise Crash
        self._left -= 1
        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                yield event


def pays() -> Any:
    """A model that pays unless it is shown that it did."""

    async def say(request: Any) -> Any:
        return "Paid." if request.messages[-1]["role"] == "tool" else {"content": None, "tool_calls": [PAY]}

    return function_handler(say, name="dying")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def run(path: Path, starting: Agent[Any], input: Any = None, run_id: str = "r", **options: Any) -> Any:
    """A process's life."""
    async with Journal(path) as journal:
        return await journal.run(starting, input, run_id="r", **options)


async def watch(path: Path, starting: Agent[Any], input: Any = None) -> list[Any]:
    """A process's life, with somebody who looks on."""
    async with Journal(path) as journal:
        return [event async for event in journal.stream(starting, input, run_id="r")]


async def status(path: Path) -> str:
    async with Journal(path) as journal:
        (one,) = await journal.runs()
        return one.status


# -- one life --


async def test_a_run_is_what_it_is_without_a_journal(path: Path) -> None:
    till = Till()
    result = await run(path, agent("A", PAY, "Paid.", tools=[till.tool()]), "Hi")
    assert (result.final_output, till.paid, result.context.run_id) == ("Paid.", [5], "r")


async def test_one_that_is_done_is_not_made_again(path: Path) -> None:
    till = Till()
    first = await run(path, agent("A", PAY, "Paid.", tools=[till.tool()]), "Hi")
    second = await run(path, agent("A", tools=[till.tool()]), "Hi")
    assert (second.final_output, second.messages, till.paid) == (first.final_output, first.messages, [5])


async def test_other_input_under_the_same_id_is_refused(path: Path) -> None:
    await run(path, agent("A", "Hello."), "Hi")
    with pytest.raises(ConfigError, match="'r' began with other input"):
        await run(path, agent("A", "Hello."), "Ho")
    with pytest.raises(ConfigError, match="'r' began with agent 'A', not 'B'"):
        await run(path, agent("B", "Hello."), "Hi")


async def test_a_run_that_is_not_known_needs_an_input(path: Path) -> None:
    with pytest.raises(ConfigError, match="knows no run 'r': begin it with an input"):
        await run(path, agent("A", "Hello."))
    async with Journal(path) as journal:
        with pytest.raises(ConfigError, match="knows no run 'x'"):
            await journal.state("x", agents=[])


@pytest.mark.parametrize("settings", [{"run_id": "x"}, {"executor": object()}])
async def test_what_the_journal_sets_is_not_given(path: Path, settings: Any) -> None:
    with pytest.raises(ConfigError, match="leave them out"):
        await run(path, agent("A", "Hello."), "Hi", run_config=RunConfig(**settings))


async def test_a_run_is_carried_out_once_at_a_time(path: Path) -> None:
    async with Journal(path) as journal:

        @function_tool
        async def again() -> str:
            """Again."""
            with pytest.raises(ConfigError, match="being carried out by this process"):
                await journal.run(a, run_id="r")
            with pytest.raises(ConfigError, match="being carried out by this process"):
                await journal.forget("r")
            return "ok"

        a = agent("A", call("again"), "Done.", tools=[again])
        assert (await journal.run(a, "Hi", run_id="r")).final_output == "Done."


async def test_many_runs_at_once(path: Path) -> None:
    outputs: dict[int, str] = {}
    async with Journal(path) as journal:

        async def one(number: int) -> None:
            till = Till()
            a = agent("A", call("pay", {"amount": number}), f"Paid {number}.", tools=[till.tool()])
            result = await journal.run(a, "Hi", run_id=f"r{number}")
            assert till.paid == [number]
            outputs[number] = result.final_output

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, number)
        assert len(await journal.runs("done")) == 20
    assert outputs == {number: f"Paid {number}." for number in range(20)}


async def test_what_is_forgotten_is_gone(path: Path) -> None:
    async with Journal(path) as journal:
        await journal.run(agent("A", "Hello."), "Hi", run_id="r")
        await journal.forget("r")
        assert await journal.runs() == []
    db = sqlite3.connect(path)
    assert db.execute("SELECT COUNT(*) FROM routelock_steps").fetchone() == (0,)
    db.close()


# -- a crash --


async def test_a_reply_that_was_complete_is_not_asked_for_again(path: Path) -> None:
    till = Till()
    till.dies = True
    with pytest.raises(Crash):
        await run(path, agent("A", PAY, tools=[till.tool()]), "Hi")
    assert await status(path) == "running"
    till.dies = False
    a = agent("A", "Paid.", tools=[till.tool()])
    result = await run(path, a, "Hi")
    assert (result.final_output, till.paid, len(requests(a))) == ("Paid.", [5], 1)
    assert result.usage.requests == 2


async def test_a_tool_that_was_done_is_not_run_again(path: Path) -> None:
    till = Till()
    with pytest.raises(Crash):
        await run(path, Agent("A", model=Dying(PAY), tools=[till.tool()]), "Hi")
    assert till.paid == [5]
    result = await run(path, Agent("A", model=Dying("Paid."), tools=[till.tool()]))
    assert (result.final_output, till.paid) == ("Paid.", [5])


async def test_each_of_several_tools_is_written_as_soon_as_it_is_done() -> None:
    written, kept = anyio.Event(), dict[str, str]()

    async def write(key: str, entry: str) -> None:
        kept[key] = entry
        written.set()

    async def body(step: Call) -> Outcome:
        if step.key == "slow":
            await written.wait()
            raise Crash
        return {"ok": {"output": "quick", "usage": None}}

    steps = [Call("r", key, "tool", {}) for key in ("slow", "quick")]
    with pytest.raises(Crash):
        await JournalSteps({}, write).gather(steps, body)
    assert list(kept) == ["quick"]


async def test_a_run_within_a_run_goes_on_too(path: Path) -> None:
    till = Till()

    def boss(*inner: Any, outer: tuple[Any, ...]) -> Agent[Any]:
        helper = Agent("clerk", model=Dying(*inner), tools=[till.tool()])
        return agent("boss", *outer, tools=[helper.as_tool()])

    with pytest.raises(Crash):
        await run(path, boss(PAY, outer=(call("clerk", {"input": "Pay."}, id="c"),)), "Hi")
    result = await run(path, boss("Paid.", outer=("All paid.",)))
    assert (result.final_output, till.paid) == ("All paid.", [5])


async def test_who_stood_in_for_a_handler_that_failed_goes_on(path: Path) -> None:
    """The one that failed is not asked again: it might say something else now."""

    def a(first: Any, *backup: Any) -> Agent[Any]:
        handlers = [ScriptedHandler([first], name="first"), Dying(*backup)]
        return Agent("A", handlers=handlers, tools=[till.tool()])

    till, settings = Till(), RunConfig(fallback=True)
    with pytest.raises(Crash):
        await run(path, a(RateLimited("Slow down.", retryable=False), PAY), "Hi", run_config=settings)
    result = await run(path, a("Not me.", "Paid."), "Hi", run_config=settings)
    assert (result.final_output, till.paid) == ("Paid.", [5])
    assert isinstance(result.errors[0].error, RateLimited)


async def _never(request: Any) -> str:
    await anyio.sleep_forever()
    return ""


async def _trickle(request: Any) -> AsyncGenerator[str]:
    yield "Let me "
    await anyio.sleep_forever()


async def _hurry(request: Any) -> str:
    return "Here I am."


@pytest.mark.virtual_time(threads=True)
async def test_a_handler_that_was_too_slow_before_a_crash_is_not_asked_again(path: Path) -> None:
    def a(first: Any, *backup: Any) -> Agent[Any]:
        slow = function_handler(first, name="first")
        return Agent("A", handlers=[slow, Dying(*backup)], tools=[till.tool()])

    till, settings = Till(), RunConfig(fallback=True, turn_timeout=0.5)
    with pytest.raises(Crash):
        await run(path, a(_never, PAY), "Hi", run_config=settings)
    result = await run(path, a(_hurry, "Paid."), "Hi", run_config=settings)
    assert (result.final_output, till.paid) == ("Paid.", [5])
    assert isinstance(result.errors[0].error, ProviderTimeout)


@pytest.mark.virtual_time(threads=True)
@pytest.mark.parametrize(("slow", "said"), [(_never, []), (_trickle, ["Let me "])])
async def test_whom_nobody_waited_for_before_a_crash_is_not_asked_again(
    path: Path, slow: Any, said: list[str]
) -> None:
    """The caller has gone on and paid: another answer than it got would be another run."""

    def a(b: Any, *then: Any) -> Agent[Any]:
        to_b = handoff(Agent("B", model=function_handler(b)), return_to_caller=True, run_timeout=0.5)
        return Agent("A", model=Dying(*then), handoffs=[to_b], tools=[till.tool()])

    till = Till()
    with pytest.raises(Crash):
        await watch(path, a(slow, TO_B, PAY), "Hi")
    result = await run(path, a(_hurry, "Paid."))
    assert (result.final_output, till.paid) == ("Paid.", [5])
    assert "'B' timed out: there was no answer within 0.5 s" in str(result.messages)
    assert [item.message.get("content") for item in result.items if item.agent == "B"] == said


@pytest.mark.virtual_time(threads=True)
async def test_who_was_not_asked_before_a_crash_as_time_was_over_is_not_asked_then(path: Path) -> None:
    def a(b: Any, waits: float, *then: Any) -> Agent[Any]:
        @function_tool
        async def look() -> str:
            """Look."""
            await anyio.sleep(waits)
            return "Nothing."

        to_b = handoff(Agent("B", model=b, tools=[look]), return_to_caller=True, run_timeout=0.5)
        return Agent("A", model=Dying(*then), handoffs=[to_b], tools=[till.tool()])

    till = Till()
    with pytest.raises(Crash):
        await run(path, a(ScriptedHandler([call("look", id="l")]), 0.6, TO_B, PAY), "Hi")
    result = await run(path, a(ScriptedHandler(["Here I am."]), 0, "Paid."))
    assert (result.final_output, till.paid, result.usage.requests) == ("Paid.", [5], 4)
    assert "'B' timed out: there was no answer within 0.5 s" in str(result.messages)


async def test_a_run_that_fails_before_it_comes_to_what_was_done_does_not_do_it_again(path: Path) -> None:
    till = Till()

    def broken(context: Any, of: Any) -> str:
        raise OSError("the database is away")

    with pytest.raises(Crash):
        await run(path, Agent("A", model=Dying(PAY), tools=[till.tool()]), "Hi")
    with pytest.raises(CallbackError):
        await run(path, Agent("A", broken, model=Dying(), tools=[till.tool()]))
    assert (await status(path), till.paid) == ("failed", [5])
    result = await run(path, Agent("A", model=pays(), tools=[till.tool()]))
    assert (result.final_output, till.paid) == ("Paid.", [5])


@pytest.mark.virtual_time(threads=True)
@pytest.mark.parametrize("beside", [[], ["new"]])
async def test_a_tool_that_was_done_is_not_run_again_after_one_beside_it_took_too_long(
    path: Path, beside: list[str]
) -> None:
    """Its outcome is kept, and the run that was cut off had not been told of it."""
    done, life = list[str](), 1

    async def known() -> str:
        done.append("known")
        return "1"

    async def slow() -> str:
        if life == 1:
            await anyio.sleep(0.5)
            raise Crash
        await anyio.sleep_forever()
        return "never"

    async def new() -> str:
        if life == 1:
            await anyio.sleep_forever()
        done.append("new")
        return "2"

    tools = [tool(known), tool(slow), tool(new)]
    calls = [call(name, id=name) for name in ["known", "slow", *beside]]
    with pytest.raises(BaseException) as crashed:  # noqa: PT011 - groups of crashes as well
        await run(path, agent("A", calls, tools=tools), "Hi")
    assert is_crash(crashed.value)
    life = 2
    with pytest.raises(RunTimeout):
        await run(path, agent("A", tools=tools), run_config=RunConfig(timeout=1.0))
    result = await run(path, agent("A", "Done.", tools=tools))
    assert (result.final_output, done) == ("Done.", ["known", *beside])


async def test_what_was_done_is_not_done_again_if_whoever_asked_for_it_has_to_wait_by_now(path: Path) -> None:
    till = Till()

    def boss(model: Any, within: Any, **options: Any) -> Agent[Any]:
        return Agent(
            "A", model=model, tools=[Agent("B", model=within, tools=[till.tool()]).as_tool(**options)]
        )

    asked = ScriptedHandler([call("b", {"input": "Pay."}, id="b")])
    with pytest.raises(Crash):
        await run(path, boss(asked, Dying(PAY)), "Hi")
    changed = boss(ScriptedHandler(["Done."]), pays(), needs_approval=True)
    first = await run(path, changed)
    result = await run(path, changed, first.state().approve(first.interruptions[0]))
    assert (result.final_output, till.paid) == ("Done.", [5])


async def test_a_call_that_failed_last_is_made_again(path: Path) -> None:
    till = Till()
    failing = agent("A", PAY, RateLimited("Slow down.", retryable=False), tools=[till.tool()])
    with pytest.raises(RateLimited):
        await run(path, failing, "Hi")
    assert await status(path) == "failed"
    result = await run(path, agent("A", "Paid.", tools=[till.tool()]), "Hi")
    assert (result.final_output, till.paid) == ("Paid.", [5])


async def test_a_limit_may_be_raised(path: Path) -> None:
    till = Till()
    with pytest.raises(MaxTurnsExceeded):
        await run(path, agent("A", PAY, tools=[till.tool()]), "Hi", max_turns=1)
    result = await run(path, agent("A", "Paid.", tools=[till.tool()]), max_turns=2)
    assert (result.final_output, till.paid) == ("Paid.", [5])


async def test_who_is_cancelled_goes_on(path: Path) -> None:
    till = Till()

    class Slow:
        name = "slow"

        def __init__(self, *replies: Any) -> None:
            self.inner = ScriptedHandler(replies)

        async def stream(self, request: Any) -> AsyncGenerator[HandlerEvent]:
            if till.paid and len(self.inner.requests) == 1:
                stuck.cancel()
                await anyio.sleep_forever()
            async with aclosing(self.inner.stream(request)) as events:
                async for event in events:
                    yield event

    with anyio.CancelScope() as stuck:
        await run(path, Agent("A", model=Slow(PAY), tools=[till.tool()]), "Hi")
    assert stuck.cancelled_caught
    result = await run(path, agent("A", "Paid.", tools=[till.tool()]))
    assert (result.final_output, till.paid) == ("Paid.", [5])


# -- streams --


async def test_a_stream_goes_on_and_shows_replayed_replies_whole(path: Path) -> None:
    till = Till()
    async with Journal(path) as journal:
        async with aclosing(journal.stream(agent("A", PAY, tools=[till.tool()]), "Hi", run_id="r")) as events:
            async for event in events:
                if isinstance(event, MessageDone):
                    break
        a = agent("A", "Paid.", tools=[till.tool()])
        seen = [event async for event in journal.stream(a, run_id="r")]
    assert isinstance(seen[-1], RunDone)
    assert (seen[-1].result.final_output, till.paid) == ("Paid.", [5])
    assert sum(isinstance(event, MessageDone) for event in seen) == 2


async def test_a_stream_that_fails_is_kept_as_failed(path: Path) -> None:
    async with Journal(path) as journal:
        with pytest.raises(HandlerError):
            async for _ in journal.stream(agent("A", HandlerError("No.")), "Hi", run_id="r"):
                pass
        assert [one.status for one in await journal.runs("failed")] == ["failed"]


# -- approvals --


async def test_a_run_waits_for_days_and_pays_once(path: Path) -> None:
    till = Till()
    asks = agent("A", PAY, tools=[till.tool(needs_approval=True)])
    first = await run(path, asks, "Hi")
    assert (first.stop_reason, await status(path), till.paid) == ("requires_action", "waiting", [])

    then = agent("A", "Paid.", tools=[till.tool(needs_approval=True)])
    async with Journal(path) as journal:
        state = await journal.state("r", agents=[then])
        assert state is not None
        state = state.approve(state.interruptions[0])
        result = await journal.run(then, state, run_id="r")
        assert (result.final_output, till.paid) == ("Paid.", [5])
        again = await journal.run(then, state, run_id="r")
        assert (again.final_output, till.paid) == ("Paid.", [5]), "who approves twice pays once"


async def test_an_approved_call_that_was_cut_off_after_it_was_paid_is_not_paid_again(path: Path) -> None:
    till = Till()
    gated = till.tool(needs_approval=True)
    first = await run(path, agent("A", PAY, tools=[gated]), "Hi")
    state = first.state().approve(first.interruptions[0])
    with pytest.raises(Crash):
        await run(path, Agent("A", model=Dying(), tools=[gated]), state)
    assert till.paid == [5]
    result = await run(path, agent("A", "Paid.", tools=[gated]), state)
    assert (result.final_output, till.paid) == ("Paid.", [5])


ASK: Any = {"type": "function", "function": {"name": "ask"}}


@pytest.mark.parametrize("known", [True, False])
async def test_a_state_that_cannot_go_on_yet_does_not_take_the_place_of_one_that_can(
    path: Path, known: bool
) -> None:
    a = agent("A", call("ask", id="q"), "Then it is blue.")
    config = RunConfig(external_tools=[ASK])
    if known:
        await run(path, a, "Hi", run_config=config)
        async with Journal(path) as journal:
            state = await journal.state("r", agents=[a])
            assert state is not None
    else:
        state = (await Runner.run(a, "Hi", run_config=replace(config, run_id="r"))).state()
    with pytest.raises(ConfigError, match="waits for answers"):
        await run(path, a, state, run_config=config)
    answered = state.with_answers([{"role": "tool", "tool_call_id": "q", "content": "blue"}])
    result = await run(path, a, answered, run_config=config)
    assert (result.final_output, await status(path)) == ("Then it is blue.", "done")


async def test_a_run_that_could_not_begin_may_begin_otherwise(path: Path) -> None:
    with pytest.raises(ConfigError, match="Input is empty"):
        await run(path, agent("A"), [])
    with pytest.raises(ConfigError, match="max_turns"):
        await run(path, agent("A"), "Hello", max_turns=0)
    assert (await run(path, agent("A", "Hi."), "Hi")).final_output == "Hi."


async def test_a_failed_run_that_cannot_go_on_yet_stays_failed(path: Path) -> None:
    a = agent("A", HandlerError("down"), "Done.")
    with pytest.raises(HandlerError):
        await run(path, a, "Hi")
    with pytest.raises(ConfigError, match="max_turns"):
        await run(path, a, max_turns=0)
    assert await status(path) == "failed"
    assert (await run(path, a)).final_output == "Done."


async def test_a_state_from_before_is_refused(path: Path) -> None:
    till = Till()
    gated = till.tool(needs_approval=True)
    more = call("pay", {"amount": 6}, id="q")
    a = agent("A", PAY, more, "Paid.", tools=[gated])
    first = await run(path, a, "Hi")
    early = first.state().approve(first.interruptions[0])
    await run(path, a, early)
    other = first.state().reject(first.interruptions[0])
    with pytest.raises(ConfigError, match="has gone on since this state was taken"):
        await run(path, a, other)
    assert till.paid == [5]


async def test_a_state_from_before_a_call_within_an_agent_that_was_asked_is_refused(path: Path) -> None:
    """The run itself stands where it stood: what went on is within it."""
    till = Till()
    calls = [call("pay", {"amount": 5}, id="p"), call("pay", {"amount": 6}, id="q")]
    inner = agent("inner", calls, "Paid.", tools=[till.tool(needs_approval=True)])
    a = agent("A", call("inner", {"input": "Pay."}, id="o"), "Done.", tools=[inner.as_tool()])
    first = await run(path, a, "Hi")
    one = first.state().approve(first.interruptions[0])
    second = await run(path, a, one)
    assert (second.stop_reason, till.paid) == ("requires_action", [5])
    with pytest.raises(ConfigError, match="has gone on since this state was taken"):
        await run(path, a, one.approve(first.interruptions[1]))
    third = await run(path, a, second.state().approve(second.interruptions[0]))
    assert (third.final_output, till.paid) == ("Done.", [5, 6])


@pytest.mark.virtual_time(threads=True)
@pytest.mark.parametrize("nested", [False, True])
async def test_a_state_from_before_a_call_that_was_cut_off_is_refused(path: Path, nested: bool) -> None:
    """It has no answer, and nobody knows whether it paid."""
    till = Till()
    paid = anyio.Event()

    @tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        till.paid.append(amount)
        if not paid.is_set():
            paid.set()
            await anyio.sleep_forever()
        return "paid"

    a = agent("A", PAY, "Nobody knows.", tools=[pay])
    if nested:
        a = agent("boss", call("a", {"input": "Pay."}, id="o"), "Nobody knows.", tools=[a.as_tool()])
    first = await run(path, a, "Hi")
    state = first.state().approve(first.interruptions[0])
    with pytest.raises(RunTimeout):
        await run(path, a, state, run_config=RunConfig(timeout=1.0))
    assert paid.is_set()
    with pytest.raises(ConfigError, match="has gone on since this state was taken"):
        await run(path, a, first.state().approve(first.interruptions[0], always=True))
    result = await run(path, a)
    assert (result.final_output, till.paid) == ("Nobody knows.", [5])


@pytest.mark.parametrize("lost", ["t1.model.A", "t1.tool.pay.p", "t2.model.A"])
async def test_a_step_that_cannot_be_written_stops_the_run_as_a_crash_does(path: Path, lost: str) -> None:
    """Nobody else is asked in the model's place, and the same call goes on."""
    till = Till()
    other = ScriptedHandler(["Never asked."], name="other")
    a = agent("A", PAY, "Paid.", tools=[till.tool()])
    a = replace(a, handlers=[*a.handlers, other])
    full = f"CREATE TRIGGER full BEFORE INSERT ON routelock_steps WHEN NEW.key = '{lost}'"
    async with Journal(path) as journal:
        await journal.runs()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"{full} BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END")
    async with Journal(path) as journal:
        with pytest.raises(JournalError, match=rf"step '{lost}' of the run 'r'.*database or disk is full"):
            await journal.run(a, "Hi", run_id="r", run_config=RunConfig(fallback=True))
        assert [one.status for one in await journal.runs()] == ["running"]
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TRIGGER full")
    again = agent("A", *([PAY] if lost == "t1.model.A" else []), "Paid.", tools=[till.tool()])
    result = await run(path, again, "Hi")
    assert (result.final_output, result.errors, other.requests) == ("Paid.", (), [])


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model_fails", [False, True])
async def test_an_end_that_cannot_be_written_is_told_and_nothing_is_done_again(
    path: Path, streamed: bool, model_fails: bool
) -> None:
    till = Till()
    last = RateLimited("Slow down.", retryable=False) if model_fails else "Paid."
    async with Journal(path) as journal:
        await journal.runs()
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON routelock_runs WHEN NEW.status != 'running'"
            " BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    begin = watch if streamed else run
    with pytest.raises(JournalError, match=r"The end of the run 'r' could not be written.*disk is full"):
        await begin(path, agent("A", PAY, last, tools=[till.tool()]), "Hi")
    assert await status(path) == "running"
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TRIGGER full")
    result = await run(path, agent("A", *(["Paid."] if model_fails else []), tools=[till.tool()]), "Hi")
    assert (result.final_output, till.paid) == ("Paid.", [5])


async def test_a_beginning_that_cannot_be_written_is_told(path: Path) -> None:
    async with Journal(path) as journal:
        await journal.runs()
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "CREATE TRIGGER full BEFORE INSERT ON routelock_runs"
            " BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END"
        )
    with pytest.raises(JournalError, match=r"The beginning of the run 'r' could not.*disk is full"):
        await run(path, agent("A", "Never asked."), "Hi")


async def test_a_state_of_another_run_is_refused(path: Path) -> None:
    result = await Runner.run(agent("A", "Hello."), "Hi", run_config=RunConfig(run_id="x"))
    with pytest.raises(ConfigError, match="a state of the run 'x', not of 'r'"):
        await run(path, agent("A"), result.state())


async def test_a_run_that_began_elsewhere_is_taken_over(path: Path) -> None:
    till = Till()
    gated = till.tool(needs_approval=True)
    first = await Runner.run(agent("A", PAY, tools=[gated]), "Hi", run_config=RunConfig(run_id="r"))
    state = first.state().approve(first.interruptions[0])
    result = await run(path, agent("A", "Paid.", tools=[gated]), state)
    assert (result.final_output, till.paid) == ("Paid.", [5])


# -- the file --


async def test_a_file_is_for_one_process(path: Path) -> None:
    async with Journal(path):
        with pytest.raises(ConfigError, match=r"Another process uses runs\.db"):
            async with Journal(path):
                pass
    async with Journal(path) as journal:
        assert await journal.runs() == []


async def test_a_newer_file_is_refused(path: Path) -> None:
    async with Journal(path):
        pass
    db = sqlite3.connect(path)
    db.execute("UPDATE routelock_schema SET version = 2")
    db.commit()
    db.close()
    with pytest.raises(ConfigError, match=r"have the schema 2, and this version of routelock knows 1"):
        async with Journal(path):
            pass


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_a_journal_needs_a_file(path: str) -> None:
    with pytest.raises(ConfigError, match="need a file"):
        Journal(path)


# -- always --


@pytest.mark.parametrize("name", sorted(SCENES))
async def test_wherever_a_run_dies_the_result_is_that_of_one_that_lived(name: str, tmp_path: Path) -> None:
    scene: Scene = SCENES[name]
    settings = scene.settings(run_id=None, clock=lambda: 7.0)
    alone = replace(settings, run_id="r")
    lived = Stage()
    try:
        whole = await Runner.run(scene.agent(lived), "Hi", max_turns=scene.max_turns, run_config=alone)
    except RoutelockError:
        pytest.skip("a scene that ends with an error")
    for after in range(1, 30):
        stage = Stage()
        starting = scene.agent(stage)
        async with Journal(tmp_path / f"{after}.db") as journal:
            dies = Dies(after)
            try:
                await journal.run(
                    starting, "Hi", run_id="r", hooks=dies, run_config=settings, max_turns=scene.max_turns
                )
            except BaseException as error:
                if not is_crash(error):
                    raise
            result = await journal.run(starting, run_id="r", run_config=settings, max_turns=scene.max_turns)
        if dies.left > 0:  # it lived
            return
        assert facts(result) == facts(whole)
        assert sorted(stage.done) == sorted(lived.done), "tools of one turn run at the same time"
    raise AssertionError("the scene is longer than this test")
