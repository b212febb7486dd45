"""What interlock costs on top of the least that can be: CPU time of the client, and its ratio to a floor.

    python benchmarks/measure_speed.py [--rounds N] [--quick] [--only NAME ...]

A floor is the same conversation written by hand. Each contender runs in an interpreter of its own; a round
visits them there and back, and a ratio is the median of the ratios of the visits, so a busy machine spoils
less. The model is a small server of our own in a process of its own, whose time does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from speed.scene import ANSWER  # noqa: E402
from speed.server import marker  # noqa: E402

CONTENDERS = {
    "by hand, no HTTP": "floors.InProcess",
    "interlock, no HTTP": "ours.Loop",
    "by hand, aiohttp": "floors.Aiohttp",
    "OpenAICompatible": "ours.Direct",
    "by hand, openai": "floors.OpenAIFloor",
    "OpenAI": "ours.ThroughOpenAI",
    "by hand, litellm": "floors.LiteLLMFloor",
    "LiteLLM": "ours.ThroughLiteLLM",
}
"""In pairs: a floor, and what stands on it."""
PAIRS = list(zip(list(CONTENDERS)[::2], list(CONTENDERS)[1::2], strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is run, and how often in one measurement."""

    work: str
    text: str
    runs: int
    slow_runs: int
    """How often with litellm, which takes its time."""
    expected: object = ANSWER
    at_once: bool = False
    per: int = 1
    """By how many the figure is divided: chunks, or turns."""


def scenarios(*, quick: bool) -> Mapping[str, Scenario]:
    """Return the scenarios by name; with ``quick``, as few runs of them as still say whether all works."""
    runs, slow, chunks, turns, crowd = (3, 1, 50, 5, 10) if quick else (100, 20, 1000, 400, 500)
    return {
        "s1": Scenario(work="s1", text=marker(), runs=runs * 2, slow_runs=slow),
        "s2": Scenario(work="s2", text=marker(), runs=runs, slow_runs=slow),
        "s3": Scenario(work="s3", text=marker(), runs=runs, slow_runs=slow),
        "chunk": Scenario(
            work="stream",
            text=marker(chunks=chunks),
            runs=1 if quick else 10,
            slow_runs=1,
            expected=chunks,
            per=chunks,
        ),
        "turn of many": Scenario(work="s2", text=marker(turns=turns), runs=1, slow_runs=1, per=turns),
        "one of many": Scenario(
            work="s3", text=marker(wait=50), runs=crowd, slow_runs=crowd // 5, at_once=True
        ),
    }


@dataclass
class Table:
    """CPU seconds by scenario and contender, one figure per visit, two visits per round."""

    seen: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    memory: dict[str, list[float]] = field(default_factory=dict)

    def add(self, scenario: str, contender: str, cpu: float) -> None:
        """Note one visit."""
        self.seen.setdefault((scenario, contender), []).append(cpu)

    def microseconds(self, scenario: str, contender: str) -> float:
        """Return the median in microseconds."""
        return median(self.seen[scenario, contender]) * 1e6

    def ratio(self, scenario: str, floor: str, contender: str) -> float:
        """Return the median of how many times the floor this took, visit by visit."""
        both = zip(self.seen[scenario, contender], self.seen[scenario, floor], strict=True)
        return median(ours / theirs for ours, theirs in both)


@contextmanager
def _process(*command: str) -> Iterator[subprocess.Popen[str]]:
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every import is compiled anew
    # fmt: off
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if "server" in command[0]:
                process.terminate()
    # fmt: on


def _ask(worker: subprocess.Popen[str], scenario: Scenario, runs: int) -> Mapping[str, float]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    task = {"scenario": scenario.work, "text": scenario.text, "runs": runs}
    worker.stdin.write(
        json.dumps({**task, "expected": scenario.expected, "at_once": scenario.at_once}) + "\n"
    )
    worker.stdin.flush()
    said = json.loads(worker.stdout.readline() or '{"error": "it is gone"}')
    if "error" in said:
        raise SystemExit(f"{worker.args}: {said['error']}")
    return said


def measure(names: list[str], *, rounds: int, quick: bool) -> Table:
    """Run everything and return the figures."""
    table = Table()
    with ExitStack() as stack:
        server = stack.enter_context(_process(str(HERE / "speed" / "server.py")))
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        workers = {
            name: stack.enter_context(_process(str(HERE / "speed" / "worker.py"), CONTENDERS[name], url))
            for name in names
        }
        for title, scenario in scenarios(quick=quick).items():
            for number in range(rounds + 1):  # the first one warms up
                for name in [*names, *reversed(names)] if number else names:
                    slow = "litellm" in name.lower() or "openai" in CONTENDERS[name].lower()
                    runs = scenario.slow_runs if slow else scenario.runs
                    if not number and not scenario.at_once:
                        runs = max(1, runs // 10)
                    said = _ask(workers[name], scenario, runs)
                    if number:
                        table.add(title, name, said["cpu"] / scenario.per)
                    elif scenario.at_once:
                        table.memory[name] = [said["memory"]]
    return table


def shown(table: Table, names: list[str]) -> str:
    """Return the table as Markdown: microseconds, and how many times the floor they are."""
    titles = list(dict.fromkeys(title for title, _ in table.seen))
    lines = [f"| CPU per run | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for floor, ours in PAIRS:
        for name in (floor, ours):
            if name in names:
                cells = [_cell(table, title, name, floor if floor in names else name) for title in titles]
                lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(table: Table, title: str, name: str, floor: str) -> str:
    figure = f"{table.microseconds(title, name):.{1 if table.microseconds(title, name) < 100 else 0}f} µs"
    return figure if name == floor else f"{figure} ({table.ratio(title, floor, name):.2f})"


def _versions() -> str:
    known: list[str] = [f"Python {platform.python_version()}"]
    for package in ("aiohttp", "litellm", "openai", "httpx"):
        try:
            known.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(known)


def main(arguments: list[str]) -> Any:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each contender is visited, there and back"
    )
    parser.add_argument("--quick", action="store_true", help="few runs: says whether it works, not how fast")
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS), help="these contenders alone")
    given = parser.parse_args(arguments)
    names = given.only or list(CONTENDERS)
    table = measure(names, rounds=given.rounds, quick=given.quick)
    print(f"{_versions()}; {platform.machine()}, {os.cpu_count()} cores; {given.rounds} rounds\n")
    print(shown(table, names))
    return table


if __name__ == "__main__":
    main(sys.argv[1:])
