"""Waiting for what other processes and threads do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["PATIENCE", "eventually", "until"]


PATIENCE = 300.0
"""Seconds after which a test that waits gives up. The most that was seen is 120, on a machine with ten times
the work that it can do."""


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for ``PATIENCE`` at most."""
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - it happens where no event can be set
            await asyncio.sleep(0.02)


def eventually(holds: Callable[[], bool]) -> None:
    """Wait in this thread until something holds, for ``PATIENCE`` at most."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {PATIENCE:g} s"
        time.sleep(0.01)
