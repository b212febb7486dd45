"""Workers on PostgreSQL are killed at random moments, again and again, while there is work.

Afterwards: no run is lost, no answer is wrong, and nothing was begun again that was recorded before. What was
cut off in the middle, or was done and not recorded yet, is done again: that is counted, and how long a run
stood still because its worker was dead.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import psycopg
from databases import Postgres, address, postgres_server
from stress.crash import step_of
from stress.durable_worker import work
from stress.fleet import Fleet, counted

from routelock.state.dbos.database import WORKFLOW, running_client
from routelock.state.durable import RunClient

AT_HAND = 40
"""So many runs that are not done there are at least, as long as workers are killed."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to happen."""

    kills: int
    workers: int
    seed: int
    seconds: float = float("inf")
    """Nobody is killed after that time."""
    pace: float = 1
    """A step takes so many times as long: with 1 the workers are busy with the database alone."""
    outages: float = 0
    """How likely it is that the database crashes with a worker, and is away for up to two seconds."""
    apart: bool = False
    """Whether each worker serves one of the agents only, in turn, so that each run moves."""

    @property
    def at_once(self) -> int:
        """How many runs of an agent a worker may have; with a slow pace there is always a free place."""
        return 8 if self.pace == 1 else AT_HAND


class DatabaseFleet(Fleet):
    """Workers on a database, which crashes with a worker now and then."""

    def __init__(self, folder: Path, server: Postgres, plan: Plan) -> None:
        self._server, self._plan = server, plan
        super().__init__(folder, plan.workers, plan.seed, work, self._given)

    def _given(self, place: int) -> tuple[Any, ...]:
        plan, serves = self._plan, None
        if plan.apart:
            serves = ("triage", "billing")[place % 2]
        return (str(self.folder), address(self._server.conninfo), plan.at_once, plan.pace, serves)

    async def after_kill(self) -> None:
        """Let the database crash with the worker, now and then."""
        if self.dice.random() < self._plan.outages:
            self.outages += 1
            await asyncio.to_thread(self._server.crash)
            await asyncio.sleep(self.dice.uniform(0, 2))
            await asyncio.to_thread(self._server.start)


async def crash(folder: Path, server: Postgres, plan: Plan) -> dict[str, float]:
    """Kill so many workers, let the others do the rest, and return what was counted."""
    database = address(server.conninfo)
    async with RunClient(database) as client:
        fleet = DatabaseFleet(folder, server, plan)
        stop = asyncio.Event()
        until = time.monotonic() + plan.seconds
        try:
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(_feed(client, database, stop))
                while len(fleet.kills) < plan.kills and time.monotonic() < until:
                    await fleet.kill_one()
                stop.set()
            await _all_over(database, fleet)
        finally:
            fleet.end()
    runs = feeding.result()
    fleet.look()
    counts = _counted(fleet, await asyncio.to_thread(_recorded, database), runs, await _right(database))
    return {**counts, "moved": await asyncio.to_thread(_moved, database)}


async def _feed(client: RunClient, database: str, stop: asyncio.Event) -> int:
    """See to it that there is work."""
    begun = 0
    while not stop.is_set():
        for _ in range(max(0, AT_HAND - await asyncio.to_thread(_left, database))):
            await client.start("triage", f"Charge order {begun}x", run_id=f"r{begun}")
            begun += 1
        await asyncio.sleep(0.2)
    return begun


def _left(database: str) -> int:
    """Return how many runs have not ended; many, as long as the database is away."""
    sql = "SELECT COUNT(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    try:
        with psycopg.connect(database) as connection:
            row = connection.execute(sql).fetchone()
    except psycopg.OperationalError:
        return AT_HAND
    assert row is not None
    return int(row[0])


async def _all_over(database: str, fleet: Fleet) -> None:
    """Wait until all runs have ended; give up when none has for two minutes."""
    left, until = 0, 0.0
    while (now := await asyncio.to_thread(_left, database)) > 0:
        if now != left:
            left, until = now, time.monotonic() + 120
        fleet.check()
        if time.monotonic() > until:
            standing = await asyncio.to_thread(_standing, database)
            raise AssertionError(f"{left} runs are lost: {standing}; {fleet.said()[-3000:]}")
        await asyncio.sleep(0.2)


