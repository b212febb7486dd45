"""`Collector`: turns the pieces that a handler function gives into events and one complete message."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from routelock.errors import HandlerError, IncompleteResponse
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.stream_assembler import Assembler, completion_done, join_surrogates, why_incomplete
from routelock.handoff_request import HandoffRequest
from routelock.history.messages import Message, calls_of

__all__ = ["Collector"]


_Event = TextDelta | ReasoningDelta | ToolCallDelta | MessageDone

_REPLY_FIELDS: Mapping[str, Any] = {
    "content": (str, list),
    "finish_reason": str,
    "reasoning_content": str,
    "tool_calls": list,
    "usage": Mapping,
}
"""The fields, with their types, of a reply dict that is neither a message nor a chunk; it has one or more."""

_CHUNK_FIELDS = ("usage", "model", "id", "object", "created")
"""The fields of a chunk beside its choices."""

_CHUNK_OBJECT = "chat.completion.chunk"

_MALFORMED = (AttributeError, LookupError, TypeError, ValueError)
"""The errors that a malformed message or chunk causes."""


@dataclass(slots=True)
class Collector:
    """Collects the pieces of a function's reply into events and one complete message."""

    handler: str
    _pieces: Assembler = field(default_factory=Assembler)
    _has_begun: bool = False
    _complete: MessageDone | None = None
    """The complete message, if the function gave one."""
    _is_done: bool = False
    """Whether the complete message was returned as an event."""
    _shown: list[str] | None = None
    """The text in the events so far; None if there were no events."""
    _last: object = None

    def take(self, piece: Any) -> list[HandlerEvent]:
        """Return the events of one piece.

        Raises:
            HandlerError: the piece has an unknown form, or comes after the complete message.
        """
        if isinstance(piece, AttemptFailed):
            self._pieces, self._has_begun, self._shown = Assembler(), False, None
            self._complete, self._is_done = None, False
            return [piece]
        events = self._take(piece)
        if events:
            self._shown = self._shown or []
            self._shown += [event.text for event in events if isinstance(event, TextDelta)]
        return events

    def _take(self, piece: Any) -> list[HandlerEvent]:
        self._last = piece = _dumped(piece)
        if self._complete is not None and not _is_usage(piece):
            raise HandlerError(
                f"Handler {self.handler!r} gave {piece!r:.80} after its complete message. Give deltas first "
                "and then one complete message, or only one of the two."
            )
        if isinstance(piece, str):
            self._feed({"content": piece})
            return [TextDelta(piece)] if piece else []
        if isinstance(piece, _Event):
            return self._take_event(piece)
        if isinstance(piece, Mapping):
            try:
                return self._take_dict(cast("Mapping[str, Any]", piece))
            except _MALFORMED as error:
                raise self._refusal(cast(object, piece)) from error
        raise self._refusal(piece)

    def done(self) -> list[HandlerEvent]:
        """Return the last events: a delta of the text that no event had yet, and the complete message.

        Raises:
            HandlerError: the function gave no pieces.
            IncompleteResponse: the last piece ends inside the arguments of a tool call.
        """
        if self._complete is None:
            return [self._joined()]
        return [] if self._is_done else self._done_events(self._complete)

    def _done_events(self, complete: MessageDone) -> list[HandlerEvent]:
        self._is_done = True
        done = dataclasses.replace(complete, usage=complete.usage or self._assembled().usage)
        if self._shown is None:  # the run makes the deltas if it is streamed
            return [done]
        text, shown = done.message.get("content"), join_surrogates(self._shown)
        if shown and not text:
            return [dataclasses.replace(done, message=cast(Message, {**done.message, "content": shown}))]
        rest = text[len(shown) :] if isinstance(text, str) and text.startswith(shown) else ""
        return [TextDelta(rest), done] if rest else [done]

    def _joined(self) -> MessageDone:
        if not self._has_begun:
            raise HandlerError(
                f"Handler {self.handler!r} ended without a reply: give a text, a message or chunks."
            )
        done = self._assembled()
        # text is complete: the function has returned
        if calls_of(done.message) and (why := why_incomplete(done, ended=True)):
            raise IncompleteResponse(f"Handler {self.handler!r} ended with {why}. None of its calls was run.")
        return done

    def _assembled(self) -> MessageDone:
        try:
            return self._pieces.done()
        except _MALFORMED as error:
            raise HandlerError(
                f"Handler {self.handler!r} gave pieces that do not make a message: "
                f"{type(error).__name__}: {error}. The last was {self._last!r:.80}."
            ) from error

    def _feed(self, delta: Mapping[str, Any]) -> None:
        self._has_begun = True
        self._pieces.feed({"choices": [{"delta": delta}]})

    def _take_event(self, event: _Event) -> list[HandlerEvent]:
        match event:
            case TextDelta(text=text):
                self._feed({"content": self._text(text)})
                return [] if cast(object, text) is None else [event]
            case ReasoningDelta(text=text):
                self._feed({"reasoning_content": text})
            case ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments):
                function = {"name": name, "arguments": arguments}
                self._feed({"tool_calls": [{"index": index, "id": call_id, "function": function}]})
            case MessageDone():
                return self._finish(event)
        return [event]

    def _text(self, text: object) -> str:
        if text is not None and not isinstance(text, str):
            raise self._refusal(TextDelta(cast(Any, text)))
        return text or ""

    def _take_dict(self, piece: Mapping[str, Any]) -> list[HandlerEvent]:
        choices = piece.get("choices")
        if error := piece.get("error"):  # some providers end a stream with an error
            raise HandlerError(f"Handler {self.handler!r} gave an error in place of a reply: {error!r:.300}")
        # after a message there is only usage, though its dict may name an empty role
        if self._complete is None and choices is None and "role" in piece:
            return self._finish(_message_done(piece))
        if choices and _is_whole_message(piece):
            return self._finish(completion_done(piece))
        if choices is None and "choices" in piece and not _REPLY_FIELDS.keys() & piece.keys() - {"usage"}:
            piece = {**piece, "choices": []}  # an empty chunk
        elif choices is None:
            piece = self._as_chunk(piece)
        self._has_begun = self._has_begun or bool(piece["choices"])
        return self._pieces.feed(piece)

    def _finish(self, done: MessageDone) -> list[HandlerEvent]:
        self._complete = done
        # without usage the message waits, because a last chunk may bring it
        return self._done_events(done) if done.usage or self._assembled().usage else []

    def _as_chunk(self, loose: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``{content, finish_reason, tool_calls, usage}`` as a chunk."""
        given = {key: loose[key] for key in _REPLY_FIELDS.keys() & loose.keys() if loose[key] is not None}
        if not _REPLY_FIELDS.keys() & loose.keys() or not all(
            isinstance(given[key], _REPLY_FIELDS[key]) for key in given
        ):
            raise self._refusal(loose)
        delta = {key: value for key, value in loose.items() if key not in (*_CHUNK_FIELDS, "finish_reason")}
        if "tool_calls" in given:
            delta["tool_calls"] = _numbered(given["tool_calls"])
        choice = {"delta": delta, "finish_reason": given.get("finish_reason")}
        beside = {key: loose[key] for key in _CHUNK_FIELDS if key in loose}
        return {**beside, "choices": [choice] if delta or choice["finish_reason"] else []}

    def _refusal(self, piece: object) -> HandlerError:
        hint = ""
        if piece is None:
            hint = " Is a `return` missing?"
        elif isinstance(piece, HandoffRequest):
            hint = " Only a tool may return a HandoffRequest; a handler calls transfer_to_<name>."
        elif isinstance(piece, Iterator):
            hint = " An iterator must be async: use the vendor's async client."
        return HandlerError(
            f"Handler {self.handler!r} gave {piece!r:.80}; give text, a message with a role, a "
            f"chat-completions reply or chunk, or routelock's events.{hint}"
        )


def _dumped(piece: Any) -> Any:
    """Return a piece with the objects of the openai and litellm packages as dicts."""
    if hasattr(piece, "model_dump"):
        # litellm's fields have other types than declared, and pydantic would warn each time
        return piece.model_dump(exclude_none=True, warnings=False)
    if isinstance(piece, Mapping):
        values = cast("Mapping[str, Any]", piece)
        dumped = {key: _dumped_value(value) for key, value in values.items()}
        return dumped if any(dumped[key] is not values[key] for key in dumped) else values
    return piece


def _dumped_value(value: object) -> object:
    if not isinstance(value, list):
        return _dumped(value) if hasattr(value, "model_dump") else value
    values = cast("list[object]", value)
    return (
        [_dumped(each) for each in values] if any(hasattr(each, "model_dump") for each in values) else values
    )


def _is_usage(piece: Any) -> bool:
    """Whether a piece has usage and no part of a message."""
    if not isinstance(piece, Mapping):
        return False
    filled = {key for key, value in cast("Mapping[str, Any]", piece).items() if value}
    return "usage" in filled and not filled & {"role", "choices", "content", "tool_calls"}


def _is_whole_message(piece: Mapping[str, Any]) -> bool:
    """Whether a dict is a complete reply and not a chunk; Perplexity's chunks have a message too."""
    first = piece["choices"][0]
    return bool(first.get("message")) and not first.get("delta") and piece.get("object") != _CHUNK_OBJECT


def _numbered(calls: list[Any]) -> list[Any]:
    """Return complete calls with an index, so that two calls of one tool are not merged."""
    if len(calls) < 2 or any("index" in call for call in calls):
        return calls
    return [{**call, "index": place} for place, call in enumerate(calls)]


def _message_done(message: Mapping[str, Any]) -> MessageDone:
    """Return the reply of a message, with the usage and the finish reason that a function put into it.

    Arguments that are objects, as of Ollama's client, become text.
    """
    if "usage" in message or "finish_reason" in message:
        said = {key: value for key, value in message.items() if key not in ("usage", "finish_reason")}
        choice = {"message": said, "finish_reason": message.get("finish_reason")}
        return completion_done({"choices": [choice], "usage": message.get("usage")})
    given = cast(Message, message if isinstance(message, dict) else dict(message))
    functions = [cast("Mapping[str, Any]", call.get("function") or {}) for call in calls_of(given)]
    if all(isinstance(function.get("arguments"), str | None) for function in functions):
        return MessageDone(message=given)
    return completion_done({"choices": [{"message": given}]})
