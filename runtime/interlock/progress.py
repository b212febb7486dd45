"""Noticing that a run goes round without getting anywhere (pain 10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Progress"]

_NUDGE_AT = 3
_STOP_AT = 6


@dataclass(slots=True)
class Progress:
    """What one run has seen. A tool result that is new is progress; repeating oneself is not."""

    results: set[int] = field(default_factory=set[int])
    edges: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Transfers taken since the last progress."""
    refused: int = 0
    """Transfers refused as going round since the last progress."""
    last: int | None = None
    repeats: int = 0
    """How many turns in a row made the same calls with the same results."""

    def tool_results(
        self, results: Iterable[tuple[str, str, str]], requests: Iterable[tuple[str, str, str]] = ()
    ) -> None:
        """Note the name, arguments and output of each call that one turn answered.

        ``requests`` are those that only ask to hand over: repeated, they repeat; they find nothing out.
        """
        results = list(results)
        turn = hash((*results, *requests))
        self.repeats = self.repeats + 1 if turn == self.last else 1
        self.last = turn
        new = {hash(result) for result in results} - self.results
        if new:
            self.results |= new
            self.edges.clear()
            self.refused = 0

    def goes_round(self, source: str, target: str) -> bool:
        """Whether this transfer was already made since the last progress."""
        return (source, target) in self.edges

    def transferred(self, source: str, target: str) -> None:
        """Note a transfer that was made. What the source repeated is not held against the target."""
        self.edges.add((source, target))
        self.last, self.repeats = None, 0

    @property
    def needs_nudge(self) -> bool:
        """Whether the model should be told that it repeats a call."""
        return self.repeats >= _NUDGE_AT

    @property
    def is_stuck(self) -> bool:
        """Whether the same calls came with the same results too often to go on."""
        return self.repeats >= _STOP_AT
