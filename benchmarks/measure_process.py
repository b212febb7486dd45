"""What a process pays beside the runs themselves: the import, what long runs keep, garbage collection.

    python benchmarks/measure_process.py [--rounds N] [--crowd N] [--only PART ...] [--quick]

``start`` compares `import routelock` with a bare interpreter. ``long`` measures runs of two lengths, without
HTTP. ``garbage`` makes many runs of s3 at once over HTTP, each model call taking 50 ms, with Python's own
thresholds, with higher ones and without any collection. All figures are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOTS = [str(HERE.parent / root) for root in ("runtime", "providers")]
sys.path[:0] = [str(HERE), *ROOTS]

from measure_speed import CONTENDERS, serving  # noqa: E402
from speed.scene import ANSWER  # noqa: E402
from speed.server import marker  # noqa: E402
from speed.worker import made  # noqa: E402

_START = """
import json, sys, time
sys.path[:0] = json.loads(sys.argv[1])
{work}
lines = open("/proc/self/status").read().splitlines() if sys.platform == "linux" else []
memory = sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
print(json.dumps([time.process_time(), memory]))
"""

_SELDOM = (50_000, 20, 100)


def started(work: str) -> tuple[float, float]:
    """Return seconds of CPU and KiB of memory of an interpreter that does this and ends."""
    command = [sys.executable, "-c", _START.format(work=work), json.dumps(ROOTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cpu, memory = json.loads(done.stdout)
    return cpu, memory


def start(rounds: int) -> None:
    """Print what the import adds to a bare interpreter."""
    seen: list[tuple[float, float]] = []
    for number in range(rounds + 1):  # the first one compiles
        bare, ours = started(""), started("import routelock")
        seen += [(ours[0] - bare[0], ours[1] - bare[1])] * (number > 0)
    cpu, memory = (median(values) for values in zip(*seen, strict=True))
    print("| more than a bare interpreter | CPU | memory |\n|---|---:|---:|")
    print(f"| `import routelock` | {cpu * 1000:.0f} ms | {memory / 1024:.1f} MiB |")


async def long(rounds: int, turns: tuple[int, ...]) -> None:
    """Print CPU and memory per turn of runs of these lengths, without HTTP."""
    contender = made(CONTENDERS["routelock, no HTTP"], "")
    seen: dict[int, list[float]] = {}
    for number in range(rounds + 1):
        for count in turns:
            gc.collect()
            began = time.process_time()
            assert await contender.s2(marker(turns=count)) == ANSWER
            seen.setdefault(count, []).extend([(time.process_time() - began) / count] * (number > 0))
    print("| turns of a run, no HTTP | CPU per turn | kept per turn |\n|---|---:|---:|")
    for count in turns:
        kept = await _kept(contender, count)
        print(f"| {count} | {median(seen[count]) * 1e6:.1f} µs | {kept / count / 1000:.1f} kB |")


async def _kept(contender: Any, turns: int) -> float:
    """Return the bytes that the result of a run keeps."""
    from routelock import Runner  # noqa: PLC0415 - not in the interpreters that are compared

    agent = contender._specialist  # the benchmarks' own
    gc.collect()
    tracemalloc.start()
    result = await Runner.run(agent, marker(turns=turns), max_turns=None)
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert result.final_output == ANSWER
    return kept


def _collect_as(name: str, usual: tuple[int, int, int]) -> None:
    (gc.disable if name == "off" else gc.enable)()
    gc.set_threshold(*(_SELDOM if name == "seldom" else usual))


async def garbage(rounds: int, crowd: int) -> None:
    """Print the CPU of one of many runs at once, by how often Python collects garbage."""
    usual, names = gc.get_threshold(), ("by itself", "seldom", "off")
    print(f"| garbage is collected | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
    with serving() as url:
        for title in ("by hand, aiohttp", "OpenAICompatible", "LiteLLM"):
            contender = made(CONTENDERS[title], url)
            seen: dict[str, list[float]] = {}
            for number in range(rounds + 1):
                for name in names if number % 2 else reversed(names):
                    _collect_as(name, usual)
                    cpu = await _crowd(contender, crowd)
                    seen.setdefault(name, []).extend([cpu] * (number > 0))
            _collect_as("by itself", usual)
            await contender.aclose()
            print(f"| {title} | {' | '.join(_cell(seen, name) for name in names)} |")


async def _crowd(contender: Any, crowd: int) -> float:
    gc.collect()
    began, text = time.process_time(), marker(wait=50)
    said = await asyncio.gather(*(contender.s3(text) for _ in range(crowd)))
    assert set(said) == {ANSWER}
    return (time.process_time() - began) / crowd


def _cell(seen: Mapping[str, list[float]], name: str) -> str:
    pairs = zip(seen[name], seen["by itself"], strict=True)
    ratio = "" if name == "by itself" else f" ({median(ours / theirs for ours, theirs in pairs):.2f})"
    return f"{median(seen[name]) * 1e6:.0f} µs{ratio}"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--crowd", type=int, default=500, help="runs at once")
    parser.add_argument("--only", nargs="*", choices=["start", "long", "garbage"], metavar="PART")
    parser.add_argument("--quick", action="store_true", help="only see whether all works")
    given = parser.parse_args(arguments)
    rounds, crowd, turns = (1, 3, (2, 4)) if given.quick else (given.rounds, given.crowd, (125, 1000))
    parts: Mapping[str, Callable[[], None]] = {
        "start": lambda: start(rounds),
        "long": lambda: asyncio.run(long(rounds, turns)),
        "garbage": lambda: asyncio.run(garbage(rounds, crowd)),
    }
    for name in given.only or parts:
        parts[name]()
        print()


if __name__ == "__main__":
    main(sys.argv[1:])
