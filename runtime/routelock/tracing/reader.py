"""Reads traces of runs: what happened, and the exact messages of each model call.

    for run in read_trace("runs.jsonl").runs:
        for call in run.calls:
            print(call.start.agent, call.messages, call.reply)

`routelock.tracing.records` says what a file holds, and `routelock.tracing.file` writes one.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeVar, cast

import pydantic

from routelock.errors import ConfigError
from routelock.tracing.records import (
    FORMAT,
    LOCAL,
    RECORDS,
    HandoffTraced,
    ItemTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
    ToolsTraced,
    TraceRecord,
    numbers,
)

__all__ = ["TraceLog", "TracedCall", "TracedRun", "TracedTool", "read_trace"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedCall:
    """One model call."""

    start: ModelStarted
    end: ModelEnded | None = None
    """The end of the call; None if the trace ends before it."""
    retries: Sequence[ModelRetried] = ()
    """The attempts that failed before it."""
    items: Sequence[ItemTraced] = ()
    """The messages that the model was shown, in order."""
    tools: Sequence[Mapping[str, Any]] = ()
    """The tools that the model was offered."""
    reply: Mapping[str, Any] | None = None
    """The complete reply."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages that the model was shown, as dicts."""
        return [item.message for item in self.items]

    @property
    def seconds(self) -> float | None:
        """The duration of the call in seconds, with retries; None if the trace ends before the call."""
        return None if self.end is None else self.end.time - self.start.time


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedTool:
    """One call of a tool."""

    call_id: str
    start: ToolStarted | None = None
    """The start of the call; None when an executor replayed it."""
    end: ToolEnded | None = None

    @property
    def seconds(self) -> float | None:
        """The duration of the call in seconds; None if it has no start or no end in the trace."""
        return None if self.start is None or self.end is None else self.end.time - self.start.time


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRun:
    """One run, as far as the trace goes."""

    start: RunStarted
    records: Sequence[TraceRecord]
    """All records of the run, in order."""
    end: RunEnded | None = None
    """The end of the run; None if the run was killed, or is still going on."""
    items: Mapping[int, ItemTraced] = field(default_factory=lambda: {})
    """All messages by number: from 0 up the transcript, below 0 messages that only models saw."""
    calls: Sequence[TracedCall] = ()
    tools: Sequence[TracedTool] = ()
    handoffs: Sequence[HandoffTraced] = ()
    """The handoffs, each with its last status."""
    nested: Mapping[str, TracedRun] = field(default_factory=dict[str, "TracedRun"])
    """The runs of agents that were called as tools, by call id."""

    @property
    def transcript(self) -> list[ItemTraced]:
        """The messages of the transcript, in order."""
        return [self.items[number] for number in sorted(self.items) if number >= 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLog:
    """The contents of a file of traces."""

    runs: Sequence[TracedRun]
    """The outermost runs, in the order in which they began."""
    unreadable: Sequence[int] = ()
    """Numbers, from 1, of the lines that were left out: they are cut off, or belong to no trace."""


def read_trace(source: str | PathLike[str] | Iterable[bytes]) -> TraceLog:
    """Return the traces in a file.

    Types and keys that this version does not know are ignored. Runs may write the file while it is read.

    Args:
        source: the path of a file, or lines.

    Raises:
        OSError: the file cannot be read.
        ConfigError: the file has a format of a later version.
    """
    if isinstance(source, str | PathLike):
        with open(source, "rb") as file:
            return read_trace(file)
    found: list[_Found] = []
    latest: dict[str, _Found] = {}
    unreadable: list[int] = []
    for number, line in enumerate(source, 1):
        if not line.strip():  # a run that starts while another one writes adds a line end
            continue
        try:
            record = _record(line)
        except (ValueError, RecursionError):
            unreadable.append(number)
            continue
        if record is None:
            continue
        if isinstance(record, RunStarted) or record.run not in latest:
            start = record if isinstance(record, RunStarted) else RunStarted(run=record.run, time=record.time)
            _check_format(start)
            latest[record.run] = one = _Found(start, latest.get(start.parent or ""))
            found.append(one)
        latest[record.run].records.append(record)
    return TraceLog(runs=[one.run() for one in found if one.parent is None], unreadable=unreadable)


def _check_format(start: RunStarted) -> None:
    if start.format > FORMAT:
        raise ConfigError(
            f"Run {start.run:.80} was traced in format {start.format} by a newer routelock. This one reads "
            f"formats up to {FORMAT}: read it with that version."
        )


def _record(line: bytes) -> TraceRecord | None:
    """Return the record of a line, or None if this version does not know its type.

    Raises:
        ValueError: the line is no record.
    """
    data: object = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError("a record is a JSON object")
    known = cast("dict[str, Any]", data)
    kind = known.pop("type", None)
    if not isinstance(kind, str):
        raise ValueError("a record has a type")
    if kind not in RECORDS:
        return None
    kept = {key: value for key, value in known.items() if key not in LOCAL}
    return cast(TraceRecord, _adapter(kind).validate_python(kept))


@functools.cache
def _adapter(kind: str) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(RECORDS[kind])


class _Found:
    """The records of one run while they are read."""

    def __init__(self, start: RunStarted, parent: _Found | None) -> None:
        self.start = start
        self.records: list[TraceRecord] = []
        self.sub_runs: list[_Found] = []
        self.parent = parent
        if parent is not None:
            parent.sub_runs.append(self)

    def run(self) -> TracedRun:
        items = {one.id: one for one in self._all(ItemTraced)}
        ended = self._all(RunEnded)
        handoffs = {one.id: one for one in self._all(HandoffTraced)}
        return TracedRun(
            start=self.start,
            records=self.records,
            end=ended[-1] if ended else None,
            items=items,
            calls=self._calls(items),
            tools=self._tools(),
            handoffs=list(handoffs.values()),
            nested={inner.start.parent_call or inner.start.run: inner.run() for inner in self.sub_runs},
        )

    def _all(self, kind: type[T]) -> list[T]:
        return [one for one in self.records if isinstance(one, kind)]

    def _calls(self, items: Mapping[int, ItemTraced]) -> list[TracedCall]:
        offered = {one.id: one.tools for one in self._all(ToolsTraced)}
        ended = {one.call: one for one in self._all(ModelEnded)}
        retries: dict[int, list[ModelRetried]] = {}
        for one in self._all(ModelRetried):
            retries.setdefault(one.call, []).append(one)
        return [
            _call(start, ended.get(start.call), retries.get(start.call, ()), items, offered)
            for start in self._all(ModelStarted)
        ]

    def _tools(self) -> list[TracedTool]:
        started = {one.call_id: one for one in self._all(ToolStarted)}
        ended = {one.call_id: one for one in self._all(ToolEnded)}
        return [
            TracedTool(call_id=call_id, start=started.get(call_id), end=ended.get(call_id))
            for call_id in {**started, **ended}
        ]


def _call(
    start: ModelStarted,
    end: ModelEnded | None,
    retries: Sequence[ModelRetried],
    items: Mapping[int, ItemTraced],
    offered: Mapping[int, Sequence[Mapping[str, Any]]],
) -> TracedCall:
    replied = None if end is None or end.item is None else items.get(end.item)
    return TracedCall(
        start=start,
        end=end,
        retries=retries,
        items=[items[number] for number in numbers(start.shown) if number in items],
        tools=() if start.tools is None else offered.get(start.tools, ()),
        reply=None if replied is None else replied.message,
    )
