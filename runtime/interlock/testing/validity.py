"""Whether a list of messages is one that a chat provider accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from interlock.messages import Message, calls_of, text_of
from interlock.repair import problems

__all__ = ["assert_valid"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


def assert_valid(messages: Sequence[Message | Mapping[str, Any]]) -> None:
    """Check that a provider would accept these messages; for what was sent, `Request.messages`.

    Each tool call must have exactly one answer, contiguous and after it; every answer its call; ids
    must be there and differ; roles must be known; there must be something to answer.

    Raises:
        AssertionError: with every problem, and the messages in brief.
    """
    found = [
        f"message {index}: unknown role {message.get('role')!r}"
        for index, message in enumerate(messages)
        if message.get("role") not in _ROLES
    ]
    known = cast("Sequence[Message]", messages)
    found = found or problems(known)
    if found:
        listed = "\n".join(f"  {index:3} {_brief(message)}" for index, message in enumerate(known))
        raise AssertionError(
            f"A provider would refuse these {len(messages)} messages:\n"
            + "\n".join(f"- {problem}" for problem in found)
            + f"\n{listed}"
        )


def _brief(message: Message) -> str:
    calls = [f"calls {call['function']['name']}#{call.get('id')}" for call in calls_of(message)]
    answered = [f"answers #{message['tool_call_id']}"] if "tool_call_id" in message else []
    text = text_of(message).replace("\n", " ")[:60]
    return " ".join((f"{message.get('role')!s:9}", *answered, text, *calls))
