"""Durable runs whose worker stops, or loses its database, on the way."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from databases import address, postgres

from interlock import Agent, tool
from interlock.durable import EndedRun, RunClient, WorkerSettings, serving_runs
from interlock.testing import ScriptedHandler, call

pytest.importorskip("dbos", reason="durable runs need DBOS: pip install 'interlock[durable]'")

QUICK = WorkerSettings(poll=0.02, watch=0.1, grace=0.3)
PAY = call("pay", {}, id="p")


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as conninfo:
        yield address(conninfo)


class Till:
    """A tool that takes as long as it is told to."""

    def __init__(self) -> None:
        self.seconds = 30.0
        self.begun = 0
        self.paying = asyncio.Event()
        self.paid = 0

    async def pay(self) -> str:
        """Pay."""
        self.begun += 1
        self.paying.set()
        await asyncio.sleep(self.seconds)
        self.paid += 1
        return "paid"

    def agent(self, *replies: Any) -> Agent[Any]:
        return Agent("A", model=ScriptedHandler(replies), tools=[tool(self.pay, name="pay")])


def test_what_a_worker_left_when_it_was_stopped_goes_on_with_another(database: str) -> None:
    till = Till()

    async def first() -> None:
        async with serving_runs([till.agent(PAY)], database, QUICK), RunClient(database) as client:
            await client.start("A", "Hi", run_id="left")
            await till.paying.wait()

    async def second() -> EndedRun:
        till.seconds = 0
        async with serving_runs([till.agent("Paid.")], database, QUICK), RunClient(database) as client:
            return await asyncio.wait_for(client.wait("left"), 60)

    asyncio.run(first())
    ended = asyncio.run(second())
    assert (ended.status, till.begun, till.paid) == ("done", 2, 1)


def test_a_worker_that_lost_all_its_connections_goes_on(database: str, caplog: Any) -> None:
    till = Till()
    till.seconds = 1

    def cut() -> None:
        with psycopg.connect(database, autocommit=True) as connection:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            connection.execute(f"{others} AND datname = current_database()")

    async def act() -> EndedRun:
        async with serving_runs([till.agent(PAY, "Paid.")], database, QUICK), RunClient(database) as client:
            await client.start("A", "Hi", run_id="cut")
            await till.paying.wait()
            await asyncio.to_thread(cut)
            return await asyncio.wait_for(client.wait("cut"), 60)

    ended = asyncio.run(act())
    assert (ended.status, till.begun, till.paid) == ("done", 1, 1)
    assert "the database is away" in caplog.text


def test_without_the_extra_one_is_told_what_to_install() -> None:
    code = """if True:
        import sys
        sys.modules["dbos"] = None
        from interlock.durable.library import engine
        from interlock.errors import MissingExtra
        try:
            engine()
        except MissingExtra as error:
            assert "interlock[durable]" in str(error)
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
