"""Taking a model's reply: what is wrong with it, and call ids that are the run's own."""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Sequence
from typing import Any, cast

from typing_extensions import TypeIs

from routelock._json import finite, is_utf8, sendable
from routelock.errors import HandlerError
from routelock.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.repair import says_nothing
from routelock.pieces import together

__all__ = [
    "filtered_out",
    "has_thoughts",
    "is_empty",
    "is_sound",
    "unseen_of",
    "was_cut_short",
    "with_own_ids",
    "wrong_with",
]

_PLAIN = frozenset(("role", "content", "tool_calls"))
_INWARD = ("thinking", "redacted_thinking", "reasoning")
_HALF_REPLACED = "replaced half a character in the reply"

_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "reasoning_items", "thinking_blocks")

_FILTERED = frozenset(
    "content_filter content_filtered refusal sensitive safety recitation blocklist prohibited_content spii "
    "image_safety model_armor guardrail_intervened error_toxic".split()
)
"""Finish reasons, in lower case, by which vendors say that a filter of theirs stopped a reply: OpenAI and
those like it, Anthropic, Zhipu, Google (also as ``content_filter: SAFETY``), Bedrock and Cohere."""


def is_sound(message: object) -> bool:
    """Whether a message is a reply as nearly all are: some text, or whole calls, and nothing else.

    Nothing is wrong with such a one, nothing in it is odd, UTF-8 can hold it, and it is not empty. Any other
    is looked at closely, and may be right all the same.
    """
    if not _is_dict(message) or message.get("role") != "assistant":
        return False
    content, calls = message.get("content"), message.get("tool_calls")
    if len(message) != 1 + ("content" in message) + ("tool_calls" in message):
        return False
    if not calls:
        return type(content) is str and content != "" and not content.isspace() and is_utf8(content)
    whole = type(calls) is list and all(map(_is_whole, cast("list[object]", calls)))
    return whole and (content is None or _is_text(content))


def _is_dict(value: object) -> TypeIs[dict[str, Any]]:
    return type(value) is dict


def _is_text(value: object) -> bool:
    return type(value) is str and is_utf8(value)


def _is_whole(call: object) -> bool:
    if not _is_dict(call) or len(call) != 3 or call.get("type") != "function":
        return False
    function: object = call.get("function")
    if not _is_dict(function) or len(function) != 2 or not _is_text(call.get("id")):
        return False
    return _is_text(function.get("name")) and _is_text(function.get("arguments"))


def wrong_with(message: object) -> str | None:
    """Say why a message cannot be taken as a model's reply, or return None if it can."""
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
    return _wrong_calls(reply["tool_calls"]) if reply.get("tool_calls") else None


def _has_text_keys(message: dict[Any, Any]) -> bool:
    try:
        "".join(message)  # quicker than to look at each
    except TypeError:
        return False
    return True


def _are_dicts(values: list[object]) -> bool:
    return all(isinstance(value, dict) for value in values)


def _wrong_calls(calls: object) -> str | None:
    if not isinstance(calls, list):
        return f"tool calls that are not a list: {calls!r:.80}"
    return next(filter(None, map(_wrong_call, cast("list[object]", calls))), None)


def _wrong_call(call: object) -> str | None:
    known: Any = call
    function: object = known.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return f"a tool call without a function: {call!r:.200}"
    name, arguments = known["function"].get("name"), known["function"].get("arguments")
    if not isinstance(name or "", str) or not isinstance(arguments or "", str):
        return f"a name or arguments that are not text: {call!r:.200}"
    return None


def with_own_ids(
    reply: MessageDone, turn: int, used: set[str], *, sound: bool = False
) -> tuple[MessageDone, Sequence[str]]:
    """Return a reply that can be kept and sent back, and what had to be changed in it, one line each.

    Its calls are whole, with ids that differ from all earlier ones of the run: some providers send no ids or
    repeat them, and ids that UTF-8 cannot hold would be one id once they are written. The
    new ones follow from the turn, so a replayed run makes the same. Keys that begin with an underscore are
    routelock's own: no model sets them. A number that is none is null, and half a surrogate pair is U+FFFD.
    In arguments it is what JSON writes for it: they mean the same as before, and a tool refuses them.

    Args:
        reply: as the handler gave it.
        turn: in which it did.
        used: the ids of all earlier calls; those of the reply are added.
        sound: whether it `is_sound`.

    Raises:
        HandlerError: it is nested too deep to be kept.
    """
    message, calls = reply.message, calls_of(reply.message)
    if sound:
        if not calls:
            return reply, ()
        ids = {call["id"] for call in calls}
        if len(ids) == len(calls) and "" not in ids and used.isdisjoint(ids):
            used |= ids
            return reply, ()
    notes: list[str] = []
    try:
        if not (sound or _is_plain(message)):
            message = cast(Message, finite({key: value for key, value in message.items() if key[:1] != "_"}))
        whole = [_whole(call, index, turn, used, notes) for index, call in enumerate(calls_of(message))]
        if not all(map(operator.is_, whole, calls_of(message))):
            message = cast(Message, {**message, "tool_calls": whole})
        if (fit := sendable(message)) is not message:
            message = fit
            notes.append(_HALF_REPLACED)
    except RecursionError as error:
        raise HandlerError(f"The reply of turn {turn} is nested too deep to be kept.") from error
    return reply if message is reply.message else dataclasses.replace(reply, message=message), notes


