"""The log of the handoffs of a run."""

from __future__ import annotations

from typing import Any

from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Slot
from routelock.run.events import HandoffCompleted, RunEvent
from routelock.run.records import HandoffRecord
from routelock.usage import NO_USAGE, Usage

__all__ = ["HandoffLog"]


class HandoffLog:
    """The handoffs of one run: records, what each target consumed, and the slots that targets hold."""

    __slots__ = ("events", "is_streamed", "records", "slots", "spent")

    def __init__(self, *, is_streamed: bool) -> None:
        self.records: list[HandoffRecord] = []
        self.spent: dict[str, Usage] = {}
        """What each target has consumed, by the id of its handoff."""
        self.slots: dict[str, Slot] = {}
        """The capacity slots that targets hold, by the id of their handoff; see ``RunConfig.capacity``."""
        self.is_streamed: bool = is_streamed
        self.events: list[RunEvent] = []
        """What became of handoffs, as events that were not yielded yet."""

    def get(self, handoff_id: str | None) -> HandoffRecord | None:
        """Return the record of a handoff."""
        return next((one for one in reversed(self.records) if one.id == handoff_id), None)

    def begin(self, handoff_id: str) -> None:
        """Begin to count what the target of this handoff consumes."""
        self.spent[handoff_id] = NO_USAGE

    def close(
        self,
        handoff_id: str | None,
        now: float,
        status: HandoffStatus | None = None,
        error: str | None = None,
    ) -> None:
        """Record the end of a handoff, unless it has ended before, and give back the slot of its target.

        Args:
            handoff_id: the id of the handoff; None is no handoff.
            now: the time, in seconds of ``RunConfig.clock``.
            status: its status from now on; None keeps the one that it has.
            error: how it failed.
        """
        self._release(handoff_id)
        for place, one in enumerate(self.records):
            if one.id != handoff_id or one.ended is not None:
                continue
            status_now = one.status if status is None else one.status.to(status, one.id)
            usage = self.spent.get(one.id)
            given: dict[str, Any] = {**vars(one), "status": status_now, "error": error}
            given |= {"ended": now, "usage": usage}
            self.records[place] = HandoffRecord(**given)
            if self.is_streamed:
                self.events.append(_completed(self.records[place]))

    def close_all(self, now: float, status: HandoffStatus | None = None, error: str | None = None) -> None:
        """Record the end of all handoffs that have not ended, and give back all slots. Safe to call twice."""
        for handoff_id in [one.id for one in self.records if one.ended is None]:
            self.close(handoff_id, now, status, error)
        for handoff_id in [*self.slots]:
            self._release(handoff_id)

    def hold(self, handoff_id: str, slot: Slot | None) -> None:
        """Hold a capacity slot for the target of a handoff."""
        if slot is not None:
            self.slots[handoff_id] = slot

    def _release(self, handoff_id: str | None) -> None:
        """Give back the slot of a handoff, if it holds one. Safe to call twice."""
        if handoff_id is not None and (slot := self.slots.pop(handoff_id, None)) is not None:
            slot.release()


def _completed(record: HandoffRecord) -> HandoffCompleted:
    return HandoffCompleted(
        source=record.source,
        target=record.target,
        call_id=record.call_id,
        status=record.status,
        error=record.error,
    )
