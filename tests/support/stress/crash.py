"""Processes are killed at random moments, again and again, until the journal's runs are all done.

Afterwards: no run is lost, no answer is wrong, and nothing was begun again that was written down before the
kill. What was cut off in the middle, or was done and not written down yet, is done again: that is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("crash_worker.py")
STEPS = 9
"""Of each run: five model calls and four tools."""


def crash(folder: Path, kills: int, runs: int, seed: int) -> dict[str, int]:
    """Kill workers so many times while there is work, let the last one end, and return what was counted."""
    dice = random.Random(seed)
    counts: Counter[str] = Counter()
    violations: list[str] = []
    written: set[tuple[str, str]] = set()
    lines = 0
    for life in range(kills + 1):
        worker = _start(folder, runs)
        if life < kills:
            counts["kills"] += _kill(worker, folder, lines, dice)
        _, said = worker.communicate(timeout=600)
        assert worker.returncode in (0, -signal.SIGKILL), said.decode()[-3000:]
        log = _lines(folder)
        for line in log[lines:]:
            if line.get("begins") and (line["run"], line["step"]) in written:
                violations.append(f"{line['run']} {line['step']} was begun again")
        lines, written = len(log), _written(folder)
        if worker.returncode == 0:
            break
    begun = Counter((line["run"], line["step"]) for line in _lines(folder) if line.get("begins"))
    ended = Counter((line["run"], line["step"]) for line in _lines(folder) if line.get("done"))
    with closing(sqlite3.connect(folder / "runs.db")) as db:
        (done,) = db.execute("SELECT COUNT(*) FROM routelock_runs WHERE status = 'done'").fetchone()
    counts["lost"] = runs - done
    counts["runs"], counts["steps"] = runs, len(begun)
    counts["missing steps"] = STEPS * runs - len(begun)
    counts["begun again"] = sum(begun.values()) - len(begun)
    counts["tools done twice"] = sum(times - 1 for (_, step), times in ended.items() if "model" not in step)
    counts["violations"] = len(violations)
    assert not violations, violations[:5]
    return dict(counts)


def _start(folder: Path, runs: int) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(WORKER), str(folder), str(runs)]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def _kill(worker: subprocess.Popen[bytes], folder: Path, before: int, dice: random.Random) -> int:
    """Kill a worker at a random moment after it has begun to work; return whether it was still there."""
    while worker.poll() is None and len(_lines(folder)) == before:
        time.sleep(0.005)
    time.sleep(dice.uniform(0, 0.15))
    if worker.poll() is not None:
        return 0
    worker.kill()
    return 1


def _lines(folder: Path) -> list[dict[str, Any]]:
    """What is in the log; the last line may be cut."""
    path = folder / "log.jsonl"
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _written(folder: Path) -> set[tuple[str, str]]:
    """Return the steps that are on the disk, and those of runs that are done."""
    with closing(sqlite3.connect(folder / "runs.db")) as db:
        steps = {(run, step_of(key)) for run, key in db.execute("SELECT run_id, key FROM routelock_steps")}
        ended = {run for (run,) in db.execute("SELECT run_id FROM routelock_runs WHERE status = 'done'")}
    known = {(line["run"], line["step"]) for line in _lines(folder)}
    return steps | {(run, step) for run, step in known if run in ended}


def step_of(key: str) -> str:
    """Return what the worker calls a step: ``t1.model.triage`` or ``t1.tool.order.order``."""
    turn, kind, rest = key.split(".", 2)
    return f"model.{turn[1:]}" if kind == "model" else rest


def main(arguments: list[str] | None = None) -> int:
    """Kill, and say what was counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        counts = crash(Path(folder), given.kills, given.runs, given.seed)
    print(f"seed {given.seed}:", ", ".join(f"{name} {count}" for name, count in counts.items()))
    return 1 if counts["lost"] or counts["violations"] or counts["missing steps"] else 0


if __name__ == "__main__":
    sys.exit(main())
