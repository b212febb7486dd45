"""The handoffs of one run: their records, what each target consumed, and the capacity slots of targets."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import Slot
from routelock.run.events import HandoffCompleted
from routelock.run.result import HandoffRecord
from routelock.usage import NO_USAGE, Usage

__all__ = ["HandoffLog"]


@dataclass(slots=True, eq=False)
class HandoffLog:
    """The handoffs of one run."""

    run_id: str
    records: list[HandoffRecord] = field(default_factory=lambda: [])
    spent: dict[str, Usage] = field(default_factory=lambda: {})
    """What each target has consumed, by the id of its handoff."""
    slots: dict[str, Slot] = field(default_factory=lambda: {})
    """The capacity slots that targets hold, by the id of their handoff; see ``RunConfig.capacity``."""
    completed: list[HandoffCompleted] = field(default_factory=lambda: [])
    """Events that were not yielded yet."""

    def next_id(self) -> str:
        """Return the id of the next handoff; it is the same when the run is replayed."""
        return f"h-{self.run_id}-{len(self.records) + 1}"

    def get(self, handoff_id: str | None) -> HandoffRecord | None:
        """Return the record of a handoff."""
        return next((one for one in reversed(self.records) if one.id == handoff_id), None)

    def begin(self, handoff_id: str) -> None:
        """Begin to count what the target of this handoff consumes."""
        self.spent[handoff_id] = NO_USAGE

    def count(self, usage: Usage, handoff_id: str | None) -> None:
        """Add usage to the handoff that made the active agent active; None is no handoff."""
        if handoff_id is not None:
            self.spent[handoff_id] += usage

    def close(
        self,
        ids: Collection[str | None],
        now: float,
        status: HandoffStatus | None = None,
        error: str | None = None,
    ) -> None:
        """Record the end of these handoffs, except those that have ended before.

        Args:
            ids: the ids of the handoffs; None is no handoff.
            now: the time, in seconds of ``RunConfig.clock``.
            status: the status of each from now on; None keeps the one it has.
            error: how they failed.
        """
        for place, one in enumerate(self.records):
            if one.id not in ids or one.ended is not None:
                continue
            status_now = one.status if status is None else one.status.to(status, one.id)
            usage = self.spent.get(one.id)
            self.records[place] = replace(one, status=status_now, error=error, ended=now, usage=usage)
            self.completed.append(
                HandoffCompleted(
                    source=one.source, target=one.target, call_id=one.call_id, status=status_now, error=error
                )
            )

    def take_completed(self) -> list[HandoffCompleted]:
        """Return an event for each handoff that has ended since this was last called."""
        completed, self.completed = self.completed, []
        return completed

    def hold(self, handoff_id: str, slot: Slot | None) -> None:
        """Hold a capacity slot for the target of a handoff."""
        if slot is not None:
            self.slots[handoff_id] = slot

    def release(self, handoff_id: str | None) -> None:
        """Give back the slot of a handoff, if it holds one. Safe to call twice."""
        if handoff_id is not None and (slot := self.slots.pop(handoff_id, None)) is not None:
            slot.release()

    def release_all(self) -> None:
        """Give back all slots. Safe to call twice."""
        for handoff_id in [*self.slots]:
            self.release(handoff_id)
