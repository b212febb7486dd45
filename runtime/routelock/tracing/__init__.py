"""Traces: what happened in a run, as records in a file or as OpenTelemetry spans.

`TraceFile` writes the records as JSON lines and `read_trace` reads them back; `OpenTelemetry` makes spans and
metrics. This package imports `run` and the rooms below it. Start at `records.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock._lazy import load_late
from routelock._redaction import REDACTED, is_secret_name, redact, redact_text

if TYPE_CHECKING:
    from routelock.tracing.file import *
    from routelock.tracing.otel import *
    from routelock.tracing.otel_meters import *
    from routelock.tracing.reader import *
    from routelock.tracing.recorder import *
    from routelock.tracing.records import *
else:
    __getattr__ = load_late(
        __name__,
        {
            "file": "TraceFile",
            "otel": "OpenTelemetry",
            "otel_meters": "Meters",
            "reader": "TraceLog TracedCall TracedRun TracedTool read_trace",
            "recorder": "Trace TraceWriter",
            "records": (
                "AgentTraced CompactedTraced EdgeTraced ErrorTraced FORMAT HandoffTraced ItemTraced "
                "ModelEnded ModelRetried ModelStarted ProblemTraced RECORDS RunEnded RunStarted Span "
                "TookOver ToolEnded ToolStarted ToolsTraced TraceRecord numbers spans"
            ),
        },
    )

__all__ = [
    "FORMAT",
    "RECORDS",
    "REDACTED",
    "AgentTraced",
    "CompactedTraced",
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
