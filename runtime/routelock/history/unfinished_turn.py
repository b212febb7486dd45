"""What is left to do of the turn in which a run stood: read off the transcript, and nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from routelock.history.messages import RunItem, ToolCall, calls_of

__all__ = ["LeftOver", "left_over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """What a turn still asks for. With nothing in it the turn is complete, and the next one may begin."""

    call_again: bool = False
    """Whether the turn has no complete reply, so that the model is to be asked once more."""
    cut_off: Sequence[RunItem] = ()
    """Replies that broke off, and what ``RunConfig.on_limit`` answered: the model is not shown them again."""
    reply: RunItem | None = None
    """A reply without calls that was not taken as an output yet."""
    calls: Sequence[ToolCall] = ()
    """Calls that nobody has answered."""


def left_over(items: Sequence[RunItem], first_of_turn: int, turn: int, waiting: Collection[str]) -> LeftOver:
    """Return what is left to do of a turn.

    Args:
        items: the transcript.
        first_of_turn: id of the first item of the turn.
        turn: its number; 0 before the first.
        waiting: ids of calls that another agent's output will answer, see ``Handoff.return_to_caller``.
    """
    if not turn:
        return LeftOver()
    rest = items[first_of_turn:]
    place = next((place for place, item in enumerate(rest) if _is_reply(item)), None)
    if place is None:
        began = all(item.kind == "model" for item in rest)  # else whoever waited was told, and goes on
        return LeftOver(call_again=True, cut_off=rest) if began else LeftOver()
    reply, after = rest[place], rest[place + 1 :]
    of_limit = [item for item in after if item.kind == "model"]
    if not (calls := calls_of(reply.message)):
        return LeftOver(cut_off=of_limit, reply=None if len(after) > len(of_limit) else reply)
    settled = {item.message.get("tool_call_id") for item in after} | set(waiting)
    return LeftOver(cut_off=of_limit, calls=[call for call in calls if call["id"] not in settled])


def _is_reply(item: RunItem) -> bool:
    """Whether this is a complete reply: of one that broke off nobody says which family wrote it."""
    return item.kind == "model" and item.origin is not None
