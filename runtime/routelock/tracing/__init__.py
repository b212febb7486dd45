"""Traces: what happened in a run, as records in a file or as OpenTelemetry spans.

`TraceFile` writes the records as JSON lines and `read_trace` reads them back; `OpenTelemetry` makes spans
and metrics. Imports `run` and the rooms below it. Start at `records.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock._lazy import load_late
from routelock._redaction import REDACTED, is_secret_name, redact, redact_text

if TYPE_CHECKING:
    from routelock.tracing.file import TraceFile
    from routelock.tracing.otel import Meters, OpenTelemetry
    from routelock.tracing.reader import TracedCall, TracedRun, TracedTool, TraceLog, read_trace
    from routelock.tracing.recorder import Trace, TraceWriter
    from routelock.tracing.records import (
        FORMAT,
        RECORDS,
        AgentTraced,
        EdgeTraced,
        ErrorTraced,
        HandoffTraced,
        ItemTraced,
        ModelEnded,
        ModelRetried,
        ModelStarted,
        ProblemTraced,
        RunEnded,
        RunStarted,
        Span,
        TookOver,
        ToolEnded,
        ToolStarted,
        ToolsTraced,
        TraceRecord,
        numbers,
        spans,
    )

__all__ = [
    "FORMAT",
    "RECORDS",
    "REDACTED",
    "AgentTraced",
    "EdgeTraced",
    "ErrorTraced",
    "HandoffTraced",
    "ItemTraced",
    "Meters",
    "ModelEnded",
    "ModelRetried",
    "ModelStarted",
    "OpenTelemetry",
    "ProblemTraced",
    "RunEnded",
    "RunStarted",
    "Span",
    "TookOver",
    "ToolEnded",
    "ToolStarted",
    "ToolsTraced",
    "Trace",
    "TraceFile",
    "TraceLog",
    "TraceRecord",
    "TraceWriter",
    "TracedCall",
    "TracedRun",
    "TracedTool",
    "is_secret_name",
    "numbers",
    "read_trace",
    "redact",
    "redact_text",
    "spans",
]

_LATE = {
    "TraceFile": "routelock.tracing.file",
    "Meters": "routelock.tracing.otel",
    "OpenTelemetry": "routelock.tracing.otel",
    "TraceLog": "routelock.tracing.reader",
    "TracedCall": "routelock.tracing.reader",
    "TracedRun": "routelock.tracing.reader",
    "TracedTool": "routelock.tracing.reader",
    "read_trace": "routelock.tracing.reader",
    "Trace": "routelock.tracing.recorder",
    "TraceWriter": "routelock.tracing.recorder",
    "FORMAT": "routelock.tracing.records",
    "RECORDS": "routelock.tracing.records",
    "AgentTraced": "routelock.tracing.records",
    "EdgeTraced": "routelock.tracing.records",
    "ErrorTraced": "routelock.tracing.records",
    "HandoffTraced": "routelock.tracing.records",
    "ItemTraced": "routelock.tracing.records",
    "ModelEnded": "routelock.tracing.records",
    "ModelRetried": "routelock.tracing.records",
    "ModelStarted": "routelock.tracing.records",
    "ProblemTraced": "routelock.tracing.records",
    "RunEnded": "routelock.tracing.records",
    "RunStarted": "routelock.tracing.records",
    "Span": "routelock.tracing.records",
    "TookOver": "routelock.tracing.records",
    "ToolEnded": "routelock.tracing.records",
    "ToolStarted": "routelock.tracing.records",
    "ToolsTraced": "routelock.tracing.records",
    "TraceRecord": "routelock.tracing.records",
    "numbers": "routelock.tracing.records",
    "spans": "routelock.tracing.records",
}


def __getattr__(name: str) -> Any:
    return load_late(__name__, _LATE, name)
