"""Runs in a journal: a recorded step is not run again after a crash."""

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
from scenes import SCENES, Scene, Stage, facts, too_long
from scripted_agents import agent, requests

from routelock import Agent, RunConfig, Runner, function_handler, function_tool, handoff, tool
from routelock.errors import (
    CallbackError,
    ConfigError,
    HandlerError,
    JournalError,
    MaxTurnsExceeded,
    RateLimited,
    RoutelockError,
    RunTimeout,
)
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.run.events import RunDone
from routelock.run.executor import InProcess
from routelock.state.journal import Journal
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
    """Run in one process, and return the result."""
    async with Journal(path) as journal:
        return await journal.run(starting, input, run_id="r", **options)


async def watch(path: Path, starting: Agent[Any], input: Any = None) -> list[Any]:
    """Run in one process, and return the events."""
    async with Journal(path) as journal:
        return [event async for event in journal.stream(starting, input, run_id="r")]


async def status(path: Path) -> str:
    async with Journal(path) as journal:
        (one,) = await journal.runs()
        return one.status


# -- one life --


async def test_a_run_with_a_journal_has_the_same_result(path: Path) -> None:
    till = Till()
    result = await run(path, agent("A", PAY, "Paid.", tools=[till.tool()]), "Hi")
    assert (result.final_output, till.paid, result.context.run_id) == ("Paid.", [5], "r")


async def test_a_run_that_is_done_is_not_run_again(path: Path) -> None:
    till = Till()
    first = await run(path, agent("A", PAY, "Paid.", tools=[till.tool()]), "Hi")
    second = await run(path, agent("A", tools=[till.tool()]), "Hi")
    assert (second.final_output, second.messages, till.paid) == (first.final_output, first.messages, [5])


async def test_other_input_under_the_same_id_is_refused(path: Path) -> None:
    await run(path, agent("A", "Hello."), "Hi")
    with pytest.raises(ConfigError, match="'r' began with another input"):
        await run(path, agent("A", "Hello."), "Ho")
    with pytest.raises(ConfigError, match="'r' began with agent 'A', not 'B'"):
        await run(path, agent("B", "Hello."), "Hi")


async def test_a_new_run_needs_an_input(path: Path) -> None:
    with pytest.raises(ConfigError, match="has no run 'r': begin it with an input"):
        await run(path, agent("A", "Hello."))
    async with Journal(path) as journal:
        with pytest.raises(ConfigError, match="has no run 'x'"):
            await journal.state("x", agents=[])


@pytest.mark.parametrize("settings", [{"run_id": "x"}, {"executor": InProcess()}])
async def test_settings_of_the_journal_cannot_be_passed(path: Path, settings: Any) -> None:
    with pytest.raises(ConfigError, match="leave them out"):
        await run(path, agent("A", "Hello."), "Hi", run_config=RunConfig(**settings))


async def test_a_run_cannot_run_twice_at_the_same_time(path: Path) -> None:
    async with Journal(path) as journal:

        @function_tool
        async def again() -> str:
            """Again."""
            with pytest.raises(ConfigError, match="is running in this process"):
                await journal.run(a, run_id="r")
            with pytest.raises(ConfigError, match="is running in this process"):
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


async def test_a_forgotten_run_is_removed(path: Path) -> None:
    async with Journal(path) as journal:
        await journal.run(agent("A", "Hello."), "Hi", run_id="r")
        await journal.forget("r")
        assert await journal.runs() == []
    db = sqlite3.connect(path)
    assert db.execute("SELECT COUNT(*) FROM routelock_steps").fetchone() == (0,)
    db.close()


# -- a crash --


async def test_a_complete_reply_is_not_requested_again(path: Path) -> None:
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


async def _never(request: Any) -> str:
    await anyio.sleep_forever()
    return ""


async def _trickle(request: Any) -> AsyncGenerator[str]:
    yield "Let me "
    await anyio.sleep_forever()


async def _hurry(request: Any) -> str:
    return "Here I am."


@pytest.mark.virtual_time(threads=True)
@pytest.mark.parametrize(("slow", "said"), [(_never, []), (_trickle, ["Let me "])])
async def test_an_agent_that_timed_out_is_not_called_again(path: Path, slow: Any, said: list[str]) -> None:
    """The caller went on without its answer and paid: with an answer it would be another run."""

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
async def test_a_call_skipped_for_lack_of_time_stays_skipped(path: Path) -> None:
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


async def test_a_failure_before_a_recorded_step_does_not_repeat_it(path: Path) -> None:
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
async def test_a_completed_tool_is_not_run_again_after_another_times_out(
    path: Path, beside: list[str]
) -> None:
    """Its outcome is recorded, and the interrupted run had not seen it."""
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


async def test_a_completed_step_is_not_repeated_if_its_caller_needs_approval_now(path: Path) -> None:
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


