"""Durable runs on PostgreSQL: one worker in this process, clients beside it."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from databases import address, postgres
from durable_threads import WorkerThread
from waiting import until

from routelock import Agent, Request, ToolContext, function_handler, tool
from routelock.errors import ConfigError, RateLimited
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.state.dbos.client import StepStream
from routelock.state.durable import EndedRun, RunClient, StepPart
from routelock.testing import call

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")


class World:
    """What the worker's agents did, by run."""

    def __init__(self) -> None:
        self.paid: defaultdict[str, list[int]] = defaultdict(list)
        self.waiting: list[str] = []
        self.stopped = threading.Event()
        self.failing = True
        self.away = False
        """Whether what instructions need is away."""


def agents(world: World) -> list[Agent[Any]]:
    async def pay(context: ToolContext[Any], amount: int) -> str:
        await asyncio.sleep(0)
        world.paid[context.run_id].append(amount)
        return f"paid {amount}"

    async def wait(context: ToolContext[Any]) -> str:
        world.waiting.append(context.run_id.partition("/")[0])
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            world.stopped.set()
            raise
        return "late"

    def instructions(context: Any, of: Any) -> str:
        if world.away:
            raise OSError("away")
        return "You pay, and wait."

    async def pay_and_wait(request: Request) -> Any:
        done = sum(message["role"] == "tool" for message in request.messages)
        one = call("pay", {"amount": 5}, id="p") if not done else call("wait", {}, id="w")
        return "Never." if done > 1 else asks(one)

    careful = function_handler(pay_and_wait, name="careful")
    both = asks(call("pay", {"amount": 5}, id="p"), call("pay", {"amount": 6}, id="q"))
    more = asks(call("clerk", {"input": "Pay."}, id="c"), call("pay", {"amount": 1}, id="r"))
    slow = Agent("slow", model=says(asks(call("wait", {}, id="w")), "Never."), tools=[tool(wait)])
    half = asks(call("pay", {"amount": 5}, id="p"), call("wait", {}, id="w"))
    ask_slow = asks(call("slow", {"input": "Pay."}, id="s"))
    clerk = Agent("clerk", model=says(both, "All paid."), tools=[tool(pay)])
    return [
        clerk,
        Agent("gated", model=says(both, "Approved."), tools=[tool(needs_approval=True)(pay)]),
        Agent("boss", model=says(more, "Done."), tools=[clerk.as_tool(), tool(pay)]),
        slow,
        Agent("half", model=says(half, "Never."), tools=[tool(pay), tool(wait)]),
        Agent("careful", instructions, model=careful, tools=[tool(pay), tool(wait)]),
        Agent("patron", model=says(ask_slow, "Never."), tools=[slow.as_tool()]),
        Agent("failing", model=Failing(world)),
        Agent("talker", model=Talker()),
        Agent("mirror", model=Mirror()),
    ]


def asks(*calls: Any) -> Any:
    return {"content": None, "tool_calls": list(calls)}


def says(*turns: Any) -> Any:
    async def say(request: Request) -> Any:
        return turns[request.turn - 1]

    return function_handler(say, name="scripted")


class Failing:
    """Fails as long as the world does."""

    name = "failing"

    def __init__(self, world: World) -> None:
        self.world = world

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        if self.world.failing:
            raise RateLimited("Slow down.", retryable=False)
        yield MessageDone(message={"role": "assistant", "content": "At last."}, finish_reason="stop")


class Mirror:
    """Says what the app's context is."""

    name = "mirror"

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        assert request.context is not None
        said = f"{request.context.context}{' live' if request.stream else ''}"
        yield MessageDone(message={"role": "assistant", "content": said}, finish_reason="stop")


class Talker:
    """Says ten words, one after another."""

    name = "talker"

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        words = [f"word{number} " for number in range(10)]
        for word in words:
            await asyncio.sleep(0.01)
            yield TextDelta(word)
        yield MessageDone(message={"role": "assistant", "content": "".join(words)})


