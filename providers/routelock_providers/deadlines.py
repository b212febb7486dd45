"""Deadlines around single awaits. A vendor's own timeout is per read: a trickle never ends for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import inf
from typing import TypeVar

import anyio

from routelock.errors import ConfigError, ProviderTimeout

__all__ = ["AsyncioDeadline", "Deadline", "check_seconds", "deadline_for"]


T = TypeVar("T")


def check_seconds(**limits: float | None) -> None:
    """Refuse limits that end before they begin.

    Raises:
        ConfigError: names the argument.
    """
    for name, seconds in limits.items():
        if seconds is not None and seconds <= 0:
            raise ConfigError(f"{name} must be more than 0 seconds, or None for no limit, not {seconds}.")


class Deadline:
    """The time that one call has: all of it together, and each piece of its reply.

    Only waiting for the vendor counts, not what the reader of a stream does in between.

    Args:
        total: seconds for the whole call; None for no limit.
        gap: seconds between one piece of a streamed reply and the next; None for no limit. It does not
            hold for the first piece, for which a model may think as long as the call may last.
        provider: who is waited for.
        model: the model that was asked.
    """

    def __init__(self, total: float | None, gap: float | None, *, provider: str, model: str) -> None:
        self._total, self._gap = total, gap
        self._provider, self._model = provider, model
        self._waited = 0.0

    def first(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await what begins the reply, or is all of it.

        Raises:
            ProviderTimeout: the time of the whole call is over.
        """
        return self._within(self._left(), call, self._on_the_whole)

    def next(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await one more piece.

        Raises:
            ProviderTimeout: the piece, or the whole call, took too long.
        """
        left = self._left()
        if self._gap is None or (left is not None and left < self._gap):
            return self._within(left, call, self._on_the_whole)
        return self._within(self._gap, call, self._in_between)

    def close(self) -> None:
        """Leave nothing behind on the event loop. The call is over."""

    def _left(self) -> float | None:
        return None if self._total is None else self._total - self._waited

    async def _within(
        self, seconds: float | None, call: Callable[[], Awaitable[T]], late: Callable[[], ProviderTimeout]
    ) -> T:
        began = anyio.current_time()
        with anyio.move_on_after(seconds):
            try:
                return await call()
            finally:
                self._waited += anyio.current_time() - began
        raise late()

    def _on_the_whole(self) -> ProviderTimeout:
        return self._late(f"within {self._total:g} s")

    def _in_between(self) -> ProviderTimeout:
        return self._late(f"for {self._gap:g} s in the middle of its reply")

    def _late(self, how_long: str) -> ProviderTimeout:
        return ProviderTimeout(
            f"{self._provider or 'The provider'} did not answer {how_long} (model {self._model!r}). "
            "Raise timeout= or chunk_timeout= if it may take longer.",
            provider=self._provider,
            model=self._model,
        )


class AsyncioDeadline(Deadline):
    """The same on asyncio alone, for a fraction of the time: it is set for every piece that is waited for.

    What `asyncio.timeout` does, without the object that does it, and with one timer for all the waits of a
    call: a wait that ends in time leaves it set, for the next one.
    """

    _due = inf
    """When the present wait has to be over, on the clock of the loop; infinite when there is none."""
    _rings_at = inf
    """When the timer is set for; infinite when it is not."""
    _timer: asyncio.TimerHandle | None = None
    _task: asyncio.Task[object] | None = None
    _rang = False

    async def _within(
        self, seconds: float | None, call: Callable[[], Awaitable[T]], late: Callable[[], ProviderTimeout]
    ) -> T:
        if seconds is None:
            return await call()
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        began, cancelled_before = loop.time(), task.cancelling()
        self._task, self._due = task, began + seconds
        if self._rings_at > self._due:
            self._set(loop)
        try:
            return await call()
        except asyncio.CancelledError as error:
            if self._rang and task.cancelling() <= cancelled_before + 1:
                raise late() from error
            raise
        finally:
            self._task, self._due = None, inf
            if self._rang:  # also if a library made something else of it, or nothing
                self._rang = False
                task.uncancel()
            self._waited += loop.time() - began

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        self._rings_at = self._due
        # in no context: that of the call would be kept until then
        self._timer = loop.call_at(self._due, self._ring, loop, context=Context())

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._rings_at = None, inf
        if loop.time() < self._due < inf:
            self._set(loop)  # for another wait, which has more time
        elif self._task is not None:
            self._due, self._rang = inf, True
            self._task.cancel()

    def close(self) -> None:
        """Leave nothing of the call behind on the event loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._rings_at = None, inf


def deadline_for(total: float | None, gap: float | None, *, provider: str, model: str) -> Deadline:
    """Return the deadline of a call for the event loop that goes on. Close it.

    Args:
        total: see `Deadline`, as all but the last.
        gap: likewise.
        provider: likewise.
        model: likewise.
    """
    try:
        on_asyncio = asyncio.current_task() is not None
    except RuntimeError:  # the loop is none of asyncio's
        on_asyncio = False
    return (AsyncioDeadline if on_asyncio else Deadline)(total, gap, provider=provider, model=model)
