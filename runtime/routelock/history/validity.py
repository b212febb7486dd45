"""The rules that all chat APIs share, and a check of a list of messages against them."""

from __future__ import annotations

from collections.abc import Sequence

from routelock.history.messages import Message, ToolCall

__all__ = ["has_only_system_messages", "problems", "says_nothing", "validate"]


_SYSTEM_ROLES = ("system", "developer")


def problems(messages: Sequence[Message]) -> list[str]:
    """Return one line for each problem for which a provider would refuse the messages."""
    return validate(messages)[0]


def validate(messages: Sequence[Message]) -> tuple[list[str], set[str]]:
    """Return the `problems` of messages, and the ids of the calls in them.

    If there are no problems, each result belongs to one of these calls.
    """
    found: list[str] = []
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            answered = message.get("tool_call_id") or ""
            if answered in open_calls:
                open_calls.remove(answered)
            else:
                found.append(f"message {index}: orphan tool result {answered}")
            continue
        if open_calls:
            found += [f"message {index}: tool call {call} has no answer before it" for call in open_calls]
        calls = message.get("tool_calls")
        open_calls = _read_calls(index, calls, seen, found) if calls else []
        if role == "assistant" and not calls and says_nothing(message):
            found.append(f"message {index}: assistant message without text or calls")
    if open_calls:
        found += [f"at the end: tool call {call} has no answer" for call in open_calls]
    if has_only_system_messages(messages):
        found.append("nothing to answer: no user, assistant or tool message")
    return found, seen


def has_only_system_messages(messages: Sequence[Message]) -> bool:
    """Whether there is no message to answer."""
    for message in reversed(messages):  # the last message usually decides
        if message["role"] not in _SYSTEM_ROLES:
            return False
    return True


def _read_calls(index: int, calls: Sequence[ToolCall], seen: set[str], found: list[str]) -> list[str]:
    """Return the ids of a message's calls. Add them to ``seen``, and each problem to ``found``."""
    ids: list[str] = []
    for call in calls:
        call_id = call.get("id") or ""
        if not call_id:
            found.append(f"message {index}: tool call without an id")
        elif call_id in seen:
            found.append(f"message {index}: tool call id {call_id} is used twice")
        if call.get("type") != "function":
            found.append(f"message {index}: tool call {call.get('id')} without a type")
        seen.add(call_id)
        ids.append(call_id)
    return ids


_KEYS_WITHOUT_CONTENT = {
    *("role", "name", "tool_call_id", "annotations", "provider_specific_fields"),
    *("reasoning", "reasoning_content", "reasoning_details", "reasoning_items", "thinking_blocks"),
}
"""Keys that are not content of a message. Any other key may be content, such as ``audio``."""


def says_nothing(message: Message) -> bool:
    """Whether an assistant message has no content and no calls; vendors refuse such a message."""
    if message["role"] != "assistant" or message.get("content") or message.get("tool_calls"):
        return False
    return not any(
        value and key not in _KEYS_WITHOUT_CONTENT and not key.startswith("_")
        for key, value in message.items()
    )