class Worker(WorkerThread):
    """A worker with the agents of these tests."""

    def __init__(self, database: str) -> None:
        self.world = World()
        super().__init__(database, agents(self.world))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with postgres() as conninfo:
        worker = Worker(address(conninfo))
        worker.begin()
        try:
            yield worker
        finally:
            worker.end()


def client(worker: Worker, act: Callable[[RunClient], Coroutine[Any, Any, Any]]) -> Any:
    """Do something with a client in an event loop of its own, as another process would."""

    async def use() -> Any:
        async with RunClient(worker.database, poll=0.02) as client:
            return await act(client)

    return asyncio.run(use())


def run(worker: Worker, agent: str, run_id: str, **options: Any) -> EndedRun:
    async def act(client: RunClient) -> EndedRun:
        await client.start(agent, "Hi", run_id=run_id, **options)
        return await client.wait(run_id)

    ended = client(worker, act)
    assert isinstance(ended, EndedRun)
    return ended


# -- runs --


def test_a_worker_runs_what_a_client_starts(worker: Worker) -> None:
    ended = run(worker, "clerk", "one")
    assert (ended.status, ended.error, sorted(worker.world.paid["one"])) == ("done", None, [5, 6])
    state = ended.state(agents=worker.agents)
    assert state.items[-1].message.get("content") == "All paid."


def test_one_id_is_one_run(worker: Worker) -> None:
    run(worker, "clerk", "twice")
    assert run(worker, "clerk", "twice").status == "done"
    assert sorted(worker.world.paid["twice"]) == [5, 6]


def test_the_id_of_another_run_is_an_error(worker: Worker) -> None:
    run(worker, "clerk", "taken")
    with pytest.raises(ConfigError, match="The run 'taken' began with another agent"):
        run(worker, "mirror", "taken")

    async def other_input(client: RunClient) -> None:
        await client.start("clerk", "Something else", run_id="taken")

    with pytest.raises(ConfigError, match="The run 'taken' began with another input"):
        client(worker, other_input)


def test_an_agent_as_a_tool_and_a_tool_at_once(worker: Worker) -> None:
    assert run(worker, "boss", "nested").status == "done"
    within = {key: sorted(paid) for key, paid in worker.world.paid.items() if key.startswith("nested")}
    assert within == {"nested": [1], "nested/t1.tool.clerk.c": [5, 6]}


def test_the_worker_makes_the_context_from_the_clients_json(worker: Worker) -> None:
    ended = run(worker, "mirror", "context", context={"user": "u1"})
    assert ended.state(agents=worker.agents).items[-1].message.get("content") == "{'user': 'u1'}"


def test_a_run_that_is_shown_is_streamed(worker: Worker) -> None:
    ended = run(worker, "mirror", "live", show=True)
    assert ended.state(agents=worker.agents).items[-1].message.get("content") == "None live"


def test_a_failed_run_has_an_error_and_can_be_resumed(worker: Worker) -> None:
    ended = run(worker, "failing", "fails")
    assert (ended.status, ended.error) == ("failed", "RateLimited: Slow down.")
    worker.world.failing = False

    async def again(client: RunClient) -> EndedRun:
        await client.resume(ended)
        return await client.wait("fails")

    after = client(worker, again)
    assert (after.status, after.segment) == ("done", 2)


def test_an_approved_call_is_made_once_and_the_first_decision_counts(worker: Worker) -> None:
    first = run(worker, "gated", "gate")
    assert (first.status, worker.world.paid["gate"]) == ("waiting", [])
    state = first.state(agents=worker.agents)
    p, q = state.interruptions

    async def decide(client: RunClient) -> EndedRun:
        await client.resume(first, state.approve(p).reject(q))
        await client.resume(first, state.approve(p).approve(q))  # too late
        return await client.wait("gate")

    ended = client(worker, decide)
    assert (ended.status, ended.segment, worker.world.paid["gate"]) == ("done", 2, [5])


