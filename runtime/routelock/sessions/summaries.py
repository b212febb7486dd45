"""Summaries of a compaction in a session, so that the next run need not pay for them again.

A summary is stored beside the items of the turn in which it was written. The stored form names only the last
item that the summary covers: the log does not number items, and a session may load only its newest part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from routelock.history.compaction import summary_text
from routelock.history.marked import shown_later
from routelock.history.messages import Message, RunItem, calls_of, text_of

__all__ = ["LoadedSummary", "StoredSummary", "covered_places", "stored_summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSummary:
    """A summary as it is written into an entry."""

    text: str
    through: int
    """The index of the last item that it covers, counted from the run's first item after the history; below 0
    the item is in the history."""
    kept: list[str] = field(default_factory=lambda: [])
    """Digests of the items before it that it does not cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSummary:
    """A summary for the history that a run is given."""

    text: str
    places: Sequence[int]
    """Places in the history of the items that it covers."""


_MOST_KEPT = 100
"""The most items before its last one that a stored summary may leave out. If it leaves out more, a filter had
shortened the view, and the summary is of no use for the whole history."""


def stored_summary(summary: RunItem, items: Sequence[RunItem], history: int) -> StoredSummary | None:
    """Return a summary as it is stored; None if it covers only a part of the conversation before it.

    Args:
        summary: the summary.
        items: the transcript of the run.
        history: how many of its items the run was given as history.
    """
    covered = {item.id for item in summary.covers}
    through = max(covered, default=-1)
    if not 0 <= through < len(items) or any(item != items[item.id] for item in summary.covers):
        return None
    kept = [item for item in shown_later(items) if item.id < through and item.id not in covered]
    if len(kept) > _MOST_KEPT:
        return None
    return StoredSummary(
        text=summary_text(summary), through=through - history, kept=[_digest(item.message) for item in kept]
    )


def covered_places(
    stored: StoredSummary, before: Sequence[RunItem], history: Sequence[RunItem]
) -> Sequence[int]:
    """Return the indexes, in ``history``, of the items that a stored summary covers.

    Args:
        stored: the summary.
        before: all items of the session up to the last one that the summary covers.
        history: the items that a run is given; the oldest may be left out.
    """
    covered = {id(item) for item in before if _digest(item.message) not in stored.kept}
    return [place for place, item in enumerate(history) if id(item) in covered]


def _digest(message: Message) -> str:
    calls = [call.get("id") or "" for call in calls_of(message)]
    parts = (message["role"], text_of(message), message.get("tool_call_id") or "", *calls)
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