def _is_plain(message: Message) -> bool:
    """Whether it says what nearly all do, all of it text, so that there is nothing to look for."""
    if not message.keys() <= _PLAIN or isinstance(message.get("content"), list):
        return False
    for call in calls_of(message):
        if len(call) > 3 or len(call["function"]) > 2:
            return False
    return True


def _whole(call: ToolCall, index: int, turn: int, used: set[str], notes: list[str]) -> ToolCall:
    old: Any = call.get("id")
    call_id = old if isinstance(old, str) and is_utf8(old) else ""
    if not call_id or call_id in used:
        first = f"call_{turn}_{index}"
        others = (f"{first}_{n}" for n in itertools.count(2))
        call_id = next(made for made in itertools.chain((first,), others) if made not in used)
        if old and isinstance(old, str):  # else there was none
            notes.append(f"renamed tool call {old[:80]!r} to {call_id!r}")
    used.add(call_id)
    function: Any = call["function"]
    name, arguments = function.get("name"), function.get("arguments")
    if not (isinstance(name, str) and isinstance(arguments, str)):
        name, arguments = name or "", arguments or "{}"  # such as None, or {}
        function = {**function, "name": name, "arguments": arguments}
    if not is_utf8(arguments):
        function = {**function, "arguments": _escaped(arguments)}
    if function is call["function"] and call_id == old and call.get("type") == "function":
        return call
    return cast(ToolCall, {**call, "id": call_id, "type": "function", "function": function})


def _escaped(arguments: str) -> str:
    """Return JSON text with each half of a surrogate pair as an escape, which says the same."""
    return together((arguments,)).encode(errors="backslashreplace").decode()


def is_empty(message: Message) -> bool:
    """Whether a reply has nothing in it for anybody: no text but blanks, no call, no refusal, no sound.

    A model's reasoning is for itself, so a reply with nothing else is empty.
    """
    content = message.get("content") or []
    if message.get("tool_calls") or (isinstance(content, str) and content and not content.isspace()):
        return False
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    blank = all(not str(part.get("text") or "").strip() for part in parts if part.get("type") not in _INWARD)
    shown = any(part.get("type") not in ("text", *_INWARD) for part in parts)
    return blank and not shown and says_nothing(cast(Message, {**message, "content": None}))


def has_thoughts(message: Message) -> bool:
    """Whether a reply holds what the model thought, which is no answer."""
    return any(message.get(key) for key in _THOUGHTS)


def was_cut_short(reason: object) -> bool:
    """Whether a finish reason says that a reply is not all that the model would have said."""
    return reason == "length" or _is_filter(reason)


def _is_filter(reason: object) -> bool:
    return isinstance(reason, str) and reason.partition(":")[0].strip().lower() in _FILTERED


def filtered_out(reply: MessageDone) -> str | None:
    """Return why a vendor's content filter left nothing of a reply, or None if it did not.

    The vendor's explanation may stand in the reply as its refusal: that is no answer of the model's.
    """
    if not _is_filter(reply.finish_reason):
        return None
    message = reply.message
    explanation: object = message.get("refusal")
    if not is_empty(cast(Message, {**message, "refusal": None})):
        return None
    told = f": {explanation.rstrip('.')}" if isinstance(explanation, str) and explanation else ""
    return f"finish reason {reply.finish_reason!r}{told}"


def unseen_of(message: Message, shown: Sequence[str]) -> list[HandlerEvent]:
    """Return what of a whole reply was not shown, as the deltas of a handler that streams.

    Args:
        message: the reply.
        shown: the pieces of text that were; empty when nothing at all was, not even a call.
    """
    if shown:
        text, seen = text_of(message), sendable(together(shown))
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
