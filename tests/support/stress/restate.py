"""Processes that serve one Restate are killed at random moments, again and again, while there is work.

All of them listen at one address, and share the connections that Restate opens to it. Afterwards: no run is
lost, no answer is wrong, and nothing was begun again that Restate had recorded before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.error import HTTPError

from restate_server import register, request, restate_server
from servers import free_port
from stress.crash import STEPS, step_of
from stress.fleet import Fleet, counted
from stress.restate_worker import WORKFLOW, work
from waiting import until

AT_HAND = 40
"""So many runs that are not done there are at least, as long as workers are killed."""
STREAMS = 4
"""So many runs share one connection of Restate, whose default is 128: so each worker has some."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to happen."""

    kills: int
    workers: int
    seed: int
    pace: float = 1
    """A step takes so many times as long."""
    outages: float = 0
    """How likely it is that all workers are killed, and are away until Restate has paused all runs."""


@dataclass(frozen=True)
class Server:
    """A Restate server."""

    ingress: str
    admin: str

    def start(self, number: int) -> None:
        """Start a run."""
        request(f"{self.ingress}/{WORKFLOW}/r{number}/run/send", f"Charge order {number}x")

    def is_right(self, number: int) -> bool:
        """Whether a run has ended with the right answer."""
        try:
            answer = request(f"{self.ingress}/restate/workflow/{WORKFLOW}/r{number}/output")
        except HTTPError:
            return False
        return bool(answer == f"Order {number}x is charged.")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return what is asked for."""
        rows: list[dict[str, Any]] = request(f"{self.admin}/query", {"query": sql})["rows"]
        return rows

    def left(self) -> list[str]:
        """Return the states of the runs that have not ended."""
        return [row["status"] for row in self.rows(f"SELECT status FROM sys_invocation WHERE {_LEFT}")]

    def ended(self) -> set[str]:
        """Return the runs that have ended."""
        rows = self.rows("SELECT target_service_key AS run FROM sys_invocation WHERE status = 'completed'")
        return {row["run"] for row in rows}

    def recorded(self, runs: str) -> list[tuple[str, str]]:
        """Return the runs and steps of all records, of some runs; the last record of a run has no step."""
        rows = self.rows(
            "SELECT i.target_service_key AS run, j.entry_json AS entry FROM sys_journal j"
            f" JOIN sys_invocation i ON j.id = i.id WHERE j.entry_type = 'Notification: Run' AND {runs}"
        )
        return [(row["run"], step_of(key)) for row in rows if (key := _key(row["entry"]))]

    def resume(self) -> int:
        """Let runs that are paused go on; return how many there were."""
        rows = self.rows("SELECT id FROM sys_invocation WHERE status = 'paused'")
        for row in rows:
            request(f"{self.admin}/invocations/{row['id']}/resume", method="PATCH")
        return len(rows)


_LEFT = "status != 'completed'"


def _key(entry: str) -> str:
    """Return the key of a step in an entry of Restate's journal; an empty one is the end of a run."""
    result = json.loads(entry)["Notification"]["Completion"]["Run"]["result"]
    key, _ = json.loads(json.loads(bytes(result["Success"])))
    return str(key)


class RestateFleet(Fleet):
    """Workers of Restate. What is recorded is read after each kill: times in its journal are too coarse."""

    def __init__(self, folder: Path, server: Server, plan: Plan, port: int) -> None:
        self.paused = 0
        """How many runs were paused, and went on."""
        self._server, self._plan = server, plan
        self._steps: dict[tuple[str, str], float] = {}
        self._runs: dict[str, float] = {}
        given = (str(folder), port, plan.pace, bool(plan.outages))
        super().__init__(folder, plan.workers, plan.seed, work, lambda _: given)

    async def kill_one(self) -> None:
        """Kill a worker, or all of them, and start others; resume what was paused."""
        outages = self.outages
        await super().kill_one()
        if self.outages > outages:
            self.paused += len(await asyncio.to_thread(self._server.left))
            await until(lambda: not self._server.resume())  # paused again, as long as no worker listens

    async def after_kill(self) -> None:
        """Note what is recorded by now, and let all workers be away now and then."""
        if self.dice.random() < self._plan.outages:
            self.outages += 1
            self.kill_all()
            await until(lambda: set(self._server.left()) == {"paused"})
        ended = await asyncio.to_thread(self._server.ended)
        steps = await asyncio.to_thread(self._server.recorded, _LEFT)
        now = time.time()
        for run in ended:
            self._runs.setdefault(run, now)
        for step in steps:
            self._steps.setdefault(step, now)

    def recorded(self) -> dict[tuple[str, str], float]:
        """Return since when each step is known to be recorded."""
        lines = [(line["run"], line["step"]) for line in self.log if line["run"] in self._runs]
        return {**{(run, step): self._runs[run] for run, step in lines}, **self._steps}

    def at_work(self) -> float:
        """Return how many workers did something in the second before a kill, on average."""
        lines = sorted((line["at"], line["pid"]) for line in self.log)
        return mean(
            len({pid for _, pid in lines[bisect_left(lines, (at - 1, 0)) : bisect_right(lines, (at, 0))]})
            for _, at in self.kills
        )


