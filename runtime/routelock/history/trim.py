"""Trimming of a history that never separates a tool call from its results.

`newest` keeps the last messages; `within_budget` cuts the oldest tool results to fit a budget in bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from routelock._text import clip_bytes, size_of
from routelock.history.messages import Message, calls_of, text_of

__all__ = ["cut_result", "groups", "newest", "result_size", "with_pairs", "within_budget"]


def newest(messages: Sequence[Message], count: int) -> list[int]:
    """Return the indexes of the last ``count`` messages and of all system messages, in order.

    A message with tool calls and the results after it count as one message each, and stay together: if they
    do not fit, none of them is kept. The last such group is always kept unless ``count`` is 0.
    """
    kept = {place for place, message in enumerate(messages) if _is_system(message)}
    left, any_yet = count, False
    for group in reversed(groups(messages)):
        if not left or (any_yet and len(group) > left):
            break
        kept.update(group)
        left, any_yet = max(0, left - len(group)), True
    return sorted(kept)


def with_pairs(messages: Sequence[Message], places: Iterable[int]) -> list[int]:
    """Return the indexes in ``places`` and those of the calls and results that belong to them, in order.

    Use it after `newest` for a history whose results do not follow their calls, such as one of another
    library.
    """
    kept = set(places)
    for pair in _pairs(messages):
        if not kept.isdisjoint(pair):
            kept |= pair
    return sorted(kept)


def _pairs(messages: Sequence[Message]) -> list[set[int]]:
    """Return one set for each message with calls: the indexes of the message and of all results."""
    found: list[set[int]] = []
    callers: dict[str, set[int]] = {}
    for place, message in enumerate(messages):
        if calls := calls_of(message):
            found.append({place})
            callers.update((call.get("id") or "", found[-1]) for call in calls)
        elif message["role"] == "tool" and (pair := callers.get(message.get("tool_call_id") or "")):
            pair.add(place)
    return found


def _is_system(message: Message) -> bool:
    return message["role"] in ("system", "developer")


def groups(messages: Sequence[Message]) -> list[list[int]]:
    """Group each message with the answers that follow it; system messages in between do not count."""
    found: list[list[int]] = []
    for place, message in enumerate(messages):
        if _is_system(message):
            continue
        if message["role"] == "tool" and found:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def within_budget(
    messages: Sequence[Message], max_bytes: int, exempt: Sequence[bool]
) -> list[Message | None]:
    """Return for each message the message to show, or None to hide it.

    The newest results stay whole. The first one that does not fit is cut, and each result before it is
    replaced by a notice. If the notices do not fit either, the oldest calls are hidden with their results and
    their reasoning; the text beside them stays.

    Args:
        messages: the history; no message is changed in place.
        max_bytes: the budget of all results together, in UTF-8, notices included.
        exempt: for each message, whether it does not count as a result although it has the role ``tool``.
    """
    places = [
        place
        for place, message in enumerate(messages)
        if message["role"] == "tool" and not exempt[place] and result_size(message)
    ]
    sizes = {place: result_size(messages[place]) for place in places}
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
            shown[place], left = cut_result(messages[place], had + left), 0
    return shown


def _too_many(messages: Sequence[Message], least: dict[int, int], max_bytes: int) -> list[int]:
    """Return the indexes of the oldest calls and results to hide, so that the notices of the others fit."""
    found = [group for group in _pairs(messages) if not group.isdisjoint(least)]
    grouped = set[int]().union(*found)
    found += [{place} for place in least if place not in grouped]  # results without a call
    total, gone = sum(least.values()), list[int]()
    for group in sorted(found, key=min):
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


def result_size(message: Message) -> int:
    """Return the size of a result in bytes; a part that is not text counts as its JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return size_of(content)
    return sum(_size_of_part(part) for part in content or ())


def _size_of_part(part: dict[str, Any]) -> int:
    if part.get("type") == "text":
        return size_of(str(part.get("text") or ""))
    return len(json.dumps(part, default=str))


def cut_result(message: Message, room: int) -> Message:
    """Return a result of at most ``room`` bytes: the beginning of its text, and a notice."""
    notice = _notice(result_size(message))
    beginning = clip_bytes(text_of(message), room - len(notice), "")
    return cast(Message, {**message, "content": f"{beginning}{notice}"})
