"""Messages as the input of a later run: private keys keep fields of the items of the earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from routelock._copies import detached
from routelock.history.messages import ItemKind, Message, RunItem, calls_of
from routelock.history.portable import portable

__all__ = ["AGENT", "KIND", "ORIGIN", "item_of", "marked", "shown_later"]


ORIGIN = "_origin"
"""Private key of an assistant message from `RunResult.to_input_list`: the family that wrote it."""

KIND = "_kind"
"""Private key from `RunResult.to_input_list`: the kind of a nudge, a note or the result of a handoff call."""

AGENT = "_agent"
"""Private key from `RunResult.to_input_list`: the agent that made the calls of an assistant message."""

_PRIVATE = (ORIGIN, KIND, AGENT)


def item_of(message: Message, place: int, kind: ItemKind) -> RunItem:
    """Return a message from `to_messages` as the item with the id ``place``.

    Its private keys become fields of the item.
    """
    known = cast("dict[str, Any]", message)
    if not known.keys().isdisjoint(_PRIVATE):
        message = cast(Message, {key: known[key] for key in known if key not in _PRIVATE})
    return RunItem(
        id=place,
        kind=known.get(KIND, kind),
        message=message,
        agent=known.get(AGENT),
        origin=known.get(ORIGIN),
    )


def marked(item: RunItem) -> Message:
    """Return a copy of an item's message with fields of the item as private keys; see `item_of`."""
    message = cast("dict[str, Any]", detached(item.message))
    if item.kind in ("nudge", "handoff", "note"):
        message[KIND] = item.kind
    if item.agent is not None and calls_of(item.message):
        message[AGENT] = item.agent
    if item.origin is not None and item.message != portable(item.message):
        message[ORIGIN] = item.origin
    return cast(Message, message)


def shown_later(items: Sequence[RunItem]) -> list[RunItem]:
    """Return the items of a transcript that later runs see.

    Items of an agent that returned its output to the caller are left out, because the result of the call has
    that output; see ``Handoff.return_to_caller``.
    """
    answered = {item.message.get("tool_call_id") for item in items}
    return [item for item in items if item.asked_by is None or item.asked_by not in answered]
