"""Time limits for async generators, without a cancel scope that is open while they yield."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import anyio

__all__ = ["in_time"]


T = TypeVar("T")


async def in_time(events: AsyncGenerator[T], seconds: float, late: Exception) -> AsyncGenerator[T]:
    """Yield events until the time limit; the time that the reader takes does not count.

    Each event has a cancel scope of its own, because one for all events would be open during a yield.

    Args:
        events: the events; the generator is closed at the end.
        seconds: time limit for all events together.
        late: error to raise at the time limit.
    """
    left, nothing = seconds, object()
    async with aclosing(events):
        while True:
            since = anyio.current_time()
            event: T | object = nothing
            with anyio.move_on_after(max(0.0, left)) as scope:
                event = await anext(events, nothing)
            if scope.cancelled_caught:
                raise late
            if event is nothing:
                return
            left -= anyio.current_time() - since
            yield event  # type: ignore[misc]
