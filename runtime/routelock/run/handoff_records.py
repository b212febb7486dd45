"""The handoff records of one run, the active handoff, and the shared memory that each may see."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from routelock.context import MemoryScope, scoped
from routelock.handoff_request import HandoffStatus
from routelock.run.config import RunConfig
from routelock.run.events import HandoffCompleted
from routelock.run.result import (
    HandoffRecord,
)
from routelock.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from routelock.tracing.recorder import Recorder

__all__ = ["Hops"]


@dataclass(slots=True, kw_only=True)
class Hops:
    """The transfers of one run while it goes on."""

    run_id: str
    config: RunConfig
    tracing: Recorder | None = field(default=None, init=False)
    """Is told what happens, see ``RunConfig.trace``."""
    handoffs: list[HandoffRecord] = field(default_factory=list[HandoffRecord])
    open_handoff: str | None = field(default=None, init=False)
    """Id of the transfer that put whoever speaks in charge."""
    spent: dict[str, Usage] = field(default_factory=dict[str, Usage], init=False)
    """What each transfer's target consumed, by its id: whatever the run counts while it is in charge."""
    shared_memory: dict[str, Any] = field(default_factory=dict[str, Any])
    """What whoever speaks sees of it, see ``Handoff.share``."""
    narrowings: tuple[MemoryScope, ...] = field(default=(), init=False)
    """Those that made it what it is, the newest last."""
    closed: tuple[HandoffRecord, ...] = field(default=(), init=False)
    """Of transfers whose end was not shown yet."""

    parted: tuple[Sequence[MemoryScope], Any] | None = field(default=None, init=False)
    """The narrowings and the payload that the end of the run did away with; its state needs them."""

    def next_handoff_id(self) -> str:
        """Return the id of the next transfer: the same whenever the run is replayed."""
        return f"h-{self.run_id}-{len(self.handoffs) + 1}"

    def open_record(self, handoff_id: str, *, waits: bool) -> None:
        """Let this transfer be what puts whoever speaks in charge; who spoke before is done, or waits."""
        if not waits:
            self.close_record(HandoffStatus.COMPLETED)
        self.open_handoff, self.spent[handoff_id] = handoff_id, NO_USAGE

    def close_record(self, status: HandoffStatus | None = None, error: str | None = None) -> None:
        """Put on record how the work of whoever speaks ended."""
        if self.open_handoff is not None:
            self.close_records([self.open_handoff], status, error)
            self.open_handoff = None

    def close_records(
        self, ids: Collection[str | None], status: HandoffStatus | None = None, error: str | None = None
    ) -> None:
        """Put on record how these transfers ended, as far as they have not; with no status as they stand."""
        for place, one in enumerate(self.handoffs):
            if one.id in ids and one.ended is None:
                self.handoffs[place] = replace(
                    one,
                    status=one.status if status is None else one.status.to(status, one.id),
                    error=error,
                    ended=self.config.clock(),
                    usage=self.spent.get(one.id),
                )
                self.closed += (self.handoffs[place],)

    def take_completed(self) -> list[HandoffCompleted]:
        """Return an event for each transfer that has ended since this was last asked."""
        if not self.closed:
            return []
        closed, self.closed = self.closed, ()
        return [
            HandoffCompleted(
                source=one.source, target=one.target, call_id=one.call_id, status=one.status, error=one.error
            )
            for one in closed
        ]

    def narrow(self, keys: Sequence[str] | None) -> None:
        """Let whoever speaks next see a memory of its own, see `routelock.context`."""
        narrowing = scoped(self.shared_memory, keys)
        self.narrowings += (narrowing,)
        self.shared_memory = narrowing.inner

    def widen(self, level: int = 0) -> None:
        """Go back to the memory of when there were so many narrowings, with what was shared as it is now."""
        while len(self.narrowings) > level:
            *outer, last = self.narrowings
            self.narrowings, self.shared_memory = tuple(outer), last.widened()