def _moved(database: str) -> int:
    """Return how often runs went to another worker by themselves."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT COUNT(*) FROM dbos.workflow_status WHERE workflow_uuid LIKE '%#%'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _standing(database: str) -> list[Any]:
    """Return how many runs wait, and who has those that nobody carries out."""
    sql = (
        "SELECT status, queue_name, executor_id, COUNT(*) FROM dbos.workflow_status"
        " WHERE status IN ('ENQUEUED', 'PENDING') GROUP BY 1, 2, 3"
    )
    with psycopg.connect(database) as connection:
        return connection.execute(sql).fetchall()


def _counted(fleet: Fleet, recorded: dict[tuple[str, str], float], runs: int, right: int) -> dict[str, float]:
    verdicts = _verdicts(fleet)
    return {
        **counted(fleet, recorded, runs, right, _had(fleet)),
        "outages": fleet.outages,
        "declared dead after mean s": round(mean(verdicts), 2) if verdicts else 0,
        "declared dead after max s": round(max(verdicts), 2) if verdicts else 0,
    }


def _recorded(database: str) -> dict[tuple[str, str], float]:
    """Return when each step was recorded."""
    sql = "SELECT workflow_uuid, function_name, completed_at_epoch_ms FROM dbos.operation_outputs"
    with psycopg.connect(database) as connection:
        rows = connection.execute(sql).fetchall()
    return {(run.partition("#")[0], step_of(key)): at / 1000 for run, key, at in rows if key.startswith("t")}


async def _right(database: str) -> int:
    """Return how many runs ended with the right answer."""
    async with running_client(database) as client:
        ended = await client.list_workflows_async(status="SUCCESS", name=WORKFLOW, load_input=False)
    right = {run for one in ended if f"Order {(run := _run_of(one))[1:]}x is charged." in str(one.output)}
    return len(right)


def _run_of(segment: Any) -> str:
    return str(segment.workflow_id).partition("#")[0]


def _had(fleet: Fleet) -> defaultdict[str, set[int]]:
    """Return the workers that had a run when they were declared dead."""
    had: defaultdict[str, set[int]] = defaultdict(set)
    for pid, runs in re.findall(r"routelock: worker (\d+)-\w+ is dead; .*?: (.*)", fleet.said()):
        for run in runs.split(", "):
            had[run.partition("#")[0]].add(int(pid))
    return had


def _verdicts(fleet: Fleet) -> list[float]:
    """How long it took until a worker that was killed was declared dead, for those that had runs."""
    said = fleet.said()
    verdicts = re.findall(r"^([\d.]+) routelock: worker (\d+)-\w+ is dead", said, re.MULTILINE)
    at = {int(pid): float(at) for at, pid in reversed(verdicts)}
    return [at[pid] - killed for pid, killed in fleet.kills if pid in at]


def main(arguments: list[str] | None = None) -> int:
    """Kill, and say what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="kill nobody after that time")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--pace", type=float, default=1, help="a step takes so many times as long")
    parser.add_argument(
        "--outages", type=float, default=0, help="how often the database crashes, too: 0 to 1"
    )
    parser.add_argument("--apart", action="store_true", help="each worker serves one agent; runs move")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(arguments)
    failed = False
    for workers in given.workers:
        plan = Plan(
            kills=given.kills,
            workers=workers,
            seed=given.seed,
            seconds=given.seconds,
            pace=given.pace,
            outages=given.outages,
            apart=given.apart,
        )
        with postgres_server() as server, tempfile.TemporaryDirectory() as folder:
            counts = asyncio.run(crash(Path(folder), server, plan))
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        print(f"{plan}, load {os.getloadavg()[0]:.0f}:", said, flush=True)
        wrong = [counts[what] for what in ("lost or wrong", "violations", "missing steps")]
        failed = failed or any(wrong) or counts["moved"] != plan.apart * counts["runs"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
