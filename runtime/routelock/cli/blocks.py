"""Markdown that arrives in pieces, cut into blocks: each can be set as soon as it is whole."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["Blocks"]


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


class Blocks:
    """Collects pieces of text and gives back blocks: what lies between two empty lines, or a fence of code.

    What is indented after an empty line belongs to the block before, as in a list.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        self._fence = ""
        """The marker that began the code which is open."""

    @property
    def open(self) -> str:
        """The text of the block that is not whole yet."""
        return "\n".join((*self._lines, self._line)).strip("\n")

    def feed(self, text: str) -> Iterator[str]:
        """Take a piece of text, and yield the blocks that are whole now."""
        first, *others = text.split("\n")
        self._line += first
        for line in others:
            if (block := self._add(self._line)) is not None:
                yield block
            self._line = line

    def end(self) -> Iterator[str]:
        """Yield what is left, whole or not, and begin anew."""
        if (block := self._add(self._line)) is not None:
            yield block
        self._line = ""
        left = self.open
        self._lines, self._line, self._fence = [], "", ""
        if left.strip():
            yield left

    def _add(self, line: str) -> str | None:
        """Add a line, and return the block that ends before it, if one does."""
        ended = None
        if not self._fence and self._is_gap() and line[:1].strip():
            ended = "\n".join(self._lines).strip("\n")
            self._lines = []
        self._lines.append(line)
        self._fence = self._fence_after(line)
        return ended or None

    def _is_gap(self) -> bool:
        return bool(self._lines) and not self._lines[-1].strip()

    def _fence_after(self, line: str) -> str:
        """Return the marker of the code that is open after a line."""
        if (found := _FENCE.match(line)) is None:
            return self._fence
        marker, rest = found.groups()
        if not self._fence:
            return "" if marker[0] == "`" and "`" in rest else marker
        closes = marker[0] == self._fence[0] and len(marker) >= len(self._fence) and not rest.strip()
        return "" if closes else self._fence
