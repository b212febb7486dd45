"""Event loops on which waiting takes no time: when nothing else happens, it is that time already.

A test that is marked ``virtual_time`` runs on them. A timeout ends after all that does not wait, however slow
the machine is, and takes no time itself. It is not for tests with threads (a sync tool runs in one),
connections or other processes: while those are at work nothing seems to happen.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import trio.testing

__all__ = ["JumpingLoop", "clock", "virtual_backends"]


class _Jumping(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's, in virtual time."""

    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    def time(self) -> float:
        """Return what time it is by now."""
        return self.jumping.now


def clock() -> trio.testing.MockClock:
    """Return virtual time for trio."""
    return trio.testing.MockClock(autojump_threshold=0)


def virtual_backends() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what ``anyio_backend`` is in virtual time, by the name of the library."""
    return {
        "asyncio": ("asyncio", {"loop_factory": JumpingLoop}),
        "trio": ("trio", {"clock": clock()}),
    }