def test_an_outdated_state_is_refused(worker: Worker) -> None:
    """The newest end of the run with an older state would pay twice."""
    first = run(worker, "gated", "behind")
    state = first.state(agents=worker.agents)
    one = state.approve(state.interruptions[0])

    async def decide(client: RunClient) -> EndedRun:
        await client.resume(first, one)
        second = await client.wait("behind")
        with pytest.raises(ConfigError, match="has gone on since this state was taken"):
            await client.resume(second, one)
        newest = second.state(agents=worker.agents)
        await client.resume(second, newest.approve(newest.interruptions[0]))
        return await client.wait("behind")

    ended = client(worker, decide)
    assert (ended.status, ended.segment, worker.world.paid["behind"]) == ("done", 3, [5, 6])


def test_a_segment_without_a_state_is_resumed_from_the_one_before(worker: Worker) -> None:
    first = run(worker, "gated", "again")
    state = first.state(agents=worker.agents)

    async def decide(client: RunClient) -> EndedRun:
        await client.resume(first, state.approve(state.interruptions[0]).reject(state.interruptions[1]))
        second = await client.wait("again")
        await client.resume(replace(second, status="failed", state_json=None))  # as if it had not begun
        return await client.wait("again")

    ended = client(worker, decide)
    assert (ended.status, ended.segment) == ("done", 3), "and does not wait for approvals again"


def cancelled(worker: Worker, agent: str, run_id: str, *, recorded: Sequence[str] = ()) -> EndedRun:
    """Cancel a run that has begun, twice, when these of its steps are recorded."""

    async def act(client: RunClient) -> EndedRun:
        await client.start(agent, "Hi", run_id=run_id)
        await until(lambda: run_id in worker.world.waiting)
        await until(lambda: set(recorded) <= steps_of(worker, run_id))
        await client.cancel(run_id)
        await client.cancel(run_id)
        return await client.wait(run_id)

    ended = client(worker, act)
    assert isinstance(ended, EndedRun)
    return ended


def steps_of(worker: Worker, run_id: str) -> set[str]:
    """Return the names of the steps that are recorded of a run."""
    with psycopg.connect(worker.database) as connection:
        sql = "SELECT function_name FROM dbos.operation_outputs WHERE workflow_uuid = %s"
        return {name for (name,) in connection.execute(sql, (run_id,))}


def answers(ended: EndedRun, worker: Worker) -> list[str]:
    items = ended.state(agents=worker.agents).items
    return [str(item.message.get("content")) for item in items if item.kind == "tool"]


def test_a_run_cancelled_in_a_tool_can_be_resumed(worker: Worker) -> None:
    ended = cancelled(worker, "slow", "cancel")
    assert (ended.status, ended.error) == ("cancelled", "ToolError: " + answers(ended, worker)[0])
    assert "Whether it had an effect is not known" in answers(ended, worker)[0]
    assert worker.world.stopped.wait(60), "the engine looks once a second"

    async def again(client: RunClient) -> EndedRun:
        await client.resume(ended)
        return await client.wait("cancel")

    after = client(worker, again)
    assert (after.status, after.segment) == ("done", 3)
    assert after.state(agents=worker.agents).items[-1].message.get("content") == "Never."
    assert worker.world.waiting == ["cancel"], "an interrupted call is not made again"


def test_the_state_of_a_cancelled_run_has_its_completed_tools(worker: Worker) -> None:
    ended = cancelled(worker, "half", "half", recorded=["t1.tool.pay.p"])
    done, interrupted = answers(ended, worker)
    assert (done, worker.world.paid["half"]) == ("paid 5", [5])
    assert "is not known" in interrupted


