"""A conversation as plain text: for pipes, and for terminals without rich."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

from routelock._text import inert
from routelock.commands.notes import Note
from routelock.commands.waiting import Waiting
from routelock.commands.words import bounded

__all__ = ["PlainScreen"]

_MARKS = {"call": ">", "answer": "<", "handoff": "=>", "question": "?", "problem": "!", "info": "-"}


class PlainScreen:
    """Writes lines; who speaks is said before what is said.

    Args:
        out: where to.
        marks: what stands before a line that tells of a note.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._label = ""
        self._in_line = False
        self._waiting: Waiting | None = None

    @contextmanager
    def busy(self) -> Generator[None]:
        """Say on stderr what is waited for, until there is something to show."""
        with Waiting("") as self._waiting:
            try:
                yield
            finally:
                self.end()

    def waits_for(self, what: str) -> None:
        """Say what is going on."""
        if self._waiting is not None:
            self._waiting.what = bounded(what, 80)

    def speaker(self, name: str) -> None:
        """Name who speaks from now on."""
        self.end()
        self._label = bounded(name, 80)

    def say(self, text: str) -> None:
        """Write a piece of what is said."""
        text = inert(text)
        if not self._in_line:
            text = text.lstrip("\n")
            if not text:
                return
            self._write(f"{self._label}: ")
            self._in_line = True
        self._write(text)

    def end(self) -> None:
        """End the line."""
        if self._in_line:
            self._write("\n")
        self._in_line = False

    def note(self, note: Note) -> None:
        """Write a line about what happens."""
        self.line(f"  {_MARKS[note.kind]} {note.text}")

    def line(self, text: str = "") -> None:
        """Write a line."""
        self.end()
        self._write(f"{inert(text)}\n")

    def ask(self, prompt: str) -> str:
        """Return the next line of stdin; where nobody sees what is typed, it is written down as well."""
        if sys.stdin.isatty() and self._out.isatty():
            return input(f"{prompt}: ").strip()
        text = sys.stdin.readline()
        if not text:
            raise EOFError
        self.line(f"{prompt}: {text.strip()}")
        return text.strip()

    def _write(self, text: str) -> None:
        if self._waiting is not None:
            self._waiting.close()
        self._out.write(text)
        self._out.flush()
