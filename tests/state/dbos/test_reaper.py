"""Durable runs whose worker stops, freezes, or loses its database."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from databases import Postgres, address, postgres_server
from paths import SUPPORT
from paying_worker import QUICK, go_on, payer
from waiting import until

from routelock import Agent, RunConfig, handoff, tool
from routelock.state.dbos.database import STEPS_VERSION, WORKFLOW, running_client
from routelock.state.dbos.reaper import Reaper
from routelock.state.durable import EndedRun, RunClient, WorkerSettings, serving_runs
from routelock.testing import ScriptedHandler, call

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'routelock[durable]'")

PAY = call("pay", {}, id="p")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def database(server: Postgres) -> str:
    return address(server.conninfo)


class Till:
    """A tool that ends when it may.

    Args:
        one_by_one: whether each call of it has to be let go by itself.
    """

    def __init__(self, *, one_by_one: bool = False) -> None:
        self.one_by_one = one_by_one
        self.begun = 0
        self.paying = asyncio.Event()
        self.may_end = asyncio.Event()
        self.paid = 0

    async def pay(self) -> str:
        """Pay."""
        self.begun += 1
        self.paying.set()
        await self.may_end.wait()
        if self.one_by_one:
            self.may_end.clear()
        self.paid += 1
        return "paid"

    def agent(self, *replies: Any) -> Agent[Any]:
        return Agent("A", model=ScriptedHandler(replies), tools=[tool(self.pay, name="pay")])


def test_another_worker_resumes_the_runs_of_a_stopped_one(database: str) -> None:
    till = Till()

    async def first() -> None:
        async with serving_runs([till.agent(PAY)], database, QUICK), RunClient(database) as client:
            await client.start("A", "Hi", run_id="left")
            await till.paying.wait()

    async def second() -> EndedRun:
        till.may_end.set()
        async with serving_runs([till.agent("Paid.")], database, QUICK), RunClient(database) as client:
            return await asyncio.wait_for(client.wait("left"), 60)

    asyncio.run(first())
    ended = asyncio.run(second())
    assert (ended.status, till.begun, till.paid) == ("done", 2, 1)


def test_a_run_goes_on_after_the_database_crashed(server: Postgres, database: str, caplog: Any) -> None:
    till = Till()

    async def act() -> EndedRun:
        agent = till.agent(PAY, "Paid.", PAY, "Paid again.")
        async with serving_runs([agent], database, QUICK), RunClient(database) as client:
            await client.start("A", "Hi", run_id="crash")
            ended = asyncio.create_task(client.wait("crash"))
            await till.paying.wait()
            await asyncio.to_thread(server.crash)
            till.may_end.set()
            await until(lambda: "the database is unavailable" in caplog.text)  # its result cannot be recorded
            await asyncio.to_thread(server.start)
            assert (await asyncio.wait_for(ended, 60)).status == "done"
            await client.start("A", "Hi", run_id="later")
            return await asyncio.wait_for(client.wait("later"), 60)

    assert asyncio.run(act()).status == "done"
    assert (till.begun, till.paid) == (2, 2)
    assert "the database is unavailable" in caplog.text


def test_a_frozen_worker_cannot_overwrite_the_next_one(database: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = [sys.executable, str(SUPPORT.joinpath("paying_worker.py")), database, str(log)]

    def said(frozen: int, what: str) -> bool:
        return log.exists() and f"{frozen} {what}" in log.read_text()

    async def act(frozen: int) -> tuple[EndedRun, EndedRun]:
        async with RunClient(database) as client:
            await client.start("payer", "Hi", run_id="frozen")
            await until(lambda: said(frozen, "begins"))
            os.kill(frozen, signal.SIGSTOP)
            go_on(log).touch()
            async with serving_runs([payer(log)], database, QUICK):
                await asyncio.wait_for(client.wait("frozen"), 60)
            os.kill(frozen, signal.SIGCONT)
            await until(lambda: said(frozen, "done"))
            await client.start("payer", "Hi", run_id="thawed")  # it lives, and works
            return await asyncio.wait_for(client.wait("thawed"), 60), await client.wait("frozen")

    with subprocess.Popen(script, env={**os.environ, "PYTHONPATH": ":".join(sys.path)}) as worker:
        try:
            thawed, ended = asyncio.run(act(worker.pid))
        finally:
            worker.kill()
    assert f"paid by {worker.pid}" in str(thawed.state_json)
    assert f"paid by {os.getpid()}" in str(ended.state_json)
    outputs = rows(database, "SELECT output FROM dbos.operation_outputs WHERE workflow_uuid = 'frozen'")
    assert f"paid by {worker.pid}" not in str(outputs)


def test_a_run_that_cannot_be_recorded_is_run_again(database: str, caplog: Any) -> None:
    till = Till(one_by_one=True)

    async def act() -> EndedRun:
        agent = till.agent(PAY, "Paid.")
        async with serving_runs([agent], database, QUICK), RunClient(database) as client:
            await client.start("A", "Hi", run_id="anew")
            await till.paying.wait()
            rows(database, "ALTER TABLE dbos.operation_outputs RENAME TO gone")
            till.may_end.set()
            await until(lambda: "the run anew will be run again" in caplog.text)
            rows(database, "ALTER TABLE dbos.gone RENAME TO operation_outputs")
            till.may_end.set()
            return await asyncio.wait_for(client.wait("anew"), 60)

    assert asyncio.run(act()).status == "done"
    assert till.paid == 2


def test_a_run_that_was_claimed_and_not_begun_is_not_lost(database: str) -> None:
    """As when the connection breaks between the engine's claim and the answer that it was made."""
    till = Till()
    till.may_end.set()

    async def act() -> EndedRun:
        job: Any = {"agent": "A", "run_id": "claimed", "input": [{"role": "user", "content": "Hi"}]}
        job |= {"state": None, "context": None, "max_turns": 3, "until": None, "show": False}
        where: Any = {"workflow_name": WORKFLOW, "queue_name": "another", "workflow_id": "claimed"}
        where["app_version"] = STEPS_VERSION
        me = replace(QUICK, executor_id="me")
        async with serving_runs([till.agent(PAY, "Paid.")], database, me), RunClient(database) as client:
            async with running_client(database) as dbos:
                await dbos.enqueue_async(where, job)
            claim = "UPDATE dbos.workflow_status SET status = 'PENDING', executor_id = 'me',"
            claim += (
                " queue_name = 'routelock.A', owner_xid = 'x' WHERE workflow_uuid = 'claimed' RETURNING 1"
            )
            rows(database, claim)
            return await asyncio.wait_for(client.wait("claimed"), 60)

    assert asyncio.run(act()).status == "done"
    assert till.paid == 1


