"""What a handler yields while it answers: deltas, failed attempts, and one whole message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

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
    """A piece of the reply's text, as it arrives."""

    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, from providers that show it."""

    type: ClassVar[Literal["reasoning_delta"]] = "reasoning_delta"
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call that is still being written. Only `MessageDone` has the whole call."""

    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"
    index: int
    """The call's place in the reply, from 0."""
    id: str
    name: str
    arguments: str
    """The new piece of the JSON text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDone:
    """The complete reply of one model call. Every handler ends with exactly one."""

    type: ClassVar[Literal["message_done"]] = "message_done"
    message: Message
    usage: Usage | None = None
    """What this call consumed, with ``requests`` = 1; None when the handler cannot know."""
    finish_reason: str | None = None
    """The provider's word for why it stopped. For people and logs: the run never decides on it."""
    model: str | None = None
    """The model that answered, as the provider names it."""
    response_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed:
    """A model call failed and is made again after ``delay`` seconds.

    Nothing of it was shown, unless ``Retry(mid_stream=True)`` allows that: then what was shown is void.
    """

    type: ClassVar[Literal["attempt_failed"]] = "attempt_failed"
    error: Exception
    attempt: int
    delay: float


HandlerEvent = TextDelta | ReasoningDelta | ToolCallDelta | AttemptFailed | MessageDone
"""What a handler may yield."""
