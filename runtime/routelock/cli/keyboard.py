"""The keyboard of a terminal: what is typed while a reply arrives must not be written into it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["edit_lines", "unseen"]


_FLAGS = 3
"""Place of the local flags in what ``termios.tcgetattr`` returns."""


@contextmanager
def unseen() -> Generator[None]:
    """Do not show what is typed. It is not lost: whoever reads next gets it."""
    if not (sys.stdin.isatty() and importlib.util.find_spec("termios")):
        yield
        return
    termios: Any = importlib.import_module("termios")
    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[_FLAGS] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def edit_lines() -> None:
    """Let a person edit what is typed and go back to earlier lines, where Python can do that."""
    if importlib.util.find_spec("readline"):
        importlib.import_module("readline")
