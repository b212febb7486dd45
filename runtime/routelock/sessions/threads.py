"""Calling what blocks, from any event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio.to_thread

__all__ = ["in_thread"]

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread.

    Whoever is cancelled does not wait for the thread: what it stores may be there afterwards, or not.
    """
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
