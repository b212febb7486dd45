"""The long part of the tests under stress: `make stress`. It needs no network and no key."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from random import SystemRandom

import pytest
from stress import crash, crowd, depth, durable, fuzz, left, restate, soak

PARTS: dict[str, Callable[[argparse.Namespace], int]] = {
    "fuzz": lambda given: fuzz.main(["--first", str(given.first), "--runs", str(given.fuzz)]),
    "left": lambda given: left.main(["--first", str(given.first), "--runs", str(given.left)]),
    "depth": lambda given: depth.main(["--examples", str(given.depth)]),
    "crowd": lambda given: crowd.main(["--runs", str(given.crowd)]),
    "crash": lambda given: crash.main(["--kills", str(given.kills), "--seed", str(given.first)]),
    "durable": lambda given: durable.main(["--kills", str(given.kills), "--seed", str(given.first)]),
    "durable slow": lambda given: _durable(given, "3", "--pace", "20"),
    "durable apart": lambda given: _durable(given, "4", "--apart"),
    "durable outages": lambda given: _durable(given, "3", "--outages", "0.5"),
    "restate": lambda given: restate.main(["--kills", str(given.kills), "--seed", str(given.first)]),
    "restate outages": lambda given: restate.main(
        ["--kills", str(given.kills // 5), "--seed", str(given.first), "--outages", "0.3"]
    ),
    "soak direct": lambda given: soak.main(["--through", "direct", "--runs", str(given.soak)]),
    "soak openai": lambda given: soak.main(["--through", "openai", "--runs", str(given.soak)]),
    "soak litellm": lambda given: soak.main(["--through", "litellm", "--runs", str(given.soak)]),
}


def _durable(given: argparse.Namespace, workers: str, *how: str) -> int:
    """Kill a few in another way."""
    kills = ["--kills", str(given.kills // 5), "--seed", str(given.first)]
    return durable.main([*kills, "--workers", workers, *how])


def main() -> int:
    """Do all parts, or those that are named, and say what came of each."""
    parser = argparse.ArgumentParser(prog="python -m stress", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of: {', '.join(PARTS)}; default: all")
    parser.add_argument("--fuzz", type=int, default=10_000, help="random runs")
    parser.add_argument("--left", type=int, default=2_000, help="random runs that are left, and gone on with")
    parser.add_argument("--depth", type=int, default=300, help="examples of each property of the suite")
    parser.add_argument("--first", type=int, help="the first seed; default: a random one, which is printed")
    parser.add_argument("--kills", type=int, default=200, help="processes that are killed")
    parser.add_argument("--crowd", type=int, default=1_000, help="runs at the same time")
    parser.add_argument("--soak", type=int, default=20_000, help="runs in one process")
    given = parser.parse_args()
    if given.first is None:
        given.first = SystemRandom().randrange(10**9)
    results: dict[str, str] = {}
    for name, work in PARTS.items():
        if given.parts and name.split()[0] not in given.parts and name not in given.parts:
            continue
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        try:
            failed = work(given)
        except pytest.skip.Exception as missing:
            results[name] = f"left out: {missing}"
        else:
            results[name] = f"{'FAILED' if failed else 'holds'}, {time.perf_counter() - began:.0f} s"
    print("== summary")
    for name, text in results.items():
        print(f"{name:15} {text}")
    return 1 if any(text.startswith("FAILED") for text in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
