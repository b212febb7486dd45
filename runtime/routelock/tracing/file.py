"""Traces of runs in files: one line of JSON for each event of a run, written when it happens.

    await Runner.run(agent, "Hi", run_config=RunConfig(trace="runs.jsonl"))

`routelock.tracing.records` defines the lines, and `read_trace` reads them. Nothing is sent over a network. A
file holds the texts of users and models, unless ``TraceFile(..., content=False)`` leaves them out. Secrets
that `routelock.tracing.redact` finds are always replaced.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from routelock._json import recordable
from routelock._redaction import redact
from routelock.tracing.records import (
    LOCAL,
    CompactedTraced,
    ErrorTraced,
    HandoffTraced,
    ItemTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    ProblemTraced,
    RunEnded,
    RunStarted,
    TookOver,
    ToolEnded,
    ToolStarted,
    ToolsTraced,
    TraceRecord,
)

if TYPE_CHECKING:
    from routelock.tracing.recorder import TraceWriter

__all__ = ["TraceFile", "as_line", "without_content"]


def without_content(record: TraceRecord) -> TraceRecord:
    """Return a record without the texts of users, models and tools.

    An error keeps the name of its class and loses its text, which may quote other texts.
    """
    bare = _BARE.get(type(record))
    return record if bare is None else cast(TraceRecord, bare(record))


def _guardrail(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the decision of a guardrail without its texts."""
    return {key: "" if key == "answer" else each for key, each in record.items() if key != "output_info"}


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the role, the names of the calls and the call ids of a message."""
    kept = {key: message[key] for key in ("role", "tool_call_id") if key in message}
    calls: Any = message.get("tool_calls")
    if calls:
        kept["tool_calls"] = [
            {"id": call.get("id"), "type": "function", "function": {"name": call["function"].get("name")}}
            for call in calls
        ]
    return kept


def _error(error: ErrorTraced | None) -> ErrorTraced | None:
    return None if error is None else ErrorTraced(type=error.type)


def _call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"id": call.get("id"), "function": {"name": call.get("function", {}).get("name")}}


def _spec(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    if "function" not in spec:  # a vendor runs the tool
        return {"type": spec.get("type")}
    return {"type": "function", "function": {"name": spec["function"].get("name")}}


_BARE: Mapping[type[Any], Callable[[Any], object]] = {
    ItemTraced: lambda one: replace(one, message=_message(one.message)),
    ToolsTraced: lambda one: replace(one, tools=[_spec(each) for each in one.tools]),
    ModelStarted: lambda one: replace(one, settings={}, output_schema=None, repairs=(), request=None),
    ModelRetried: lambda one: replace(one, error=_error(one.error)),
    ModelEnded: lambda one: replace(one, error=_error(one.error), reply=None),
    ToolStarted: lambda one: replace(one, arguments=""),
    ToolEnded: lambda one: replace(one, output="", error=_error(one.error)),
    HandoffTraced: lambda one: replace(one, reason=None, input=None, error=None, passed_over=()),
    TookOver: lambda one: replace(one, payload=None),
    CompactedTraced: lambda one: replace(one, summary=None),
    ProblemTraced: lambda one: replace(one, message="", error=_error(one.error)),
    RunEnded: lambda one: replace(
        one,
        output=None,
        error=_error(one.error),
        warnings=(),
        pending=[_call(each) for each in one.pending],
        interruptions=[{**each, "arguments": "", "question": None} for each in one.interruptions],
        guardrails=[_guardrail(each) for each in one.guardrails],
    ),
}

_LONGEST = 200_000

_BEYOND = 20_000
"""Characters that are read after the kept ones, so that a secret across the end is found."""

_NOT_REDACTED = frozenset(
    "agent call call_id covers handler id item kind removed run shown summarised time told turn usage".split()
)
"""Fields that are not searched for secrets: numbers, and names from the app's own code."""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Appends the traces of runs to a file, which is opened and closed for each line.

    Runs, tasks, threads and processes may share a file: a line is one write.

    Args:
        path: the file. It is created if it does not exist, readable by its owner alone.
        content: False leaves out messages, arguments, outputs, reasons, payloads and error texts. Names,
            times, numbers and ids stay.
        longest: the longest text in characters; a longer one is truncated, with the number of characters
            left out. None for no limit.
    """

    path: str | PathLike[str]
    content: bool = True
    longest: int | None = _LONGEST

    def begin(self, start: RunStarted, parent: TraceWriter | None = None, /) -> TraceFile:
        """Write the first line of a run. The rest goes to that file, whatever folder a tool changes to."""
        path = parent.path if isinstance(parent, TraceFile) else os.path.abspath(self.path)
        writer = replace(self, path=path)
        writer._append(self._line(start), fresh_line=True)
        return writer

    def write(self, record: TraceRecord, /) -> None:
        """Write one line."""
        self._append(self._line(record))

    def _line(self, record: TraceRecord) -> bytes:
        return as_line(record if self.content else without_content(record), longest=self.longest)

    def _append(self, line: bytes, *, fresh_line: bool = False) -> None:
        flags = os.O_APPEND | os.O_CREAT | os.O_RDWR | getattr(os, "O_BINARY", 0)
        file = os.open(self.path, flags, 0o600)
        try:
            if fresh_line and _is_cut(file):
                line = b"\n" + line
            if (written := os.write(file, line)) != len(line):
                raise OSError(f"{written} of {len(line)} bytes fitted into {os.fspath(self.path)}")
        finally:
            os.close(file)


def _is_cut(file: int) -> bool:
    """Whether the last line is incomplete, because a process died while it wrote."""
    size = os.fstat(file).st_size
    if size == 0:
        return False
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) != b"\n"


def as_line(record: TraceRecord, *, longest: int | None = _LONGEST) -> bytes:
    """Return a record as one line of JSON, without secrets.

    Args:
        record: the record to write.
        longest: see `TraceFile`.
    """
    data = _fields(record, longest)
    searched = {name: value for name, value in data.items() if name not in _NOT_REDACTED}
    data = {"type": record.type, **data, **redact(searched)}
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode(errors="backslashreplace") + b"\n"  # half a surrogate pair becomes a JSON escape


def _fields(value: Any, longest: int | None) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    found: dict[str, Any] = {}
    for each in fields(value):
        held = getattr(value, each.name)
        if each.name not in LOCAL and not _is_default(held, each.default):
            found[each.name] = _data(held, longest)
    return found


def _is_default(held: object, default: object) -> bool:
    if isinstance(held, list | tuple | dict):
        return not held
    return held is None or (type(held) is type(default) and held == default)


def _data(value: object, longest: int | None) -> Any:
    """Return a value as JSON data, with long texts truncated; values without a JSON form become text."""
    if isinstance(value, str):
        return _truncated(str.__str__(value), longest)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): _data(each, longest) for key, each in entries.items()}
    if isinstance(value, list | tuple):
        return [_data(each, longest) for each in cast("Sequence[object]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value, longest)
    return _data(recordable(value), longest)


def _truncated(text: str, longest: int | None) -> str:
    """Return the beginning of a long text, without secrets.

    Secrets are replaced before the cut, because after it JSON cannot be parsed, and half a key cannot be
    recognised. In text that is not JSON, only the beginning is searched.
    """
    if longest is None or len(text) <= longest:
        return text
    whole = text.lstrip()[:1] in ("{", "[")
    read = text if whole else text[: longest + _BEYOND]
    redacted, unread = redact(read), len(text) - len(read)
    # the end of the part that was read may be the beginning of a secret
    end = min(longest, max(0, len(redacted) - _BEYOND)) if unread else longest
    rest = unread + len(redacted) - end
    return redacted if rest <= 0 else f"{redacted[:end]}[{rest} more characters]"
