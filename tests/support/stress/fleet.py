"""Workers that are killed at random moments, what they wrote in their log, and what is counted of it."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from stress.crash import STEPS

LATE = 0.05
"""Seconds after the record of a step in which it may still begin elsewhere: the commit takes its time."""


class Fleet:
    """Workers, and what they wrote in the log.

    Args:
        folder: where ``log.jsonl`` and ``workers.log`` are.
        workers: how many there are at the same time.
        seed: of the moments at which they are killed.
        work: what each of them does, in a process of its own.
        given: returns the arguments of ``work`` for a place.
    """

    def __init__(
        self,
        folder: Path,
        workers: int,
        seed: int,
        work: Callable[..., None],
        given: Callable[[int], tuple[Any, ...]],
    ) -> None:
        self.folder, self.dice = folder, random.Random(seed)
        self.outages = 0
        """How often what the workers need was away: one that starts at such a time may end by itself."""
        self.log: list[dict[str, Any]] = []
        self.kills: list[tuple[int, float]] = []
        self._work, self._given = work, given
        self._busy: set[int] = set()
        self._read = 0
        self._forking = multiprocessing.get_context("forkserver")  # importing takes longer than starting
        self._forking.set_forkserver_preload([work.__module__])
        self._living = [self._start(place) for place in range(workers)]

    def _start(self, place: int) -> Any:
        process = self._forking.Process(target=self._work, args=self._given(place), daemon=True)
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
            self.check()
            await asyncio.sleep(0.02)
        await asyncio.sleep(self.dice.uniform(0, 0.6))
        self._kill(self.dice.choice(ready))
        await self.after_kill()
        killed = {pid for pid, _ in self.kills}
        for place, worker in enumerate(self._living):
            if worker.pid in killed:
                self._living[place] = self._start(place)

    def kill_all(self) -> None:
        """Kill all workers that live."""
        for worker in self._living:
            if worker.is_alive():
                self._kill(worker)

    def _kill(self, worker: Any) -> None:
        worker.kill()
        self.kills.append((worker.pid, time.time()))
        worker.join()

    async def after_kill(self) -> None:
        """Do what else is to happen when a worker was killed, before another one starts."""

    def check(self) -> None:
        """Make sure that all workers live that were not killed, and found what they need when they began."""
        self.look()
        for place, worker in enumerate(self._living):
            if not worker.is_alive():
                if not self.outages or worker.pid in self._busy:
                    raise AssertionError(f"a worker ended by itself: {self.said()[-3000:]}")
                self._living[place] = self._start(place)

    def said(self) -> str:
        """Return what the workers said."""
        path = self.folder / "workers.log"
        return path.read_text() if path.exists() else ""

    def _ready(self) -> list[Any]:
        self.look()
        return [worker for worker in self._living if worker.pid in self._busy]

    def end(self) -> None:
        """Stop all of them."""
        for worker in self._living:
            worker.kill()
            worker.join()


def counted(
    fleet: Fleet,
    recorded: Mapping[tuple[str, str], float],
    runs: int,
    right: int,
    had: Mapping[str, set[int]],
) -> dict[str, float]:
    """Return what was counted.

    Args:
        fleet: the workers.
        recorded: when each step of each run was recorded.
        runs: how many were begun.
        right: how many ended with the right answer.
        had: the workers that had a run when they were declared dead, where an engine says so.
    """
    begun = [line for line in fleet.log if line.get("begins")]
    times = Counter((line["run"], line["step"]) for line in begun)
    done = Counter((line["run"], line["step"]) for line in fleet.log if line.get("done"))
    late = [
        line for line in begun if line["at"] > recorded.get((line["run"], line["step"]), float("inf")) + LATE
    ]
    waits = _failovers(fleet, had)
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


def _failovers(fleet: Fleet, had: Mapping[str, set[int]]) -> list[float]:
    """How long it took until the runs of a worker that was killed went on with another one, per kill.

    A run that was taken over by a worker which was killed as well before it went on waits since then.
    """
    of_run: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in fleet.log:
        of_run[line["run"]].append(line)
    waits: defaultdict[int, list[float]] = defaultdict(list)
    killed = dict(fleet.kills)
    for run, lines in of_run.items():
        for before, after in pairwise(lines):
            dead = {before["pid"], *had.get(run, ())} if before["pid"] != after["pid"] else set[int]()
            if deaths := [(killed[pid], pid) for pid in dead if killed.get(pid, after["at"]) < after["at"]]:
                since, last = max(deaths)
                waits[last].append(after["at"] - since)
    return [max(each) for each in waits.values()]
