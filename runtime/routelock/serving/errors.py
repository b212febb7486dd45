"""Refusals: the status and body that a client gets instead of an answer, as OpenAI's clients read it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from routelock._text import one_line
from routelock.errors import (
    AuthenticationFailed,
    ContentRefused,
    ContextTooLong,
    GuardrailTripped,
    HandlerError,
    HandoffError,
    LimitExceeded,
    LoopDetected,
    MaxHandoffsExceeded,
    MaxTurnsExceeded,
    ModelBehaviorError,
    NoHandlerError,
    ProviderError,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
    RoutelockError,
    RunTimeout,
    SessionConflict,
    SessionError,
    ToolError,
)

__all__ = [
    "Refusal",
    "closing",
    "log_refusal",
    "new_request_id",
    "out_of_time",
    "refusal_for",
    "too_many_requests",
]


_logger = logging.getLogger("routelock.serving")


@dataclass(eq=False)
class Refusal(Exception):
    """An error that answers a request. The client is sent ``message`` as it is."""

    status: int
    message: str
    code: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    for_log: str = ""
    """More text for the server's log, which the client is not sent."""

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"

    def body(self, request_id: str) -> dict[str, Any]:
        """Return the body: ``{"error": {message, type, param, code}}`` and the request's id."""
        error = {
            "message": self.message,
            "type": _type(self.status),
            "param": self.param,
            "code": self.code,
            "request_id": request_id,
        }
        return {"error": error}


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def _type(status: int) -> str:
    return _TYPES.get(status) or ("invalid_request_error" if status < 500 else "server_error")


_UPSTREAM = (502, "upstream_error", "The model behind this agent failed.")

_KNOWN: dict[type[BaseException], tuple[int, str, str]] = {
    # the app has checked that there are handlers
    NoHandlerError: (403, "scope_denied", "No handler of this agent is permitted to your key."),
    GuardrailTripped: (400, "guardrail_tripped", "A guardrail of this agent stopped the request."),
    ContextTooLong: (
        400,
        "context_length_exceeded",
        "The conversation is longer than this agent's model takes. Send fewer or shorter messages.",
    ),
    ContentRefused: (400, "content_filter", "The model's provider refused the content of the request."),
    RateLimited: (429, "rate_limit_exceeded", "The model behind this agent is rate limited. Try later."),
    QuotaExhausted: (502, "upstream_quota", "The quota of the model behind this agent is used up."),
    ProviderTimeout: (504, "upstream_timeout", "The model behind this agent did not answer in time."),
    AuthenticationFailed: (502, "upstream_auth", "The model behind this agent refused the server's key."),
    ProviderError: _UPSTREAM,
    HandlerError: (500, "handler_failed", "The handler of this agent failed."),
    MaxTurnsExceeded: (500, "max_turns_exceeded", "The run needed more model calls than it may make."),
    MaxHandoffsExceeded: (500, "max_handoffs_exceeded", "The run needed more handoffs than it may make."),
    LoopDetected: (500, "loop_detected", "The agents made no progress, so the run was ended."),
    RunTimeout: (504, "run_timeout", "The run exceeded its time limit."),
    LimitExceeded: (500, "limit_exceeded", "The run exceeded one of its limits."),
    ModelBehaviorError: (502, "bad_model_output", "The model repeatedly sent an unusable reply."),
    ToolError: (500, "tool_failed", "A tool of this agent failed."),
    HandoffError: (500, "handoff_failed", "A handoff between agents failed."),
    SessionConflict: (
        409,
        "conversation_conflict",
        "The conversation was changed by another request. Try again.",
    ),
    SessionError: (500, "session_failed", "The conversation could not be loaded or stored."),
}
"""The texts for routelock's errors. Their own texts may quote prompts, keys and paths."""

_UNKNOWN = (500, "internal_error", "The server failed. Its log has the details under the request id.")


def refusal_for(error: BaseException) -> Refusal:
    """Return the refusal for an error that ended a run.

    If the request ran tools, or would fail again, the refusal has the header ``x-should-retry: false``.
    OpenAI's clients repeat every 5xx, and would run the tools again.
    """
    if isinstance(error, Refusal):
        return error
    status, code, message = next((_KNOWN[kind] for kind in type(error).__mro__ if kind in _KNOWN), _UNKNOWN)
    if isinstance(error, ProviderError) and error.status == 508:  # from another server of the loop
        status, code, message = (
            508,
            "too_many_hops",
            "Agents of several servers hand the request off to each other.",
        )
    headers: dict[str, str] = {}
    if not getattr(error, "retryable", False) or _has_acted(error):
        headers["x-should-retry"] = "false"
    if isinstance(error, RateLimited) and status == 429:
        headers["retry-after"] = str(max(1, round(error.retry_after or 1)))
    refusal = Refusal(status, message, code, headers=headers)
    refusal.__cause__ = error
    return refusal


def out_of_time(seconds: float) -> Refusal:
    """Return the refusal for a run that took longer than its time limit, in seconds."""
    return Refusal(
        504,
        f"The run took longer than the {seconds:g} seconds that this server allows.",
        "timeout",
        headers={"x-should-retry": "false"},
    )


def closing() -> Refusal:
    """Return the refusal for clients whose runs are cancelled because the server ends."""
    return Refusal(503, "The server is shutting down.", "shutting_down", headers={"x-should-retry": "false"})


def too_many_requests(why: str) -> Refusal:
    """Return the refusal for a client that may try again in a moment."""
    message = f"{why} Try again in a moment."
    return Refusal(429, message, "too_many_requests", headers={"retry-after": "1"})


def new_request_id() -> str:
    """Return an id for a request, which its response and the log have."""
    return f"req_{os.urandom(16).hex()}"


def log_refusal(request_id: str, refusal: Refusal) -> None:
    """Log a refusal and its cause. The client is sent only the refusal."""
    cause, said = refusal.__cause__, str(refusal)
    if refusal.status >= 500:
        level = logging.ERROR
    elif isinstance(cause, RoutelockError):
        level, said = logging.WARNING, f"{said} ({type(cause).__name__}: {cause})"
    elif refusal.for_log:
        level, said = logging.WARNING, f"{said} ({refusal.for_log})"
    else:
        level = logging.INFO
    # a refusal may quote the client, whose line ends would make lines of the log
    _logger.log(
        level, "%s: %s", request_id, one_line(said), exc_info=cause if refusal.status >= 500 else None
    )


def _has_acted(error: BaseException) -> bool:
    """Return whether the run has done more than call models."""
    result: Any = getattr(error, "result", None)
    return result is not None and any(item.kind in ("tool", "handoff") for item in result.new_items)
