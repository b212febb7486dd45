"""What routelock costs on top of the least that can be: CPU time of the client, and its ratio to a floor.

    python benchmarks/measure_speed.py [--rounds N] [--turns N] [--quick] [--only NAME ...] [--peers PYTHON]
    python benchmarks/measure_speed.py --load [--rounds N] [--crowd N] [--litellm PYTHON]

A floor is the same conversation written by hand. Other frameworks are measured where they are installed: for
this Python, or for those that ``--peers`` names. Each contender runs in an interpreter of its own; a round
visits them there and back, and a ratio is the median of the ratios of the visits, so a busy machine spoils
less. The model is a small server of our own in a process of its own, whose time does not count.

``--load`` measures served agents instead: requests by many clients at once, see `speed.load`.
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
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from speed.load import about_load, measured_load, shown_load  # noqa: E402
from speed.long_run import long_runs  # noqa: E402
from speed.scale_tables import scale_tables  # noqa: E402
from speed.scene import ANSWER  # noqa: E402
from speed.server import marker  # noqa: E402

CONTENDERS = {
    "by hand, no HTTP": "floors.InProcess",
    "routelock, no HTTP": "ours.Loop",
    "by hand, aiohttp": "floors.Aiohttp",
    "OpenAICompatible": "ours.Direct",
    "by hand, openai": "floors.OpenAIFloor",
    "OpenAI": "ours.ThroughOpenAI",
    "by hand, litellm": "floors.LiteLLMFloor",
    "LiteLLM": "ours.ThroughLiteLLM",
}
"""In pairs: a floor, and what stands on it."""
PAIRS = dict(zip(list(CONTENDERS)[1::2], list(CONTENDERS)[::2], strict=True))
PEERS = {
    "openai-agents": ("peers.OpenAIAgents", "agents"),
    "pydantic-ai-slim": ("peers.PydanticAI", "pydantic_ai"),
    "langgraph": ("peers.LangGraph", "langgraph_swarm"),
    "agno": ("peers.Agno", "agno"),
    "webagents": ("peers.WebAgents", "webagents"),
}
"""By the name of the package: the contender, and the module that shows whether it is there."""
AGAINST = "OpenAICompatible"
"""What peers are held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is run, and how often in one measurement."""

    work: str
    text: str
    runs: int
    slow_runs: int
    """How often with what takes its time: litellm, openai and the peers."""
    expected: object = ANSWER
    at_once: bool = False
    per: int = 1
    """By how many the figure is divided: chunks, or turns."""


def scenarios(turns: int, crowd: int, *, quick: bool) -> Mapping[str, Scenario]:
    """Return the scenarios by name; with ``quick``, as few runs of them as still say whether all works."""
    runs, slow, chunks, turns, crowd = (3, 1, 50, 5, 10) if quick else (100, 20, 1000, turns, crowd)
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
        "one of many": Scenario(work="s3", text=marker(wait=50), runs=crowd, slow_runs=crowd, at_once=True),
    }


@dataclass
class Table:
    """CPU seconds by scenario and contender, one figure per visit, two visits per round."""

    seen: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    """Bytes that one of many runs takes at the peak, when they are made for the first time."""

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


def peers_in(pythons: list[str]) -> dict[str, str]:
    """Return the peers that are installed, each with the first Python that has it."""
    modules = [module for _, module in PEERS.values()]
    ask = f"import importlib.util as u; print(*filter(u.find_spec, {modules}))"
    found: dict[str, str] = {}
    for python in pythons:
        there = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
        for name, (_, module) in PEERS.items():
            if module in there:
                found.setdefault(name, python)
    return found


@contextmanager
def _process(*command: str, python: str = sys.executable) -> Iterator[subprocess.Popen[str]]:
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or every import is compiled anew
    # fmt: off
    with subprocess.Popen(
        [python, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            if "server" in command[0]:
                process.terminate()
    # fmt: on


@contextmanager
def serving() -> Iterator[str]:
    """Run the model server, and yield its address."""
    with _process(str(HERE / "speed" / "server.py")) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"


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


def measure(pythons: Mapping[str, str], work: Mapping[str, Scenario], *, rounds: int) -> Table:
    """Run everything and return the figures.

    Args:
        pythons: the contenders, each with the interpreter that runs it.
        work: the scenarios.
        rounds: how often each contender is visited, there and back.
    """
    table, names = Table(), list(pythons)
    with ExitStack() as stack:
        url = stack.enter_context(serving())
        workers = {
            name: stack.enter_context(
                _process(str(HERE / "speed" / "worker.py"), _kind(name), url, python=python)
            )
            for name, python in pythons.items()
        }
        for title, scenario in work.items():
            for number in range(rounds + 1):  # the first one warms up
                for name in [*names, *reversed(names)] if number else names:
                    runs = scenario.slow_runs if _is_slow(name) else scenario.runs
                    if not number and not scenario.at_once:
                        runs = max(1, runs // 10)
                    said = _ask(workers[name], scenario, runs)
                    if number:
                        table.add(title, name, said["cpu"] / scenario.per)
                    elif scenario.at_once:
                        table.memory[name] = said["memory"]
    return table


def shown(table: Table, names: list[str]) -> str:
    """Return the table as Markdown: microseconds, and how many times the floor they are."""
    titles = list(dict.fromkeys(title for title, _ in table.seen))
    lines = [f"| CPU per run | {' | '.join(titles)} | memory |", f"|---|{'---:|' * (len(titles) + 1)}"]
    for name in names:
        floor = PAIRS.get(name, AGAINST if name in PEERS else None)
        cells = [_cell(table, title, name, floor if floor in names else None) for title in titles]
        lines.append(f"| {name} | {' | '.join(cells)} | {table.memory[name] / 1024:.0f} KiB |")
    return "\n".join(lines)


def _cell(table: Table, title: str, name: str, floor: str | None) -> str:
    took = table.microseconds(title, name)
    figure = f"{took / 1000:.1f} ms" if took >= 10_000 else f"{took:.{1 if took < 100 else 0}f} µs"
    if floor is None:
        return figure
    ratio = table.ratio(title, floor, name)
    return f"{figure} ({ratio:.{2 if ratio < 10 else 0}f})"


def _versions(pythons: Mapping[str, str]) -> str:
    lines = [f"Python {platform.python_version()}, {packages(sys.executable, *_CARRIERS)}"]
    for name, python in pythons.items():
        if name in PEERS:
            lines.append(f"{packages(python, name)} with {packages(python, 'openai')}")
    return "; ".join(lines)


def packages(python: str, *names: str) -> str:
    """Return the names and versions of packages of a Python."""
    ask = f"import importlib.metadata as m; print(*(f'{{n}} {{m.version(n)}}' for n in {names}), sep=', ')"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"{' '.join(names)} of unknown version"


_CARRIERS = ("aiohttp", "litellm", "openai", "httpx")


def _kind(name: str) -> str:
    return PEERS[name][0] if name in PEERS else CONTENDERS[name]


def _is_slow(name: str) -> bool:
    return name in PEERS or "litellm" in name.lower() or "openai" in _kind(name).lower()


def main(arguments: list[str]) -> Any:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each contender is visited, there and back"
    )
    parser.add_argument("--quick", action="store_true", help="few runs: says whether it works, not how fast")
    parser.add_argument("--turns", type=int, default=400, help="calls of the tool in a long run")
    parser.add_argument("--crowd", type=int, default=500, help="runs at once")
    parser.add_argument(
        "--only", nargs="*", choices=[*CONTENDERS, *PEERS], help="these contenders alone", metavar="NAME"
    )
    parser.add_argument(
        "--peers", nargs="*", default=[], metavar="PYTHON", help="interpreters that have other frameworks"
    )
    parser.add_argument("--load", action="store_true", help="served agents, asked by many clients at once")
    parser.add_argument("--litellm", default="", metavar="PYTHON", help="of LiteLLM's proxy, for --load")
    given = parser.parse_args(arguments)
    if given.load:
        return _measure_load(given)
    pythons = dict.fromkeys(CONTENDERS, sys.executable) | peers_in([sys.executable, *given.peers])
    if given.only:
        pythons = {name: python for name, python in pythons.items() if name in given.only}
    table = measure(pythons, scenarios(given.turns, given.crowd, quick=given.quick), rounds=given.rounds)
    size = f"{given.rounds} rounds, {given.turns} turns, {given.crowd} at once"
    print(f"{datetime.now(UTC):%Y-%m-%d}; {_versions(pythons)};")
    print(f"{platform.machine()}, {os.cpu_count()} cores; {size}\n")
    print(shown(table, list(pythons)))
    if not given.only:
        print(f"\nCPU per turn of a long run, no HTTP:\n\n{long_runs(20 if given.quick else 2000)}")
        tables = scale_tables(pythons, 20 if given.quick else 1000, packages)
        print(f"\nCPU per turn of a long run and CPU of a run with a thousand tools, over HTTP:\n\n{tables}")
    return table


def _measure_load(given: argparse.Namespace) -> Any:
    clients = 10 if given.quick else given.crowd
    with serving() as url:
        seen = measured_load(url, clients=clients, rounds=given.rounds, litellm=given.litellm)
    versions = packages(sys.executable, "starlette", "uvicorn", "aiohttp", "a2a-sdk")
    print(f"{datetime.now(UTC):%Y-%m-%d}; Python {platform.python_version()}, {versions};")
    if given.litellm:
        print(f"LiteLLM's proxy: {packages(given.litellm, 'litellm', 'uvicorn', 'uvloop')};")
    print(f"{about_load(clients, given.rounds)}\n")
    print(shown_load(seen))
    return seen


if __name__ == "__main__":
    main(sys.argv[1:])