def test_a_run_moves_to_another_worker_and_back(database: str) -> None:
    """One worker after the other, so that nothing can be done by the wrong one."""
    begun: list[str] = []

    def note(name: str) -> Any:
        async def act() -> str:
            begun.append(name)
            return f"{name} done"

        return tool(act, name=name)

    def serving(agent: Agent[Any], other: str, handler: str | None = None) -> Any:
        settings = WorkerSettings(poll=0.02, elsewhere=[other], run_config=RunConfig(handler=handler))
        return serving_runs([agent], database, settings)

    over = handoff("billing", return_to_caller=True)
    model = ScriptedHandler(
        [call("look", {}, id="l"), call("transfer_to_billing", id="t"), "All is paid."], name="second"
    )
    idle = ScriptedHandler([], name="idle")
    triage = Agent("triage", model=idle, handlers=[model], tools=[note("look")], handoffs=[over])
    model = ScriptedHandler([call("charge", {}, id="c"), "40 EUR."])
    billing = Agent("billing", model=model, tools=[note("charge")])

    async def act() -> tuple[EndedRun, list[Any], list[Any]]:
        async with RunClient(database, poll=0.02) as client:
            await client.start("triage", "Pay.", run_id="away", show=True)
            watching = ThreadPoolExecutor().submit(watched, database, "away")
            async with serving(triage, "billing", "second"):
                await until(lambda: segments(database, "away") == 2)
            async with serving(billing, "triage"):
                await until(lambda: segments(database, "away") == 3)
            async with serving(triage, "billing"):
                ended = await asyncio.wait_for(client.wait("away"), 60)
            return ended, watching.result(60), await shown(client, "away", offset=2)

    ended, parts, later = asyncio.run(act())
    state = ended.state(agents=[triage, billing])
    assert (ended.status, ended.segment, ended.agent, begun) == ("done", 3, "triage", ["look", "charge"])
    assert state.items[-1].message.get("content") == "All is paid."
    assert [item.agent for item in state.items if item.kind == "model"] == ["triage"] * 2 + [
        "billing"
    ] * 2 + ["triage"]
    assert [part.offset for part in parts] == list(range(len(parts)))
    assert [part.step for part in parts] == [
        "t1.model.triage",
        "t1.tool.look.l",
        "t2.model.triage",
        "t3.model.billing",
        "t3.tool.charge.c",
        "t4.model.billing",
        "t5.model.triage",
    ]
    assert later == parts[2:]


def rows(database: str, sql: Any) -> list[Any]:
    with psycopg.connect(database, autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchall() if cursor.description else []


def segments(database: str, run_id: str) -> int:
    sql = f"SELECT 1 FROM dbos.workflow_status WHERE workflow_uuid LIKE '{run_id}%'"
    return len(rows(database, sql))


def watched(database: str, run_id: str) -> list[Any]:
    """Watch a run as another process would."""

    async def watch() -> list[Any]:
        async with RunClient(database, poll=0.02) as client:
            return await shown(client, run_id)

    return asyncio.run(watch())


async def shown(client: RunClient, run_id: str, offset: int = 0) -> list[Any]:
    async with aclosing(client.events(run_id, offset=offset)) as events:
        return [part async for part in events]


def test_a_worker_that_ends_while_it_connects_holds_no_lock(database: str) -> None:
    """A cancelled start goes on in its thread."""

    def reaper() -> Reaper:
        nothing: Any = None
        return Reaper(nothing, database, "the same", (), every=1.0, lease=1.0, grace=1.0)

    cancelled, other = reaper(), reaper()
    cancelled.end()
    cancelled.begin()
    other.begin()
    other.end()
