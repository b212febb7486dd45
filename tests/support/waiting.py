"""Waiting for what other processes and threads do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["until"]


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for a minute at most."""
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - nobody there can set an event here
            await asyncio.sleep(0.02)
