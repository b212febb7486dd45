"""The events of a handler: deltas, failed attempts, and one complete message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from routelock._json import AnyValue
from routelock.history.messages import Message
from routelock.usage import Usage

__all__ = [
    "AttemptFailed",
    "HandlerEvent",
    "MessageDone",
    "ReasoningDelta",
    "TextDelta",
    "ToolCallDelta",
]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, if the provider sends it."""

    type: ClassVar[Literal["reasoning_delta"]] = "reasoning_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call. Only `MessageDone` has the complete call."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    index: int
    """The position of the call in the reply, from 0."""
    id: str
    name: str
    arguments: str
    """The new piece of the JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDone:
    """The complete reply of one model call. Every handler ends with exactly one."""

    type: ClassVar[Literal["message_done"]] = "message_done"
    message: Annotated[Message, AnyValue()]
    usage: Usage | None = None
    """The usage of this call, with ``requests`` = 1; None if the handler does not know it."""
    finish_reason: str | None = None
    """Why the model stopped, as the provider reports it."""
    model: str | None = None
    """The model that wrote the reply, as the provider names it."""
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """A model call failed, and the handler makes it again after ``delay`` seconds.

    No delta of the call was yielded before, unless ``Retry(mid_stream=True)`` allows that. Then discard those
    deltas.
    """

    type: ClassVar[Literal["attempt_failed"]] = "attempt_failed"
    error: Exception
    attempt: int
    delay: float


HandlerEvent = TextDelta | ReasoningDelta | ToolCallDelta | AttemptFailed | MessageDone
"""Any event that a handler may yield."""
