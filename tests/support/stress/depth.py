"""The suite's own properties in depth: with many examples, at every step, and streams cut at every byte.

python -m stress.depth --examples 500
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from paths import REPO, TESTS

__all__ = ["STEP_BY_STEP", "main"]

STEP_BY_STEP = (
    "run/test_cancelled_anywhere.py",
    "structure/test_measure_speed.py",
    "providers/test_socket_cancelled.py",
    "providers/test_socket_failures.py",
)
"""Tests that leave out some steps in the suite; those with examples are found by their marker."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests that do less in the suite than they could."""
    parser = argparse.ArgumentParser(prog="python -m stress.depth", description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="for each property")
    given = parser.parse_args(arguments)
    env = {**os.environ, "ROUTELOCK_EXAMPLES": str(given.examples), "ROUTELOCK_THOROUGH": "1"}
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    parts = (["-m", "hypothesis", str(TESTS)], [str(TESTS / name) for name in STEP_BY_STEP])
    ended = [subprocess.run([*pytest, *part], cwd=REPO, env=env, check=False) for part in parts]
    return int(any(each.returncode for each in ended))


if __name__ == "__main__":
    sys.exit(main())
