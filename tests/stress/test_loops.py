"""Event loops that follow one another, or run in threads: quiet, whatever libraries leave to the next one."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from waiting import PATIENCE

NOISE = re.compile("Task was destroyed|Event loop is closed|never awaited|never retrieved|Warning|Traceback")

STEPS = ("one_after_another:openai", "at_once:openai", "one_after_another:litellm")
"""Several loops at once are too much for litellm: its logging worker is one for the whole process."""


def test_loops_leave_nothing_behind() -> None:
    command = [sys.executable, "-W", "error", "-m", "stress.loops", *STEPS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
    )
    assert done.stdout == "all loops are done\n", done.stderr
    assert not NOISE.search(done.stderr), done.stderr