async def test_the_call_that_failed_last_is_made_again(path: Path) -> None:
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


# -- streams --


async def test_a_resumed_stream_shows_replayed_replies_whole(path: Path) -> None:
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


async def test_a_failed_stream_is_recorded_as_failed(path: Path) -> None:
    async with Journal(path) as journal:
        with pytest.raises(HandlerError):
            async for _ in journal.stream(agent("A", HandlerError("No.")), "Hi", run_id="r"):
                pass
        assert [one.status for one in await journal.runs("failed")] == ["failed"]


# -- approvals --


async def test_an_approved_call_is_made_once(path: Path) -> None:
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
        assert (again.final_output, till.paid) == ("Paid.", [5]), "a second approval changes nothing"


async def test_an_approved_call_is_not_made_again_after_a_crash(path: Path) -> None:
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
async def test_a_state_that_waits_does_not_replace_the_recorded_one(path: Path, known: bool) -> None:
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


async def test_a_run_that_could_not_begin_may_begin_with_other_input(path: Path) -> None:
    with pytest.raises(ConfigError, match="Input is empty"):
        await run(path, agent("A"), [])
    with pytest.raises(ConfigError, match="max_turns"):
        await run(path, agent("A"), "Hello", max_turns=0)
    assert (await run(path, agent("A", "Hi."), "Hi")).final_output == "Hi."


async def test_a_failed_run_that_cannot_be_resumed_stays_failed(path: Path) -> None:
    a = agent("A", HandlerError("down"), "Done.")
    with pytest.raises(HandlerError):
        await run(path, a, "Hi")
    with pytest.raises(ConfigError, match="max_turns"):
        await run(path, a, max_turns=0)
    assert await status(path) == "failed"
    assert (await run(path, a)).final_output == "Done."


async def test_an_outdated_state_is_refused(path: Path) -> None:
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


async def test_a_state_older_than_a_call_of_a_sub_run_is_refused(path: Path) -> None:
    """The run itself is where it was: its sub-run went on."""
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
async def test_a_state_older_than_an_interrupted_call_is_refused(path: Path, nested: bool) -> None:
    """The call has no result, and it is unknown whether it paid."""
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

    a = agent("A", PAY, "Unknown.", tools=[pay])
    if nested:
        a = agent("boss", call("a", {"input": "Pay."}, id="o"), "Unknown.", tools=[a.as_tool()])
    first = await run(path, a, "Hi")
    state = first.state().approve(first.interruptions[0])
    with pytest.raises(RunTimeout):
        await run(path, a, state, run_config=RunConfig(timeout=1.0))
    assert paid.is_set()
    with pytest.raises(ConfigError, match="has gone on since this state was taken"):
        await run(path, a, first.state().approve(first.interruptions[0], always=True))
    result = await run(path, a)
    assert (result.final_output, till.paid) == ("Unknown.", [5])


@pytest.mark.parametrize("lost", ["t1.model.A", "t1.tool.pay.p", "t2.model.A"])
async def test_a_step_that_cannot_be_recorded_stops_the_run(path: Path, lost: str) -> None:
    """No other handler is called instead, and the same call resumes the run."""
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
async def test_an_end_that_cannot_be_recorded_repeats_no_step(
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


async def test_a_beginning_that_cannot_be_recorded_is_an_error(path: Path) -> None:
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


async def test_a_run_that_began_without_a_journal_can_be_resumed(path: Path) -> None:
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
    with pytest.raises(ConfigError, match=r"has a journal schema 2, and this version of routelock knows 1"):
        async with Journal(path):
            pass


@pytest.mark.parametrize("path", ["", ":memory:"])
async def test_a_journal_needs_a_file(path: str) -> None:
    with pytest.raises(ConfigError, match="needs a file"):
        Journal(path)


# -- always --


async def test_a_request_that_was_too_long_is_not_answered_twice(tmp_path: Path) -> None:
    scene = Scene(too_long)
    lived = Stage()
    whole = await Runner.run(scene.agent(lived), "Hi", run_config=scene.settings())
    for after in range(1, 40):
        stage, dies = Stage(), Dies(after)
        one, settings = scene.agent(stage), scene.settings(run_id=None)
        async with Journal(tmp_path / f"{after}.db") as journal:
            try:
                await journal.run(one, "Hi", run_id="r", hooks=dies, run_config=settings)
            except BaseException as error:
                if not is_crash(error):
                    raise
            result = await journal.run(one, run_id="r", run_config=settings)
        assert result.items == whole.items
        assert sorted(stage.done) == sorted(lived.done)
        if dies.left > 0:
            return
    raise AssertionError("the scene is longer than this test")


@pytest.mark.parametrize("name", sorted(SCENES))
async def test_a_crash_at_any_point_does_not_change_the_result(name: str, tmp_path: Path) -> None:
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
