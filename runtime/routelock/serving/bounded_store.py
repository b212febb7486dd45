"""A store in memory, bounded in number, bytes and time."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["BoundedStore"]


K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Entry(Generic[V]):
    value: V
    size: int


class BoundedStore(Generic[K, V]):
    """Values by key. Expired values are dropped, and then the least recently used ones.

    Args:
        most: the largest number of values.
        size: most bytes of all values.
        ttl: seconds that a value is kept after it was put.
        clock: returns the time in seconds; replace it for tests.
        is_used: returns whether a value is in use, so that it must not be dropped.
    """

    def __init__(
        self,
        *,
        most: int,
        size: int,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
        is_used: Callable[[V], bool] = lambda _: False,
    ) -> None:
        self._most, self._size, self._ttl, self._clock, self._is_used = most, size, ttl, clock, is_used
        self._entries: OrderedDict[K, _Entry[V]] = OrderedDict()
        """Least recently used first."""
        self._ends: dict[K, float] = {}
        """When each value expires, the next one first: all are kept for the same time."""
        self._used = 0

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
        """Keep a value of so many bytes, and return what is dropped for it."""
        self.remove(key)
        self._entries[key] = _Entry(value, size)
        self._ends[key] = self._clock() + self._ttl
        self._used += size
        return self.drop()

    def remove(self, key: K) -> None:
        """Remove a value, if it is there."""
        if (entry := self._entries.pop(key, None)) is not None:
            self._used -= entry.size
            del self._ends[key]

    def drop(self) -> list[tuple[K, V]]:
        """Drop and return expired values, and then the least recently used ones until all bounds hold."""
        now = self._clock()
        expired = list(itertools.takewhile(lambda key: self._ends[key] <= now, self._ends))
        dropped = [self._dropped(key) for key in expired if not self._is_used(self._entries[key].value)]
        while len(self._entries) > self._most or self._used > self._size:
            unused = (key for key, entry in self._entries.items() if not self._is_used(entry.value))
            if (key := next(unused, None)) is None:
                break
            dropped.append(self._dropped(key))
        return dropped

    def _dropped(self, key: K) -> tuple[K, V]:
        value = self._entries[key].value
        self.remove(key)
        return key, value
