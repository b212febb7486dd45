"""Where the CPU time of a run goes: the functions that took most of it, per run.

    python benchmarks/profile_run.py ["routelock, no HTTP"] [s3] [--runs N] [--top N]

Each function is listed at the least that it took in any of many short rounds, so a busy machine spoils less.
The initialisers of dataclasses are told apart, which the standard report of cProfile does not do: it takes
all of them for one.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import importlib
import sys
from pathlib import Path
from types import CodeType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / root) for root in ("runtime", "providers"))]

from measure_speed import CONTENDERS, scenarios, serving  # noqa: E402

_ROUNDS = 20
_Seen = dict[CodeType | str, tuple[float, float]]
"""By function: calls per run, and the least seconds per run within it alone."""


async def profiled(kind: Any, url: str, scenario: str, text: str, runs: int) -> _Seen:
    """Run it many times and return what was seen."""
    contender = kind(url)
    work, seen = getattr(contender, scenario), dict[CodeType | str, tuple[float, float]]()
    for number in range(_ROUNDS + 1):  # the first one warms up
        profile = cProfile.Profile(builtins=False)
        gc.collect()
        profile.enable()
        for _ in range(runs):
            await work(text)
        profile.disable()
        for entry in profile.getstats() if number else ():
            least = min(entry.inlinetime / runs, seen.get(entry.code, (0.0, 1e9))[1])
            seen[entry.code] = entry.callcount / runs, least
    await contender.aclose()
    return seen


def shown(seen: _Seen, top: int) -> str:
    """Return the report: calls per run, microseconds per run, where."""
    lines = [f"{sum(calls for calls, _ in seen.values()):.0f} calls of Python functions per run", ""]
    for code, (calls, seconds) in sorted(seen.items(), key=lambda each: -each[1][1])[:top]:
        lines.append(f"{calls:7.1f} {seconds * 1e6:8.2f} us  {_named(code)}")
    return "\n".join(lines)


def _named(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code
    if code.co_filename == "<string>":  # a function that a decorator wrote
        return (
            code.co_name
            if code.co_name != "__init__"
            else f"__init__ of {', '.join(code.co_varnames[1:4])} ..."
        )
    return f"{Path(code.co_filename).name}:{code.co_firstlineno} {code.co_qualname}"


def main(arguments: list[str]) -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("contender", nargs="?", default="routelock, no HTTP", choices=list(CONTENDERS))
    parser.add_argument("scenario", nargs="?", default="s3", choices=["s1", "s2", "s3", "chunk"])
    parser.add_argument("--runs", type=int, default=50, help="runs in a round")
    parser.add_argument("--top", type=int, default=40, help="functions that are listed")
    given = parser.parse_args(arguments)
    scenario = scenarios(1, 1, quick=False)[given.scenario]
    module, _, kind = CONTENDERS[given.contender].partition(".")
    with serving() as url:
        made = getattr(importlib.import_module(f"speed.{module}"), kind)
        seen = asyncio.run(profiled(made, url, scenario.work, scenario.text, given.runs))
    print(shown(seen, given.top))


if __name__ == "__main__":
    main(sys.argv[1:])
