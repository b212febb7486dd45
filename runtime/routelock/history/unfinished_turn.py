"""The steps that an interrupted turn still needs, as far as the transcript shows them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from routelock.history.messages import RunItem, ToolCall, calls_of

__all__ = ["LeftOver", "left_over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """The steps that a turn still needs. If there are none, the turn is complete."""

    call_again: bool = False
    """Whether the turn has no complete reply, so the model must be called again."""
    cut_off: Sequence[RunItem] = ()
    """Replies that broke off, and the answer of ``RunConfig.on_limit``; the model does not see them again."""
    reply: RunItem | None = None
    """A reply without calls that has not become the output yet."""
    calls: Sequence[ToolCall] = ()
    """Calls without a result."""


def left_over(items: Sequence[RunItem], first_of_turn: int, turn: int, waiting: Collection[str]) -> LeftOver:
    """Return the steps that a turn still needs.

    Args:
        items: the transcript.
        first_of_turn: the id of the first item of the turn.
        turn: the number of the turn; 0 before the first turn.
        waiting: ids of calls whose result will be another agent's output, see ``Handoff.return_to_caller``.
    """
    if not turn:
        return LeftOver()
    rest = items[first_of_turn:]
    place = next((place for place, item in enumerate(rest) if _is_reply(item)), None)
    if place is None:
        began = all(item.kind == "model" for item in rest)  # otherwise a waiting agent has got its result
        return LeftOver(call_again=True, cut_off=rest) if began else LeftOver()
    reply, after = rest[place], rest[place + 1 :]
    of_limit = [item for item in after if item.kind == "model"]
    if not (calls := calls_of(reply.message)):
        return LeftOver(cut_off=of_limit, reply=None if len(after) > len(of_limit) else reply)
    settled = {item.message.get("tool_call_id") for item in after} | set(waiting)
    return LeftOver(cut_off=of_limit, calls=[call for call in calls if call["id"] not in settled])


def _is_reply(item: RunItem) -> bool:
    """Whether an item is a complete reply; a reply that broke off has no ``origin``."""
    return item.kind == "model" and item.origin is not None
