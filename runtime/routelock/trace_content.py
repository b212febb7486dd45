"""Traces without what was said: names, times, numbers and ids stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from routelock.trace_records import (
    ErrorTraced,
    HandoffTraced,
    ItemTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    ProblemTraced,
    RunEnded,
    TookOver,
    ToolEnded,
    ToolStarted,
    ToolsTraced,
    TraceRecord,
)

__all__ = ["without_content"]


def without_content(record: TraceRecord) -> TraceRecord:
    """Return a record without what users, models and tools said.

    Of an error the name of its class stays; its text may quote anything.
    """
    bare = _BARE.get(type(record))
    return record if bare is None else cast(TraceRecord, bare(record))


def _message(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return whose message it is, what it calls, and what it answers."""
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
    return {"type": "function", "function": {"name": spec.get("function", {}).get("name")}}


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
    ProblemTraced: lambda one: replace(one, message="", error=_error(one.error)),
    RunEnded: lambda one: replace(
        one,
        output=None,
        error=_error(one.error),
        warnings=(),
        pending=[_call(each) for each in one.pending],
        interruptions=[{**each, "arguments": ""} for each in one.interruptions],
    ),
}
