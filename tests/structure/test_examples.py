"""Every example runs on a machine with no network, no key and no settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import REPO

# that one takes as long as ten others, and is run by itself in tests/structure/test_support_desk.py
PROGRAMS = {*(REPO / "examples").glob("*.py"), *(REPO / "examples" / "ports").glob("*.py")}
EXAMPLES = sorted(PROGRAMS - {REPO / "examples" / "support_desk.py"})

_RUN = """
import os, runpy, sys
from routelock.testing import no_network
sys.argv = sys.argv[1:]  # this and the path are as Python sets them for a script
sys.path.insert(0, os.path.dirname(sys.argv[0]))
with no_network():
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path, offline_env: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, str(example)],
        cwd=tmp_path,
        env=offline_env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip(), "an example shows something"
