"""The port to a model, and handlers that are functions.

A `Handler` is given a `Request` and yields events that end with one `MessageDone`. `function_handler` makes
one of a function, the stream assembler makes whole messages of chunks, and replies are checked here before
the run takes them. Imports `history` and the modules at the top. Start at `port.py`.
"""

from __future__ import annotations

from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.function_handler import FunctionHandler, function_handler, handler
from routelock.handlers.port import (
    Handler,
    ModelSettings,
    OutputMode,
    OutputSchema,
    Priority,
    Request,
    ToolChoice,
    ToolSpec,
    family_of,
    is_handler,
)
from routelock.handlers.retry import Retry

__all__ = [
    "AttemptFailed",
    "FunctionHandler",
    "Handler",
    "HandlerEvent",
    "MessageDone",
    "ModelSettings",
    "OutputMode",
    "OutputSchema",
    "Priority",
    "ReasoningDelta",
    "Request",
    "Retry",
    "TextDelta",
    "ToolCallDelta",
    "ToolChoice",
    "ToolSpec",
    "family_of",
    "function_handler",
    "handler",
    "is_handler",
]
