"""The input of a run as a list of checked messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from routelock._copies import detached
from routelock._sendable import finite
from routelock.errors import ConfigError
from routelock.history.content import chat_part
from routelock.history.marked import AGENT, KIND, ORIGIN
from routelock.history.messages import Message, RunInput, arguments_of, calls_of

__all__ = ["checked_message", "to_messages"]


def to_messages(value: RunInput) -> list[Message]:
    """Return the input of a run as a list of checked messages.

    Raises:
        ConfigError: the input is neither text nor a sequence of messages with a known role.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    is_message = isinstance(value, Mapping | bytes) or hasattr(value, "content")
    if is_message or not isinstance(cast(object, value), Iterable):
        raise ConfigError(f"Input must be text or a list of messages, not {type(value).__name__}.")
    return [checked_message(index, message) for index, message in enumerate(value)]


def checked_message(index: int, message: object) -> Message:
    """Return a copy of one input message; of its private keys, only valid ones of routelock stay.

    NaN and infinity become null, because JSON has no such numbers.

    Raises:
        ConfigError: the message is malformed; the error names ``index`` and the key.
    """
    if not isinstance(message, Mapping):
        raise ConfigError(f"Input message {index} must be a dict with a role, not {type(message).__name__}.")
    known = cast("Mapping[str, Any]", message)
    role = known.get("role")
    if role not in ("user", "assistant", "tool", "system", "developer"):
        hint = " Items of the Responses API are read by a session: Session(...).add(items)."
        raise ConfigError(
            f"Input message {index} has role {role!r}; use user, assistant, tool, system or developer."
            f"{hint if role is None and 'type' in known else ''}"
        )
    if wrong := _content_problem(known) or _calls_problem(known):
        raise ConfigError(f"Input message {index}: {wrong}.")
    kept = cast(Message, {key: detached(value) for key, value in known.items() if _is_kept(key, value)})
    if isinstance(content := kept.get("content"), list):
        kept["content"] = [dict(chat_part(part)) for part in content]
    for call in calls_of(kept):
        call["function"]["arguments"] = arguments_of(call)
    return finite(kept)


def _is_kept(key: str, value: object) -> bool:
    if key in (ORIGIN, AGENT):
        return isinstance(value, str)
    return value in ("nudge", "handoff", "note") if key == KIND else not key.startswith("_")


def _content_problem(message: Mapping[str, Any]) -> str | None:
    """Return what no provider could read; `repair` fixes other problems, such as a missing id."""
    content, role = message.get("content"), message["role"]
    if not isinstance(content, str | None) and not _are_dicts(content):
        return f"content must be text, a list of parts or None, not {content!r:.80}"
    if content is None and role in ("user", "system", "developer"):
        return f"content of a {role} message must be text or a list of parts, not None"
    for key in ("name", "tool_call_id"):
        if not isinstance(message.get(key), str | None):
            return f"{key} must be text, not {message[key]!r:.80}"
    return None


def _calls_problem(message: Mapping[str, Any]) -> str | None:
    calls: Any = message.get("tool_calls")
    if not calls:
        return None
    if not (_are_dicts(calls) and all(_has_name(call.get("function")) for call in calls)):
        return f"tool_calls must be a list of calls with a function that has a name, not {calls!r:.80}"
    if message["role"] != "assistant":
        return f"tool_calls belong to an assistant message, not to a {message['role']} message"
    for call in calls:
        if not isinstance(call.get("id"), str | None):
            return f"the id in tool_calls must be text, not {call['id']!r:.80}"
        if not isinstance(call["function"].get("arguments") or "", str):
            return f"the arguments in tool_calls must be JSON text, not {call['function']['arguments']!r:.80}"
    return None


def _are_dicts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in cast("list[object]", value))


def _has_name(function: object) -> bool:
    return isinstance(function, Mapping) and isinstance(cast("Mapping[str, Any]", function).get("name"), str)
