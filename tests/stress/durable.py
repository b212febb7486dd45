"""Workers on PostgreSQL are killed at random moments, again and again, while there is work.

Afterwards: no run is lost, no answer is wrong, and nothing was begun again that was recorded before. What was
cut off in the middle, or was done and not recorded yet, is done again: that is counted, and how long a run
stood still because its worker was dead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import psycopg
from databases import address, postgres
from stress.crash import STEPS, step_of
from stress.durable_worker import work

from interlock.durable import RunClient
from interlock.durable.connection import running_client
from interlock.durable.library import WORKFLOW

AT_HAND = 40
"""So many runs that are not done there are at least, as long as workers are killed."""
LATE = 0.05
"""Seconds after the record of a step in which it may still begin elsewhere: the commit takes its time."""


class Fleet:
    """Workers, and what they wrote in the log."""

    def __init__(self, folder: Path, database: str, count: int, dice: random.Random) -> None:
        self.folder, self.database, self.dice = folder, database, dice
        self.log: list[dict[str, Any]] = []
        self.kills: list[tuple[int, float]] = []
        self._busy: set[int] = set()
        self._read = 0
        self._forking = multiprocessing.get_context("forkserver")  # importing takes longer than starting
        self._forking.set_forkserver_preload([__name__, "stress.durable_worker"])
        self._living = [self._start() for _ in range(count)]

    def _start(self) -> Any:
        process = self._forking.Process(target=work, args=(str(self.folder), self.database), daemon=True)
        process.start()
        return process

    def look(self) -> None:
        """Read what is new in the log."""
        path = self.folder / "log.jsonl"
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        self.log += lines
        self._busy |= {line["pid"] for line in lines}

    async def kill_one(self) -> None:
        """Kill a worker at a random moment, one of two that work if there are several, and start another."""
        while len(ready := self._ready()) < min(2, len(self._living)):
            assert all(worker.is_alive() for worker in self._living), "a worker ended by itself"
            await asyncio.sleep(0.02)
        await asyncio.sleep(self.dice.uniform(0, 0.6))
        worker = self.dice.choice(ready)
        worker.kill()
        self.kills.append((worker.pid, time.time()))
        worker.join()
        self._living[self._living.index(worker)] = self._start()

    def _ready(self) -> list[Any]:
        self.look()
        return [worker for worker in self._living if worker.pid in self._busy]

    def end(self) -> None:
        """Stop all of them."""
        for worker in self._living:
            worker.kill()
            worker.join()


async def crash(
    folder: Path, database: str, kills: int, workers: int, seed: int, seconds: float = float("inf")
) -> dict[str, float]:
    """Kill so many workers, let the others do the rest, and return what was counted."""
    async with RunClient(database) as client:
        fleet = Fleet(folder, database, workers, random.Random(seed))
        stop = asyncio.Event()
        feeding = asyncio.create_task(_feed(client, database, stop))
        try:
            until = time.monotonic() + seconds
            while len(fleet.kills) < kills and time.monotonic() < until:
                await fleet.kill_one()
            stop.set()
            runs = await feeding
            await _all_over(database)
        finally:
            stop.set()
            fleet.end()
    fleet.look()
    return _counted(fleet, await asyncio.to_thread(_recorded, database), runs, await _right(database))


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
    sql = "SELECT COUNT(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')"
    with psycopg.connect(database) as connection:
        row = connection.execute(sql).fetchone()
    assert row is not None
    return int(row[0])


async def _all_over(database: str) -> None:
    """Wait until all runs have ended; give up when none has for two minutes."""
    left, until = 0, 0.0
    while (now := await asyncio.to_thread(_left, database)) > 0:
        if now != left:
            left, until = now, time.monotonic() + 120
        assert time.monotonic() < until, f"{left} runs are lost: nobody carries them out"
        await asyncio.sleep(0.2)


def _counted(fleet: Fleet, recorded: dict[tuple[str, str], float], runs: int, right: int) -> dict[str, float]:
    begun = [line for line in fleet.log if line.get("begins")]
    times = Counter((line["run"], line["step"]) for line in begun)
    done = Counter((line["run"], line["step"]) for line in fleet.log if line.get("done"))
    late = [
        line for line in begun if line["at"] > recorded.get((line["run"], line["step"]), float("inf")) + LATE
    ]
    waits = _failovers(fleet)
    assert not late, late[:5]
    return {
        "kills": len(fleet.kills),
        "runs": runs,
        "lost or wrong": runs - right,
        "steps": len(times),
        "missing steps": STEPS * runs - len(times),
        "begun again": sum(times.values()) - len(times),
        "tools done twice": sum(count - 1 for (_, step), count in done.items() if "model" not in step),
        "most often begun": max(times.values()),
        "violations": len(late),
        "failovers": len(waits),
        "failover mean s": round(mean(waits), 2) if waits else 0,
        "failover max s": round(max(waits), 2) if waits else 0,
    }


def _recorded(database: str) -> dict[tuple[str, str], float]:
    """Return when each step was recorded."""
    sql = "SELECT workflow_uuid, function_name, completed_at_epoch_ms FROM dbos.operation_outputs"
    with psycopg.connect(database) as connection:
        rows = connection.execute(sql).fetchall()
    return {(run, step_of(key)): at / 1000 for run, key, at in rows if key.startswith("t")}


async def _right(database: str) -> int:
    """Return how many runs ended with the right answer."""
    async with running_client(database) as client:
        ended = await client.list_workflows_async(status="SUCCESS", name=WORKFLOW, load_input=False)
    return sum(f"Order {one.workflow_id[1:]}x is charged." in str(one.output) for one in ended)


def _failovers(fleet: Fleet) -> list[float]:
    """How long it took until the runs of a worker that was killed went on with another one, per kill."""
    of_run: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in fleet.log:
        of_run[line["run"]].append(line)
    waits: defaultdict[int, list[float]] = defaultdict(list)
    killed = dict(fleet.kills)
    for lines in of_run.values():
        for before, after in pairwise(lines):
            if before["pid"] != after["pid"] and before["pid"] in killed:
                waits[before["pid"]].append(after["at"] - killed[before["pid"]])
    return [max(each) for each in waits.values()]


def main(arguments: list[str] | None = None) -> int:
    """Kill, and say what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="kill nobody after that time")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 3])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(arguments)
    failed = False
    for workers in given.workers:
        with postgres() as conninfo, tempfile.TemporaryDirectory() as folder:
            counts = asyncio.run(
                crash(Path(folder), address(conninfo), given.kills, workers, given.seed, given.seconds)
            )
        said = ", ".join(f"{name} {count}" for name, count in counts.items())
        print(f"seed {given.seed}, {workers} workers:", said, flush=True)
        failed = failed or bool(counts["lost or wrong"] or counts["violations"] or counts["missing steps"])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
