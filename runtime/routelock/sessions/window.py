"""The newest part of a conversation, such that no answer is there without its call."""

from __future__ import annotations

import json
from collections.abc import Sequence

from routelock.history.messages import RunItem, calls_of

__all__ = ["newest_part"]


def newest_part(
    items: Sequence[RunItem], max_items: int | None, max_bytes: int | None
) -> tuple[list[RunItem], bool]:
    """Return the newest items within the limits, and whether older ones were left out.

    Answers whose call is left out are left out as well.
    """
    start = _start(items, max_items, max_bytes)
    if not start:
        return list(items), False
    seen: set[str] = set()
    kept: list[RunItem] = []
    for item in items[start:]:
        seen.update(call.get("id") or "" for call in calls_of(item.message))
        if item.message["role"] != "tool" or (item.message.get("tool_call_id") or "") in seen:
            kept.append(item)
    return kept, True


def _start(items: Sequence[RunItem], max_items: int | None, max_bytes: int | None) -> int:
    first = 0 if max_items is None else max(0, len(items) - max_items)
    if max_bytes is None:
        return first
    left = max_bytes
    for place in range(len(items) - 1, first - 1, -1):
        text = json.dumps(items[place].message, ensure_ascii=False)
        left -= len(text.encode("utf-8", "surrogatepass"))
        if left < 0:
            return place + 1
    return first
