"""How much of the tools' results is carried along: a budget in bytes, for which the oldest are cut."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from routelock.messages import Message, text_of
from routelock.trimming import pairs

__all__ = ["within_budget"]


def within_budget(
    messages: Sequence[Message], max_bytes: int, exempt: Sequence[bool]
) -> list[Message | None]:
    """Return each message as it is to be shown; None hides it.

    The newest results stay whole. The first that does not fit is cut, and of all before it a notice is left.
    Where there are so many that not even the notices fit, the oldest calls go, together with their answers
    and the reasoning that led to them; what was said beside them stays.

    Args:
        messages: a history. None of them is changed.
        max_bytes: of all results together, in UTF-8, notices included.
        exempt: for each message, whether it is no result though its role is that of a tool.
    """
    places = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "tool" and not exempt[place] and _size(message)
    ]
    sizes = {place: _size(messages[place]) for place in places}
    shown: list[Message | None] = list(messages)
    if sum(sizes.values()) <= max_bytes:
        return shown
    least = {place: min(size, len(_notice(size))) for place, size in sizes.items()}
    for place in _too_many(messages, least, max_bytes):
        least.pop(place, None)
        shown[place] = _without_calls(messages[place])
    left = max_bytes - sum(least.values())
    for place in reversed(least):
        wanted, had = sizes[place], least[place]
        if wanted - had <= left:
            left -= wanted - had
        else:
            shown[place], left = _cut(messages[place], had + left), 0
    return shown


def _too_many(messages: Sequence[Message], least: dict[int, int], max_bytes: int) -> list[int]:
    """Return the places of the oldest calls and answers, so many that the notices for the rest fit."""
    groups = [group for group in pairs(messages) if not group.isdisjoint(least)]
    grouped = set[int]().union(*groups)
    groups += [{place} for place in least if place not in grouped]  # answers to calls that are not there
    total, gone = sum(least.values()), list[int]()
    for group in sorted(groups, key=min):
        if total <= max_bytes:
            break
        total -= sum(least.get(place, 0) for place in group)
        gone += sorted(group)
    return gone


def _without_calls(message: Message) -> Message | None:
    if message["role"] == "tool" or not message.get("content"):
        return None
    return {"role": "assistant", "content": message.get("content")}


def _notice(size: int) -> str:
    return f"[... cut: {size} bytes in all]"


def _size(message: Message) -> int:
    """Return the bytes of a result. What is no text counts as the JSON that is sent."""
    content = message.get("content")
    if isinstance(content, str):
        return len(_bytes(content))
    return sum(_size_of_part(part) for part in content or ())


def _size_of_part(part: dict[str, Any]) -> int:
    if part.get("type") == "text":
        return len(_bytes(str(part.get("text") or "")))
    return len(json.dumps(part, default=str))


def _cut(message: Message, room: int) -> Message:
    """Return a result of at most ``room`` bytes: the beginning of its text, and the notice."""
    notice = _notice(_size(message))
    text = _bytes(text_of(message))
    end = min(len(text), max(0, room - len(notice)))
    while 0 < end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1  # not in the middle of a character
    beginning = text[:end].decode("utf-8", "surrogatepass")
    return cast(Message, {**message, "content": f"{beginning}{notice}"})


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