def test_recorded_step_is_not_run_again_after_a_failed_resume(
    worker: Worker,
) -> None:
    async def act(client: RunClient) -> EndedRun:
        await client.start("careful", "Hi", run_id="careful")
        await until(lambda: "careful" in worker.world.waiting)
        worker.world.away = True
        await client.cancel("careful")
        ended = await client.wait("careful")
        assert (ended.status, answers(ended, worker)) == ("cancelled", [])
        worker.world.away = False
        await client.resume(ended)
        await until(lambda: worker.world.waiting.count("careful") == 2)
        await client.cancel("careful")
        return await client.wait("careful")

    ended = client(worker, act)
    assert isinstance(ended, EndedRun)
    assert (answers(ended, worker)[0], worker.world.paid["careful"]) == ("paid 5", [5])


def test_a_run_cancelled_in_a_sub_run_has_a_state(worker: Worker) -> None:
    ended = cancelled(worker, "patron", "asked")
    assert ended.status == "cancelled"
    (answer,) = answers(ended, worker)
    assert "The run was cancelled during this call" in answer


def test_a_run_that_is_done_cannot_be_cancelled(worker: Worker) -> None:
    run(worker, "clerk", "over")

    async def act(client: RunClient) -> EndedRun:
        await client.cancel("over")
        return await client.wait("over")

    assert client(worker, act).status == "done"


def test_a_run_that_takes_too_long_is_ended(worker: Worker) -> None:
    for timeout in (2.0, 10.0, 50.0):  # a slow machine needs longer to begin
        ended = run(worker, "slow", f"late-{timeout}", timeout=timeout)
        if f"late-{timeout}" in worker.world.waiting:
            break
    assert ended.status == "failed"
    assert "RunTimeout" in (ended.error or "")
    assert ended.state(agents=worker.agents).turn == 1


def test_wrong_calls_of_a_client_are_errors(worker: Worker) -> None:
    done = run(worker, "clerk", "refused")

    async def act(client: RunClient) -> None:
        with pytest.raises(ConfigError, match="There is no run 'unknown'"):
            await client.wait("unknown")
        with pytest.raises(ConfigError, match="no '#'"):
            await client.start("clerk", "Hi", run_id="a#2")
        with pytest.raises(ConfigError, match="'refused' is done"):
            await client.resume(done)
        with pytest.raises(ConfigError, match="a state of the run 'refused', not of 'other'"):
            await client.start("clerk", done.state(agents=worker.agents), run_id="other")
        await client.forget("refused")
        with pytest.raises(ConfigError, match="There is no run 'refused'"):
            await client.wait("refused")

    client(worker, act)


# -- events --


def test_a_client_reads_events_from_any_offset(worker: Worker) -> None:
    async def act(client: RunClient) -> tuple[list[StepPart], list[StepPart]]:
        await client.start("talker", "Hi", run_id="talk", show=True)
        async with aclosing(client.events("talk")) as events:
            parts = [part async for part in events]
        async with aclosing(client.events("talk", offset=1)) as events:
            return parts, [part async for part in events]

    parts, later = client(worker, act)
    assert "".join(part.text for part in parts) == "".join(f"word{number} " for number in range(10))
    assert parts[-1].events[-1]["type"] == "message_done"
    assert {(part.step, part.attempt, part.restarts) for part in parts} == {("t1.model.talker", 1, False)}
    assert later == parts[1:]


def test_a_restarted_step_is_marked_and_late_events_are_dropped(
    worker: Worker,
) -> None:
    async def two_lives() -> None:
        from dbos import DBOS, SetWorkflowID

        async def lives(job: Any) -> None:
            for attempt, text in ((1, "It w"), (2, "It is"), (1, "as")):
                async with StepStream("t1.model.a", attempt, open=True) as out:
                    out.show(TextDelta(text))

        with SetWorkflowID("lives"):
            handle = await DBOS.start_workflow_async(DBOS.workflow(name="lives")(lives), {})
        await handle.get_result(polling_interval_sec=0.02)

    async def act(client: RunClient) -> list[StepPart]:
        async with aclosing(client.events("lives")) as events:
            return [part async for part in events]

    worker.do(two_lives())
    parts = client(worker, act)
    assert [(part.attempt, part.restarts, part.text) for part in parts] == [
        (1, False, "It w"),
        (2, True, "It is"),
    ]
