"""What the target of a transfer sees of a run's shared memory, and what of it comes back.

By default source and target share one dict, and nothing here is needed. With ``Handoff.share`` the target
has a dict of its own, with these keys alone. What it sets or deletes under them is set or deleted for the
source, too, once the target's work is done: they are shared. All else that it writes is its own, and is
gone then: it can neither read nor overwrite what it does not share.

A nested run that hands over with a payload goes on with a copy of the whole memory: there is one place for a
payload in it, and agents that are asked at the same time would write to that of each other. What it changed
comes back when it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from routelock.context import PAYLOAD_KEY
from routelock.records import dataclass

__all__ = ["Narrowed", "narrowed"]


@dataclass(frozen=True, slots=True)
class Narrowed:
    """One dict within another."""

    outer: dict[str, Any]
    inner: dict[str, Any]
    given: dict[str, Any]
    """What was in the inner one at the beginning."""
    keys: Sequence[str] | None
    """What is shared; None for everything."""

    def widened(self) -> dict[str, Any]:
        """Return the outer dict, with what changed of that which is shared.

        What did not change is left alone: others may have changed it in the meantime.
        """
        keys = {**self.given, **self.inner} if self.keys is None else self.keys
        for key in keys:
            if key == PAYLOAD_KEY or self.inner.get(key, self) is self.given.get(key, self):
                continue
            if key in self.inner:
                self.outer[key] = self.inner[key]
            else:
                self.outer.pop(key, None)
        return self.outer


def narrowed(memory: dict[str, Any], keys: Sequence[str] | None) -> Narrowed:
    """Return a dict of its own within a memory, with these keys of it; None for all.

    A payload is not withheld: it is for the target.
    """
    kept = memory if keys is None else (*keys, PAYLOAD_KEY)
    given = {key: memory[key] for key in kept if key in memory}
    return Narrowed(memory, dict(given), given, None if keys is None else tuple(keys))
