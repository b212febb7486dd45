"""The interface to models, and handlers made from functions.

A `Handler` gets a `Request` and yields events; the last one is a `MessageDone`. `function_handler` makes a
handler from a function, the stream assembler makes messages from chunks, and `replies.py` checks replies
before a run accepts them. This room imports `history` and the modules at the top. Start at `port.py`.
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
