"""How many instructions a run executes: unlike a time, a figure that no other work on the machine disturbs.

    python benchmarks/count_instructions.py [--only NAME ...] [--scenarios s1 s2 s3]

Each contender runs in an interpreter of its own under valgrind, which has to be installed. Only some runs are
counted, after others that warm up. What the kernel does is not counted, so to read and write a socket looks
cheaper than it is. A figure takes seconds, one of litellm a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / root) for root in ("runtime", "providers"))]

from measure_speed import CONTENDERS, PAIRS, scenarios, serving  # noqa: E402
from speed.worker import made  # noqa: E402

_WARM = 20
"""Runs that are not counted: Python adapts code to what it does, and connections are opened."""
_COUNTED = 20


async def _run(kind: str, scenario: str, text: str, url: str) -> None:
    """Make runs, and stop before and after those that are counted, for `_counting`."""
    contender = made(kind, url)
    work = getattr(contender, scenario)
    for _ in range(_WARM):
        await work(text)
    gc.collect()
    gc.freeze()  # else a full collection falls into some measurements
    _wait()
    for _ in range(_COUNTED):
        await work(text)
    _wait()
    await contender.aclose()


def _wait() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def counted(kind: str, scenario: str, url: str) -> float:
    """Return the instructions of one run."""
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--callgrind-out-file=/dev/null"]
    # what a hash decides is the same each time
    environment = {**os.environ, "PYTHONHASHSEED": "0", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with subprocess.Popen(
        [*command, sys.executable, __file__, "--run", kind, scenario, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for switch in ("on", "off"):
            if process.stdout.readline() == "ready\n":
                _count(process.pid, switch)
            with suppress(BrokenPipeError):  # it has failed, and says why
                process.stdin.write("\n")
                process.stdin.flush()
        said = process.communicate()[1]
    found = re.search(r"Collected : (\d+)", said)
    if process.returncode or found is None:
        raise SystemExit(f"{kind} {scenario}: {said[-2000:]}")
    return int(found[1]) / _COUNTED


def _count(process: int, switch: str) -> None:
    subprocess.run(["callgrind_control", "-i", switch, str(process)], check=True, capture_output=True)


def shown(figures: dict[tuple[str, str], float], names: list[str], titles: list[str]) -> str:
    """Return the table as Markdown: millions of instructions, and how many times the floor they are."""
    lines = [f"| instructions per run | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name in names:
        floor = PAIRS.get(name)
        cells: list[str] = []
        for title in titles:
            took = figures[name, title]
            ratio = f" ({took / figures[floor, title]:.2f})" if floor in names else ""
            cells.append(f"{took / 1e6:.3f} M{ratio}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Count and print."""
    if arguments[:1] == ["--run"]:
        kind, scenario, url = arguments[1:]
        work = scenarios(1, 1, quick=True)[scenario]
        asyncio.run(_run(kind, work.work, work.text, url))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS), help="these contenders alone")
    parser.add_argument("--scenarios", nargs="*", choices=["s1", "s2", "s3"], default=["s1", "s2", "s3"])
    given = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed: it is a package of that name wherever it can be had.")
    names: list[str] = given.only or list(CONTENDERS)
    asked = [(name, title) for name in names for title in given.scenarios]
    with serving() as url, ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda each: counted(CONTENDERS[each[0]], each[1], url), asked)
        figures = dict(zip(asked, found, strict=True))
    print(shown(figures, names, given.scenarios))


if __name__ == "__main__":
    main(sys.argv[1:])
