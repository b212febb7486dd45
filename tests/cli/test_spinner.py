"""What takes long is said to people, and to nobody else."""

from __future__ import annotations

import io
import threading
from contextlib import redirect_stderr

import pytest

from routelock.cli.spinner import Waiting


class Terminal(io.StringIO):
    """A stderr that a person sees."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_what_is_waited_for_is_said_and_not_left_in_the_line(
    terminal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", terminal)
    with redirect_stderr(Terminal()) as shown, Waiting("loading", after=0):
        assert shown.written.wait(60)
    said = shown.getvalue()
    if terminal == "dumb":
        assert said == "loading ...\n"
    else:
        assert "loading (" in said
        assert said.endswith("\r\x1b[K"), "the line is empty again"


def test_what_is_quick_is_not_said() -> None:
    with redirect_stderr(Terminal()) as shown, Waiting("loading", after=3600):
        pass
    assert shown.getvalue() == ""


def test_a_program_is_told_nothing() -> None:
    with redirect_stderr(io.StringIO()) as shown, Waiting("loading", after=0) as waiting:
        waiting.close()
    assert shown.getvalue() == ""
