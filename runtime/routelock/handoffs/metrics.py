"""Sums over transfers: their number, how they ended, how long they took, and the tokens they used.

A `HandoffMetrics` keeps sums for each pair of source and target and no records, so its memory does not grow
with the number of transfers. It has no exporter: read `HandoffMetrics.as_counters`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["HandoffMetrics", "HandoffTally", "HandoffTotals", "TransferRecord"]


SUCCESSES = frozenset(("taken", "accepted", "completed"))
"""Statuses that count as success, in lower case."""

OTHER = ("(other)", "(other)")
"""The pair that counts all transfers beyond ``max_edges``."""

_LONGEST_LABEL = 200

_LONGEST_TRANSFER = 1e9  # seconds: 30 years or more is a broken clock

_LABELS = ("source", "target", "status")

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

_NANO = 1_000_000_000


class TransferRecord(Protocol):
    """The fields that are read from a transfer, such as a `routelock.run.HandoffRecord`.

    Optional: ``started`` and ``ended``, in seconds on one clock, and ``tokens``.
    """

    @property
    def source(self) -> str:
        """Name of the agent that handed over."""
        ...

    @property
    def target(self) -> str:
        """Name of the target."""
        ...

    @property
    def status(self) -> object:
        """How the transfer ended: a text, or an enum whose values are texts."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffTally:
    """Sums over transfers; ``a + b`` adds two of them, and the order makes no difference."""

    by_status: Mapping[str, int] = field(default_factory=lambda: {})
    """The number of transfers by status, spelled as in the records."""
    timed: int = 0
    """The number of transfers with a known duration."""
    nanoseconds: int = 0
    """The sum of those durations. It is a whole number, so that sums are exact in any order."""
    tokens: int = 0

    @property
    def total(self) -> int:
        """The number of transfers that were requested, made or not."""
        return sum(self.by_status.values())

    @property
    def succeeded(self) -> int:
        """The number of transfers that were taken, accepted or completed."""
        return sum(count for status, count in self.by_status.items() if status.lower() in SUCCESSES)

    @property
    def success_rate(self) -> float | None:
        """The share of transfers that succeeded, from 0.0 to 1.0; None without any transfer."""
        return self.succeeded / self.total if self.total else None

    @property
    def seconds(self) -> float:
        """The sum of the known durations, in seconds."""
        return self.nanoseconds / _NANO

    @property
    def average_duration(self) -> float | None:
        """The mean of the known durations, in seconds; None without any."""
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
    """The sums of a `HandoffMetrics` at one moment, in total and for each pair of source and target.

    It is plain data: it can be pickled, and merged into the metrics of another process. Adding two of them
    gives the total alone; `HandoffMetrics.merge` keeps the pairs.
    """

    edges: Mapping[tuple[str, str], HandoffTally] = field(default_factory=lambda: {})
    """The sums by source and target."""

    @classmethod
    def of(cls, edges: Mapping[tuple[str, str], HandoffTally]) -> HandoffTotals:
        """Return the totals of these pairs of source and target."""
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
        """The agent that handed over most often; of several, the first by name. None without any transfer."""
        return self._most_common(0)

    @property
    def most_common_target(self) -> str | None:
        """The most frequent target; of several, the first by name. None without any transfer."""
        return self._most_common(1)

    def _most_common(self, side: int) -> str | None:
        counts: dict[str, int] = {}
        for edge, tally in self.edges.items():
            if edge != OTHER:
                counts[edge[side]] = counts.get(edge[side], 0) + tally.total
        return min(counts, key=lambda name: (-counts[name], name), default=None)


class HandoffMetrics:
    """Adds up transfers of one run or of many; threads and tasks may share one.

    Args:
        max_edges: the number of pairs of source and target that are counted separately; all further pairs
            are counted together, as ``("(other)", "(other)")``.

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
        """Count one transfer that has ended.

        Its duration counts if start and end are known and in order: clocks may be set back.

        Args:
            record: the transfer.
            tokens: the tokens it used; None takes the record's ``tokens``, or 0 without.

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
        """Add the sums of another one; totals may come from another process."""
        edges = (other.totals() if isinstance(other, HandoffMetrics) else other).edges
        for edge, tally in edges.items():
            self._add(edge, tally)

    def totals(self) -> HandoffTotals:
        """Return the sums so far."""
        with self._lock:
            edges = dict(self._edges)
        return HandoffTotals.of(edges)

    def as_counters(self, prefix: str = "routelock_handoff") -> dict[str, float]:
        """Return every sum under a name with labels; none of them ever decreases.

        The names are those of the Prometheus text format, such as
        ``routelock_handoff_total{source="triage",target="billing",status="taken"}``: printing each name and
        value, in this order, gives an exposition. Rates and averages are left to the reader.

        Args:
            prefix: the beginning of the names.
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
    """Return labels in the text format of Prometheus, with quotes and line breaks in names escaped."""
    pairs = zip(_LABELS, values, strict=False)
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs) + "}"


def _label(text: str) -> str:
    """Return a text as a label: of bounded length, and valid UTF-8."""
    return text[:_LONGEST_LABEL].encode(errors="backslashreplace").decode()