async def crash(folder: Path, server: Server, plan: Plan) -> dict[str, float]:
    """Kill so many workers, let the others do the rest, and return what was counted."""
    port = free_port()
    fleet = RestateFleet(folder, server, plan, port)
    stop = asyncio.Event()
    try:
        await asyncio.to_thread(register, server.ingress, server.admin, f"http://127.0.0.1:{port}")
        async with asyncio.TaskGroup() as tasks:
            feeding = tasks.create_task(_feed(server, stop))
            while len(fleet.kills) < plan.kills:
                await fleet.kill_one()
            stop.set()
        await _all_over(server, fleet)
    finally:
        fleet.end()
    runs = feeding.result()
    fleet.look()
    right = await asyncio.to_thread(lambda: sum(map(server.is_right, range(runs))))
    return {
        **counted(fleet, fleet.recorded(), runs, right, {}),
        "recorded twice": await asyncio.to_thread(_twice, server, runs),
        "outages": fleet.outages,
        "paused": fleet.paused,
        "workers at work": round(fleet.at_work(), 2),
    }


def _twice(server: Server, runs: int) -> int:
    """Return how many steps have two records."""
    parts = (f"i.target_service_key LIKE '%{digit}'" for digit in range(10))  # all at once are too many
    records = Counter(record for part in parts for record in server.recorded(part))
    assert len(records) == STEPS * runs, (len(records), runs)
    return records.total() - len(records)


async def _feed(server: Server, stop: asyncio.Event) -> int:
    """See to it that there is work."""
    begun = 0
    while not stop.is_set():
        for _ in range(max(0, AT_HAND - len(await asyncio.to_thread(server.left)))):
            await asyncio.to_thread(server.start, begun)
            begun += 1
        await asyncio.sleep(0.2)
    return begun


async def _all_over(server: Server, fleet: Fleet) -> None:
    """Wait until all runs have ended; give up when none has for two minutes."""
    left, until = 0, 0.0
    while (now := len(await asyncio.to_thread(server.left))) > 0:
        if now != left:
            left, until = now, time.monotonic() + 120
        fleet.check()
        if time.monotonic() > until:
            standing = await asyncio.to_thread(server.rows, f"SELECT * FROM sys_invocation WHERE {_LEFT}")
            raise AssertionError(f"{left} runs are lost: {standing}; {fleet.said()[-3000:]}")
        await asyncio.sleep(0.2)


_BAD = ("lost or wrong", "violations", "missing steps", "recorded twice")


def main(arguments: list[str] | None = None) -> int:
    """Kill, and say what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--pace", type=float, default=1, help="a step takes so many times as long")
    parser.add_argument("--outages", type=float, default=0, help="how often all workers are away: 0 to 1")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(arguments)
    plan = Plan(**vars(given))
    settings = {"RESTATE_WORKER__INVOKER__HTTP2_STREAMS_PER_CONNECTION_LIMIT": str(STREAMS)}
    with restate_server(settings) as addresses, tempfile.TemporaryDirectory() as folder:
        counts = asyncio.run(crash(Path(folder), Server(*addresses), plan))
    said = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"{plan}, load {os.getloadavg()[0]:.0f}:", said, flush=True)
    return 1 if any(counts[what] for what in _BAD) or bool(counts["outages"]) != bool(counts["paused"]) else 0


if __name__ == "__main__":
    sys.exit(main())
