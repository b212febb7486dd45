"""Event loops on which waiting takes no time: when nothing else happens, it is that time already.

A test that is marked ``virtual_time`` runs on them. A timeout ends after all that does not wait, however slow
the machine is, and takes no time itself. It is not for tests with connections or other processes: while those
are at work nothing seems to happen. Nor is it for threads (a sync tool runs in one), except those of anyio
where the mark is ``virtual_time(threads=True)``; such a test runs on asyncio alone.
"""

from __future__ import annotations

import asyncio
import selectors
from functools import partial
from typing import Any

import anyio.to_thread
import trio.testing

__all__ = ["JumpingLoop", "clock", "virtual_backends"]

_LONGEST_WORK = 60.0
"""Seconds that a thread may be at work before its loop goes on in time."""


class _Jumping(selectors.DefaultSelector):
    def __init__(self, *, threads: bool) -> None:
        super().__init__()
        self.now = 0.0
        self._threads = threads

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(_LONGEST_WORK if self._threads and _threads_at_work() else 0)
        if not ready:
            self.now += timeout
        return ready


def _threads_at_work() -> int:
    return anyio.to_thread.current_default_thread_limiter().borrowed_tokens


class JumpingLoop(asyncio.SelectorEventLoop):
    """asyncio's, in virtual time.

    Args:
        threads: whether it waits for threads of anyio, which has to have started it then.
    """

    def __init__(self, *, threads: bool = False) -> None:
        self.jumping = _Jumping(threads=threads)
        super().__init__(self.jumping)

    def time(self) -> float:
        """Return what time it is by now."""
        return self.jumping.now


def clock() -> trio.testing.MockClock:
    """Return virtual time for trio."""
    return trio.testing.MockClock(autojump_threshold=0)


def virtual_backends(*, threads: bool = False) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return what ``anyio_backend`` is in virtual time, by the name of the library."""
    return {
        "asyncio": ("asyncio", {"loop_factory": partial(JumpingLoop, threads=threads)}),
        "trio": ("trio", {"clock": clock()}),
    }
