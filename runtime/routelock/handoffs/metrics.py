"""Counting transfers: how many, how they ended, how long they took, what they cost.

A `HandoffMetrics` keeps sums for each edge and no record, so its memory does not grow with the number of
transfers. There is no exporter here: `HandoffMetrics.as_counters` is what one reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["HandoffMetrics", "HandoffTally", "HandoffTotals", "TransferRecord"]


SUCCESSES = frozenset(("taken", "accepted", "completed"))
"""Statuses that count as a success, in lower case."""

OTHER = ("(other)", "(other)")
"""The edge that takes what comes after the last one that is counted by itself."""

_LONGEST_LABEL = 200

_LONGEST_TRANSFER = 1e9  # seconds: whatever takes 30 years is no duration

_LABELS = ("source", "target", "status")

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_NANO = 1_000_000_000


class TransferRecord(Protocol):
    """What is read of a transfer, such as a `routelock.run.HandoffRecord`.

    Used as well if they are there: ``started`` and ``ended``, in seconds on one clock, and ``tokens``.
    """

    @property
    def source(self) -> str:
        """Who handed over."""
        ...

    @property
    def target(self) -> str:
        """Who was to take over."""
        ...

    @property
    def status(self) -> object:
        """How it ended: a text, or an enum whose values are texts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTally:
    """Sums over transfers; ``a + b`` adds two of them, in any order and with the same result."""

    by_status: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many ended with each status, spelled as the records spell it."""
    timed: int = 0
    """How many had a known duration."""
    nanoseconds: int = 0
    """What those took together. It is a whole number so that no order of adding loses anything."""
    tokens: int = 0

    @property
    def total(self) -> int:
        """How many transfers were asked for, made or not."""
        return sum(self.by_status.values())

    @property
    def succeeded(self) -> int:
        """How many were taken, accepted or completed."""
        return sum(count for status, count in self.by_status.items() if status.lower() in SUCCESSES)

    @property
    def success_rate(self) -> float | None:
        """The part that succeeded, from 0.0 to 1.0; None without any transfer."""
        return self.succeeded / self.total if self.total else None

    @property
    def seconds(self) -> float:
        """What the transfers with a known duration took together."""
        return self.nanoseconds / _NANO

    @property
    def average_duration(self) -> float | None:
        """Seconds, over the transfers whose duration is known; None when none is."""
        return self.seconds / self.timed if self.timed else None

    def __add__(self, other: HandoffTally) -> HandoffTally:
        by_status = dict(self.by_status)
        for status, count in other.by_status.items():
            by_status[status] = by_status.get(status, 0) + count
        return HandoffTally(
            by_status=by_status,
            timed=self.timed + other.timed,
            nanoseconds=self.nanoseconds + other.nanoseconds,
            tokens=self.tokens + other.tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTotals(HandoffTally):
    """The sums over all that a `HandoffMetrics` counted until one moment, and those of each edge.

    It is plain data: it can be pickled, and merged into the metrics of another process. Adding two gives
    the sums alone; `HandoffMetrics.merge` keeps the edges.
    """

    edges: Mapping[tuple[str, str], HandoffTally] = field(default_factory=dict[tuple[str, str], HandoffTally])
    """The sums of each edge, by source and target."""

    @classmethod
    def of(cls, edges: Mapping[tuple[str, str], HandoffTally]) -> HandoffTotals:
        """Return the totals of these edges."""
        tally = sum(edges.values(), HandoffTally())
        return cls(
            by_status=tally.by_status,
            timed=tally.timed,
            nanoseconds=tally.nanoseconds,
            tokens=tally.tokens,
            edges=edges,
        )

    @property
    def most_common_source(self) -> str | None:
        """Who handed over most often; of several, the first by name. None without any transfer."""
        return self._most_common(0)

    @property
    def most_common_target(self) -> str | None:
        """Who was handed to most often; of several, the first by name. None without any transfer."""
        return self._most_common(1)

    def _most_common(self, side: int) -> str | None:
        counts: dict[str, int] = {}
        for edge, tally in self.edges.items():
            if edge != OTHER:
                counts[edge[side]] = counts.get(edge[side], 0) + tally.total
        return min(counts, key=lambda name: (-counts[name], name), default=None)


class HandoffMetrics:
    """Adds up transfers, of one run or of many; any number of threads and tasks may use one.

    Args:
        max_edges: so many pairs of source and target are counted one by one; all others together, as
            ``("(other)", "(other)")``.

    Raises:
        ValueError: ``max_edges`` is less than 1.
    """

    __slots__ = ("_edges", "_lock", "_max_edges")

    def __init__(self, *, max_edges: int = 1000) -> None:
        if max_edges < 1:
            raise ValueError(f"max_edges must be at least 1, not {max_edges}.")
        self._max_edges = max_edges
        self._edges: dict[tuple[str, str], HandoffTally] = {}
        self._lock = threading.Lock()

    @classmethod
    def of(cls, records: Iterable[TransferRecord]) -> HandoffMetrics:
        """Return the metrics of these records, such as ``RunResult.handoffs``."""
        metrics = cls()
        for record in records:
            metrics.add(record)
        return metrics

    def add(self, record: TransferRecord, *, tokens: int | None = None) -> None:
        """Count one transfer, once it has ended.

        A duration is counted when both its ends are known and in order: clocks may be set back.

        Args:
            record: the transfer.
            tokens: what it cost; None takes the record's own ``tokens``, or 0 without.

        Raises:
            ValueError: ``tokens`` is negative: counters only grow.
        """
        used = int((getattr(record, "tokens", None) or 0) if tokens is None else tokens)
        if used < 0:
            raise ValueError(f"A transfer cannot cost {used} tokens.")
        took = _nanoseconds(getattr(record, "started", None), getattr(record, "ended", None))
        status = _label(str(getattr(record.status, "value", record.status)))
        tally = HandoffTally(
            by_status={status: 1},
            timed=int(took is not None),
            nanoseconds=took or 0,
            tokens=used,
        )
        self._add((_label(record.source), _label(record.target)), tally)

    def merge(self, other: HandoffMetrics | HandoffTotals) -> None:
        """Add all that another one counted; totals may come from another process."""
        edges = (other.totals() if isinstance(other, HandoffMetrics) else other).edges
        for edge, tally in edges.items():
            self._add(edge, tally)

    def totals(self) -> HandoffTotals:
        """Return what has been counted until now."""
        with self._lock:
            edges = dict(self._edges)
        return HandoffTotals.of(edges)

    def as_counters(self, prefix: str = "routelock_handoff") -> dict[str, float]:
        """Return every sum under a name with labels, each of which only ever grows.

        The names are those of the Prometheus text format, such as
        ``routelock_handoff_total{source="triage",target="billing",status="taken"}``, so that printing each
        name and value, in this order, is an exposition. Rates and averages are for whoever reads them.

        Args:
            prefix: what the names begin with.
        """
        edges = sorted(self.totals().edges.items())
        counters: dict[str, float] = {}
        for edge, tally in edges:
            for status, count in sorted(tally.by_status.items()):
                counters[f"{prefix}_total{_labels(*edge, status)}"] = count
        sums: tuple[tuple[str, Callable[[HandoffTally], float]], ...] = (
            ("seconds_sum", lambda tally: tally.seconds),
            ("seconds_count", lambda tally: tally.timed),
            ("tokens_total", lambda tally: tally.tokens),
        )
        for name, value in sums:
            counters |= {f"{prefix}_{name}{_labels(*edge)}": value(tally) for edge, tally in edges}
        return counters

    def _add(self, edge: tuple[str, str], tally: HandoffTally) -> None:
        with self._lock:
            if edge not in self._edges and len(self._edges) >= self._max_edges:
                edge = OTHER
            self._edges[edge] = self._edges.get(edge, HandoffTally()) + tally


def _nanoseconds(started: object, ended: object) -> int | None:
    if not isinstance(started, int | float) or not isinstance(ended, int | float):
        return None
    seconds = ended - started
    return round(seconds * _NANO) if 0 <= seconds < _LONGEST_TRANSFER else None


def _labels(*values: str) -> str:
    """Return labels as the text format of Prometheus has them: what a name contains cannot end it."""
    pairs = zip(_LABELS, values, strict=False)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _label(text: str) -> str:
    """Return what a text is counted under: of bounded length, and something that can be written as UTF-8."""
    return text[:_LONGEST_LABEL].encode(errors="backslashreplace").decode()
