"""The part of a message that every provider can read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from routelock.history.messages import Message, ToolCall, arguments_of, calls_of
from routelock.history.vendor_calls import VENDOR_KEYS, calls_as_text

__all__ = ["drop_unknown_keys", "portable"]


_ASSISTANT_KEYS = frozenset(
    "role content name tool_calls tool_call_id refusal audio images function_call annotations citations "
    "prefix tool_plan cache_control reasoning reasoning_content reasoning_details reasoning_items thinking "
    "thinking_blocks provider_specific_fields extra_content".split()
)

_CALL_KEYS = frozenset(("id", "type", "function", "provider_specific_fields", "extra_content"))

_FUNCTION_KEYS = frozenset(
    ("name", "arguments", "provider_specific_fields", "extra_content", "thought_signature")
)
"""The keys that vendors are known to write into an assistant message, a call, and the function of a call."""


def drop_unknown_keys(message: Message) -> Message:
    """Return an assistant message of the caller without unknown keys, such as columns of a database."""
    if not VENDOR_KEYS.isdisjoint(message):
        message = _with_calls_as_text(message)
    calls = calls_of(message)
    if message.keys() <= _ASSISTANT_KEYS and all(map(_is_stored, calls)):
        return message
    kept = _only(_ASSISTANT_KEYS, message)
    if calls:
        kept["tool_calls"] = [_stored_call(call) for call in calls]
    return cast(Message, kept)


def _is_stored(call: ToolCall) -> bool:
    return call.keys() <= _CALL_KEYS and call["function"].keys() <= _FUNCTION_KEYS


def _stored_call(call: ToolCall) -> dict[str, Any]:
    return {**_only(_CALL_KEYS, call), "function": _only(_FUNCTION_KEYS, call["function"])}


def _only(keys: Collection[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key in keys}


_VENDOR_CALL_KEYS = VENDOR_KEYS | {"annotations", "executed_tools"}
"""Keys that hold what a vendor's own tools did; see `routelock.history.vendor_calls`."""


def _with_calls_as_text(message: Message) -> Message:
    """Return a message whose text, and not its keys, says what a vendor's own tools did for it."""
    calls = calls_as_text(message)
    rest: dict[str, Any] = {key: value for key, value in message.items() if key not in _VENDOR_CALL_KEYS}
    if calls:
        content: Any = rest.get("content")
        if isinstance(content, list):
            rest["content"] = [*content, {"type": "text", "text": calls}]
        else:
            rest["content"] = f"{content}\n\n{calls}" if content else calls
    return cast(Message, rest)


_PORTABLE_KEYS = ("role", "content", "name", "tool_call_id", "refusal")

_REASONING_TYPES = ("thinking", "redacted_thinking", "reasoning")


def portable(message: Message) -> Message:
    """Return a copy of a message without the fields that only its own provider family can read.

    Some vendors refuse a request with the thinking blocks, signatures or reasoning items of another vendor.
    Text, calls and results stay. The text says what a vendor's own tools did.
    """
    if message["role"] == "assistant" and not _VENDOR_CALL_KEYS.isdisjoint(message):
        message = _with_calls_as_text(message)
    kept: dict[str, Any] = {key: value for key, value in message.items() if key in _PORTABLE_KEYS}
    content = message.get("content")
    if isinstance(content, list) and message["role"] == "assistant":
        kept["content"] = [part for part in content if part.get("type") not in _REASONING_TYPES] or None
    if calls := calls_of(message):
        kept["tool_calls"] = [
            {
                "id": call.get("id") or "",
                "type": "function",
                "function": {"name": call["function"].get("name") or "", "arguments": arguments_of(call)},
            }
            for call in calls
        ]
    return cast(Message, kept)
