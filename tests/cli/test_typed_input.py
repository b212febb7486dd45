"""The echo of a terminal is turned off during a reply, and restored after it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import environment
from waiting import PATIENCE

IN_A_TERMINAL = """
import pty, sys, termios
from routelock.cli.screen import _without_echo as without_echo

def echoes():
    return bool(termios.tcgetattr(0)[3] & termios.ECHO)

child, end = pty.fork()
if child:
    import os
    said = b""
    try:
        while piece := os.read(end, 1000):
            said += piece
    except OSError:  # the end of a terminal, to Linux
        pass
    sys.stdout.write(said.decode())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
before = echoes()
try:
    with without_echo():
        within = echoes()
        raise ValueError
except ValueError:
    print(before, within, echoes())
"""


@pytest.mark.skipif(os.name != "posix", reason="there are no such terminals")
def test_echo_is_restored_after_an_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_TERMINAL],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ["True", "False", "True"], done.stderr


PIPED = """
from routelock.cli.screen import _without_echo as without_echo

with without_echo():
    print(input())
"""


def test_piped_input_is_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PIPED],
        cwd=tmp_path,
        env=environment(),
        input="Hi\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout == "Hi\n", done.stderr
