"""Checks and repairs of a model's reply, and the collector of a handler function's reply."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from routelock._json import finite, is_utf8, sendable
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
from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.repair import says_nothing

__all__ = [
    "Collector",
    "filtered_out",
    "has_reasoning",
    "is_empty",
    "missing_deltas",
    "reply_problem",
    "was_cut_short",
    "with_unique_ids",
]


_REASONING_TYPES = ("thinking", "redacted_thinking", "reasoning")

_HALF_REPLACED = "replaced half a character in the reply"

_REASONING_KEYS = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_items",
    "thinking_blocks",
)

_FILTER_REASONS = frozenset(
    "content_filter content_filtered refusal sensitive safety recitation blocklist prohibited_content spii "
    "image_safety model_armor guardrail_intervened error_toxic".split()
)
"""Finish reasons, in lower case, of replies that a vendor's content filter stopped: of OpenAI and compatible
vendors, Anthropic, Zhipu, Google (also as ``content_filter: SAFETY``), Bedrock and Cohere."""


def reply_problem(message: object) -> str | None:
    """Return why a message is not a valid model reply, or None if it is valid."""
    reply: Any = message
    if not isinstance(message, dict):
        return f"{message!r:.80} instead of a message"
    if reply.get("role") != "assistant":
        return f"role {reply.get('role')!r} instead of 'assistant'"
    if not _has_text_keys(reply):
        return f"a key that is not text: {message!r:.80}"
    content = reply.get("content")
    if isinstance(content, list):
        if not _are_dicts(reply["content"]):
            return f"content with a part that is not a dict: {content!r:.80}"
    elif not (content is None or isinstance(content, str)):
        return f"content that is neither text nor parts: {content!r:.80}"
    return _calls_problem(reply["tool_calls"]) if reply.get("tool_calls") else None


def _has_text_keys(message: dict[Any, Any]) -> bool:
    try:
        "".join(message)
    except TypeError:
        return False
    return True


def _are_dicts(values: list[object]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _calls_problem(calls: object) -> str | None:
    if not isinstance(calls, list):
        return f"tool calls that are not a list: {calls!r:.80}"
    return next(filter(None, map(_call_problem, cast("list[object]", calls))), None)


def _call_problem(call: object) -> str | None:
    known: Any = call
    function: object = known.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"a tool call without a function: {call!r:.200}"
    name, arguments = known["function"].get("name"), known["function"].get("arguments")
    if not isinstance(name or "", str) or not isinstance(arguments or "", str):
        return f"a name or arguments that are not text: {call!r:.200}"
    return None


def with_unique_ids(reply: MessageDone, turn: int, used: set[str]) -> tuple[MessageDone, Sequence[str]]:
    """Return a reply that can be stored and sent back, and one line for each repair made in it.

    Some providers send no call ids, or repeat them, so each call gets an id that no earlier call of the run
    has. New ids follow from the turn and the place of the call, so a replayed run makes the same ids. Keys
    that begin with an underscore are removed: routelock alone sets those. NaN and infinity become null. Half
    a surrogate pair becomes U+FFFD; in arguments it becomes a JSON escape, which means the same.

    Args:
        reply: as the handler gave it; `reply_problem` found nothing in it.
        turn: the turn of the reply.
        used: the ids of all earlier calls. The ids of this reply are added to it.

    Raises:
        HandlerError: the reply is nested too deep to be stored.
    """
    message, repairs = reply.message, list[str]()
    try:
        if any(key.startswith("_") for key in message):
            message = cast(Message, {key: each for key, each in message.items() if not key.startswith("_")})
        message = finite(message)
        calls = calls_of(message)
        whole = [_completed(call, index, turn, used, repairs) for index, call in enumerate(calls)]
        if not all(map(operator.is_, whole, calls)):
            message = cast(Message, {**message, "tool_calls": whole})
        if (valid := sendable(message)) is not message:
            message = valid
            repairs.append(_HALF_REPLACED)
    except RecursionError as error:
        raise HandlerError(f"The reply of turn {turn} is nested too deep to be stored.") from error
    return reply if message is reply.message else dataclasses.replace(reply, message=message), repairs


def _completed(call: ToolCall, index: int, turn: int, used: set[str], repairs: list[str]) -> ToolCall:
    old: Any = call.get("id")
    call_id = old if isinstance(old, str) and is_utf8(old) else ""
    if not call_id or call_id in used:
        first = f"call_{turn}_{index}"
        others = (f"{first}_{n}" for n in itertools.count(2))
        call_id = next(made for made in itertools.chain((first,), others) if made not in used)
        if old and isinstance(old, str):  # a missing id is not reported
            repairs.append(f"renamed tool call {old[:80]!r} to {call_id!r}")
    used.add(call_id)
    function: Any = call["function"]
    name, arguments = function.get("name"), function.get("arguments")
    if not (isinstance(name, str) and isinstance(arguments, str)):
        name, arguments = name or "", arguments or "{}"  # some vendors send None or {}
        function = {**function, "name": name, "arguments": arguments}
    if not is_utf8(arguments):
        function = {**function, "arguments": _with_escapes(arguments)}
    if function is call["function"] and call_id == old and call.get("type") == "function":
        return call
    return cast(ToolCall, {**call, "id": call_id, "type": "function", "function": function})


def _with_escapes(arguments: str) -> str:
    """Return JSON text with each half of a surrogate pair as an escape, which means the same."""
    return join_surrogates((arguments,)).encode(errors="backslashreplace").decode()


def is_empty(message: Message) -> bool:
    """Whether a reply has no text except blanks, no call, no refusal and no media.

    A reply that has only reasoning is empty too.
    """
    content = message.get("content") or []
    if message.get("tool_calls") or (isinstance(content, str) and content and not content.isspace()):
        return False
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blank = all(
        not str(part.get("text") or "").strip() for part in parts if part.get("type") not in _REASONING_TYPES
    )
    shown = any(part.get("type") not in ("text", *_REASONING_TYPES) for part in parts)
    return blank and not shown and says_nothing(cast(Message, {**message, "content": None}))


def has_reasoning(message: Message) -> bool:
    """Whether a reply has the model's reasoning in a field of its own."""
    return any(message.get(key) for key in _REASONING_KEYS)


