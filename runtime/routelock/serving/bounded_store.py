"""A store in memory, bounded in number, bytes and time."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from routelock.serving.config import ServeConfig
from routelock.state.document import write_document
from routelock.state.run_state import RunState

__all__ = ["BoundedStore", "Bounds", "bounds_of", "state_size"]


K = TypeVar("K", bound=tuple[Any, ...])
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a store."""

    most: int
    """The largest number of values."""
    size: int
    """Most bytes of all values."""
    ttl: float
    """Seconds that a value is kept after it was put."""
    clock: Callable[[], float] = time.monotonic
    """Returns the time in seconds; replace it for tests."""


def bounds_of(config: ServeConfig) -> Bounds:
    """Return the bounds of the stores of an app."""
    return Bounds(most=config.max_pending, size=config.pending_bytes, ttl=config.pending_ttl)


def state_size(state: RunState) -> int:
    """Return the bytes of the state of a run that waits, as JSON."""
    return len(json.dumps(write_document(state.document)))


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    size: int


class BoundedStore(Generic[K, V]):
    """Values by key, where a key is a tuple that begins with the name of the value's owner.

    Expired values are dropped first. Then the owner that has the most drops its least recently used value,
    so that no owner can push out the values of the others.

    Args:
        bounds: the bounds of number, bytes and time.
        is_used: returns whether a value is in use, so that it must not be dropped.
        is_held: returns whether a value outlives its time, and is dropped only if its owner has no other.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        is_used: Callable[[V], bool] = lambda _: False,
        is_held: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._bounds, self._is_used, self._is_held = bounds, is_used, is_held
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        """Least recently used first."""
        self._ends: dict[K, float] = {}
        """When each value expires, the next one first: all are kept for the same time."""
        self._counts, self._sizes = Counter[Any](), Counter[Any]()
        """The number of values, and their bytes, by owner."""
        self._used = 0
        """The bytes of all values."""

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return a value, or None. It becomes the most recently used one."""
        self.drop()
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key].value

    def put(self, key: K, value: V, size: int) -> list[tuple[K, V]]:
        """Keep a value, and return the values that are dropped for it.

        Args:
            key: the key of the value; its first part is the owner.
            value: the value.
            size: the bytes that the value counts as.
        """
        self.remove(key)
        self._entries[key] = _Entry(value, size)
        self._ends[key] = self._bounds.clock() + self._bounds.ttl
        self._counts[key[0]] += 1
        self._sizes[key[0]] += size
        self._used += size
        return self.drop(new=key)

    def touch(self, key: K) -> list[tuple[K, V]]:
        """Keep a value, if it is there, as if it were put now, and return the values that are dropped."""
        entry = self._entries.get(key)
        return self.drop() if entry is None else self.put(key, entry.value, entry.size)

    def remove(self, key: K) -> None:
        """Remove a value, if it is there."""
        if (entry := self._entries.pop(key, None)) is None:
            return
        del self._ends[key]
        self._counts[key[0]] -= 1
        self._sizes[key[0]] -= entry.size
        self._used -= entry.size
        if not self._counts[key[0]]:
            del self._counts[key[0]], self._sizes[key[0]]

    def drop(self, new: K | None = None) -> list[tuple[K, V]]:
        """Drop and return expired values, and then others until all bounds hold.

        Args:
            new: the key of a value that its owner drops last.
        """
        now = self._bounds.clock()
        expired = itertools.takewhile(lambda key: self._ends[key] <= now, self._ends)
        dropped = [self._dropped(key) for key in [*expired] if not self._is_busy(self._entries[key].value)]
        while (loads := self._exceeded()) is not None and (key := self._next_dropped(loads, new)) is not None:
            dropped.append(self._dropped(key))
        return dropped

    def _is_busy(self, value: V) -> bool:
        return self._is_used(value) or self._is_held(value)

    def _exceeded(self) -> Counter[Any] | None:
        """Return the number of values, or their bytes, by owner: those whose sum is too high; else None."""
        if len(self._entries) > self._bounds.most:
            return self._counts
        return self._sizes if self._used > self._bounds.size else None

    def _next_dropped(self, loads: Counter[Any], new: K | None) -> K | None:
        most = max(loads.values())
        for key, entry in self._entries.items():  # nearly always this ends soon: that owner has many
            if loads[key[0]] == most and key != new and not self._is_busy(entry.value):
                return key

        def order(key: K) -> tuple[int, bool, bool]:
            return (-loads[key[0]], key == new, self._is_held(self._entries[key].value))

        unused = [key for key, entry in self._entries.items() if not self._is_used(entry.value)]
        return min(unused, key=order, default=None)

    def _dropped(self, key: K) -> tuple[K, V]:
        value = self._entries[key].value
        self.remove(key)
        return key, value
