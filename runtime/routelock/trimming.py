"""The legal cut: the last messages of a history, without parting a call from its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from routelock.messages import Message, calls_of

__all__ = ["newest", "pairs", "with_pairs"]


def newest(messages: Sequence[Message], count: int) -> list[int]:
    """Return the places of the last ``count`` messages and of all system messages, in order.

    A message with tool calls and the answers that follow it count one each and go together: if they do
    not fit together, none of them is kept. At least the last such group is, unless ``count`` is 0.
    """
    kept = {place for place, message in enumerate(messages) if _is_system(message)}
    left, any_yet = count, False
    for group in reversed(_groups(messages)):
        if not left or (any_yet and len(group) > left):
            break
        kept.update(group)
        left, any_yet = max(0, left - len(group)), True
    return sorted(kept)


def with_pairs(messages: Sequence[Message], places: Iterable[int]) -> list[int]:
    """Return ``places`` and those of the calls and answers that belong to them, in order.

    `newest` needs this where answers do not follow their call at once, as in a history of foreign make.
    """
    kept = set(places)
    for pair in pairs(messages):
        if not kept.isdisjoint(pair):
            kept |= pair
    return sorted(kept)


def pairs(messages: Sequence[Message]) -> list[set[int]]:
    """Group each message that has calls with all answers to them, wherever they stand behind it."""
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


def _groups(messages: Sequence[Message]) -> list[list[int]]:
    """Group each message with the answers that follow it; system messages in between do not count."""
    groups: list[list[int]] = []
    for place, message in enumerate(messages):
        if _is_system(message):
            continue
        if message["role"] == "tool" and groups:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups
