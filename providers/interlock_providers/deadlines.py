"""Deadlines around single awaits. A vendor's own timeout is per read: a trickle never ends for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from interlock.errors import ConfigError, ProviderTimeout

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

    What `asyncio.timeout` does, without the object that does it, and with one alarm for all pieces: it is set
    anew when it rings and nothing is due, and that is seldom.
    """

    _alarm: asyncio.TimerHandle | None = None
    _waits: asyncio.Task[object] | None = None
    _due = 0.0
    _rang = False

    async def _within(
        self, seconds: float | None, call: Callable[[], Awaitable[T]], late: Callable[[], ProviderTimeout]
    ) -> T:
        if seconds is None:
            return await call()
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        began, cancelled_before = loop.time(), task.cancelling()
        self._waits, self._due = task, began + seconds
        if self._alarm is None or self._alarm.when() > self._due:
            self._set(loop)
        try:
            return await call()
        except asyncio.CancelledError as error:
            if self._rang and task.cancelling() <= cancelled_before + 1:
                raise late() from error
            raise
        finally:
            self._waits = None
            if self._rang:  # also if a library made something else of it, or nothing
                self._rang = False
                task.uncancel()
            self._waited += loop.time() - began

    def close(self) -> None:
        """Leave nothing behind on the event loop, not even until the alarm would have rung."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        self._alarm = loop.call_at(self._due, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._alarm = None
        if self._waits is None:
            return  # the next wait sets it
        if loop.time() < self._due:
            self._set(loop)
            return
        self._rang = True
        self._waits.cancel()


def deadline_for(total: float | None, gap: float | None, *, provider: str, model: str) -> Deadline:
    """Return the deadline of a call for the event loop that goes on."""
    try:
        kind = Deadline if asyncio.current_task() is None else AsyncioDeadline
    except RuntimeError:  # it is none of asyncio's
        kind = Deadline
    return kind(total, gap, provider=provider, model=model)
