"""Time limits for generators, without a cancel scope that is open while they yield."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

import anyio

__all__ = ["in_time"]


T = TypeVar("T")


async def in_time(events: AsyncGenerator[T], seconds: float, late: Exception) -> AsyncGenerator[T]:
    """Pass events on until their making has taken that long; what the reader does in between is free.

    The scope is a new one for each event: one around all of them would be open while we yield.

    Args:
        events: closed in the end.
        seconds: for all of them together.
        late: raised when the time is over.
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
