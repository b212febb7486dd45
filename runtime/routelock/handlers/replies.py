"""Checks and repairs of a model's complete reply."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, cast

from routelock._sendable import finite, is_utf8, sendable
from routelock.errors import HandlerError
from routelock.handlers.events import MessageDone
from routelock.handlers.stream_assembler import join_surrogates
from routelock.history.messages import Message, ToolCall
from routelock.history.validity import says_nothing

__all__ = ["is_empty", "reply_problem", "storable_reply"]


_REASONING_TYPES = ("thinking", "redacted_thinking", "reasoning")

_CONTAINERS: tuple[type[Any], ...] = (dict, list)

_HALF_REPLACED = "replaced half a character in the reply"


def reply_problem(message: object) -> str | None:
    """Return why a message is not a valid model reply, or None if it is valid."""
    reply: Any = message
    if not isinstance(message, dict):
        return f"{message!r:.80} instead of a message"
    if reply.get("role") != "assistant":
        return f"role {reply.get('role')!r} instead of 'assistant'"
    try:
        "".join(reply)
    except TypeError:
        return f"a key that is not text: {message!r:.80}"
    content = reply.get("content")
    if isinstance(content, list):
        if not _are_dicts(reply["content"]):
            return f"content with a part that is not a dict: {content!r:.80}"
    elif not (content is None or isinstance(content, str)):
        return f"content that is neither text nor parts: {content!r:.80}"
    return _calls_problem(reply["tool_calls"]) if reply.get("tool_calls") else None


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


def storable_reply(reply: MessageDone, turn: int, used: set[str]) -> tuple[MessageDone, Sequence[str]]:
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
    message = reply.message
    repairs: list[str] = []
    try:
        if ",_" in f",{','.join(message)}":
            message = cast(Message, {key: each for key, each in message.items() if not key.startswith("_")})
        if calls := message.get("tool_calls"):
            whole = [_completed(call, index, turn, used, repairs) for index, call in enumerate(calls)]
            if not all(map(operator.is_, whole, calls)):
                message = cast(Message, {**message, "tool_calls": whole})
        if not _is_sendable(message):
            message = finite(message)
            if (valid := sendable(message)) is not message:
                message = valid
                repairs.append(_HALF_REPLACED)
    except RecursionError as error:
        raise HandlerError(f"The reply of turn {turn} is nested too deep to be stored.") from error
    return reply if message is reply.message else dataclasses.replace(reply, message=message), repairs


def _is_sendable(value: object) -> bool:
    """Whether data has no NaN, infinity or half a surrogate pair: `finite` and `sendable` replace those."""
    parts: list[Any] = [value]
    seen: set[int] = set()
    for part in parts:  # which grows in the loop
        if isinstance(part, str):
            if not part.isascii() and not is_utf8(part):
                return False
        elif isinstance(part, float):
            if not math.isfinite(part):
                return False
        elif isinstance(part, _CONTAINERS) and id(part) not in seen:
            seen.add(id(part))
            parts += [*part, *part.values()] if isinstance(part, dict) else part
    return True


def _completed(call: ToolCall, index: int, turn: int, used: set[str], repairs: list[str]) -> ToolCall:
    old: Any = call.get("id")
    call_id = old if isinstance(old, str) and (old.isascii() or is_utf8(old)) else ""
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
    if not arguments.isascii() and not is_utf8(arguments):
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
