"""Waiting for what other processes and threads do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "until"]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for a minute at most."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - it happens where no event can be set
            await asyncio.sleep(0.02)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait in this thread until something holds, for a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not happen within a minute"
        time.sleep(0.01)