def was_cut_short(reason: object) -> bool:
    """Whether a finish reason says that the reply broke off, by a length limit or a content filter."""
    return reason == "length" or _is_filter(reason)


def _is_filter(reason: object) -> bool:
    return isinstance(reason, str) and reason.partition(":")[0].strip().lower() in _FILTER_REASONS


def filtered_out(reply: MessageDone) -> str | None:
    """Return the reason if a vendor's content filter removed a reply, else None.

    The reply may have the vendor's explanation as its refusal, which is not an answer of the model.
    """
    if not _is_filter(reply.finish_reason):
        return None
    message = reply.message
    explanation: object = message.get("refusal")
    if not is_empty(cast(Message, {**message, "refusal": None})):
        return None
    added = f": {explanation.rstrip('.')}" if isinstance(explanation, str) and explanation else ""
    return f"finish reason {reply.finish_reason!r}{added}"


def missing_deltas(message: Message, shown: Sequence[str]) -> list[HandlerEvent]:
    """Return the deltas of a complete reply that the handler did not yield.

    Args:
        message: the reply.
        shown: the pieces of text that the handler yielded; empty if it yielded no delta at all.
    """
    if shown:
        text, seen = text_of(message), sendable(join_surrogates(shown))
        return [TextDelta(text[len(seen) :])] if text.startswith(seen) and text != seen else []
    return _deltas_of(message)


def _deltas_of(message: Message) -> list[HandlerEvent]:
    deltas: list[HandlerEvent] = []
    if isinstance(thoughts := message.get("reasoning_content"), str) and thoughts:
        deltas.append(ReasoningDelta(thoughts))
    if text := text_of(message):
        deltas.append(TextDelta(text))
    for index, call in enumerate(calls_of(message)):
        function = call["function"]
        deltas.append(ToolCallDelta(index, call["id"], function["name"], function["arguments"]))
    return deltas


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
            HandlerError: there were no pieces.
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
        rest = text[len(shown) :] if isinstance(text, str) and text.startswith(shown) else ""
        return [TextDelta(rest), done] if rest else [done]

    def _joined(self) -> MessageDone:
        if not self._has_begun:
            raise HandlerError(f"Handler {self.handler!r} ended without a reply.")
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
        if error := piece.get("error"):  # some providers end a stream with it
            raise HandlerError(f"Handler {self.handler!r} gave an error in place of a reply: {error!r:.300}")
        if choices is None and "role" in piece:
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
    """Return a message as it is, unless its arguments are objects, as those of Ollama's client are."""
    given = cast(Message, message if isinstance(message, dict) else dict(message))
    functions = [cast("Mapping[str, Any]", call.get("function") or {}) for call in calls_of(given)]
    if all(isinstance(function.get("arguments"), str | None) for function in functions):
        return MessageDone(message=given)
    return completion_done({"choices": [{"message": given}]})
