"""Time limits of a call to a vendor: `Deadline` on any event loop, `AsyncioDeadline` on asyncio.

A vendor library's timeout counts from read to read, so a slow trickle never ends. `AsyncioDeadline` exists
because a limit is set for every piece of a stream: per piece, an anyio scope costs 8 µs, `asyncio.timeout`
4.4 µs and `AsyncioDeadline` 0.9 µs. Reading the piece costs 5.5 µs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from math import inf
from typing import TypeVar, cast

import anyio

from routelock.errors import ConfigError, ProviderTimeout

__all__ = ["AsyncioDeadline", "Deadline", "check_seconds", "deadline_for"]


T = TypeVar("T")


def check_seconds(*, timeout: float | None = None, chunk_timeout: float | None = None) -> None:
    """Check that time limits are more than 0 seconds, or None.

    Args:
        timeout: the handler's argument of that name, in seconds.
        chunk_timeout: the handler's argument of that name, in seconds.

    Raises:
        ConfigError: a limit is no number, or 0 or less; the message names it.
    """
    for name, seconds in (("timeout", timeout), ("chunk_timeout", chunk_timeout)):
        is_number = isinstance(cast(object, seconds), int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and seconds > 0):
            raise ConfigError(
                f"{name} must be more than 0 seconds, or None for no limit, not {seconds!r:.80}."
            )


class Deadline:
    """Limits the time of one call: in all, and between the pieces of its reply.

    Only the time spent waiting for the vendor counts, not that of the code that reads a stream.

    Args:
        total: seconds for the whole call; None for no limit.
        gap: seconds between two pieces of a streamed reply; None for no limit. The first piece has no such
            limit, because a model may think before it.
        provider: the vendor, for errors.
        model: the model, for errors.
    """

    def __init__(self, total: float | None, gap: float | None, *, provider: str, model: str) -> None:
        self._total, self._gap = total, gap
        self._provider, self._model = provider, model
        self._waited = 0.0

    def first(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await the first piece of the reply, or the whole reply.

        Raises:
            ProviderTimeout: the call took longer than ``total``.
        """
        return self._limit(self._left(), call, self._total_timeout)

    def next(self, call: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Await the next piece.

        Raises:
            ProviderTimeout: the piece took longer than ``gap``, or the call longer than ``total``.
        """
        left = self._left()
        if self._gap is None or (left is not None and left < self._gap):
            return self._limit(left, call, self._total_timeout)
        return self._limit(self._gap, call, self._gap_timeout)

    def close(self) -> None:
        """Remove the timer from the event loop. The call is over."""

    def _left(self) -> float | None:
        return None if self._total is None else self._total - self._waited

    async def _limit(
        self,
        seconds: float | None,
        call: Callable[[], Awaitable[T]],
        timed_out: Callable[[], ProviderTimeout],
    ) -> T:
        began = anyio.current_time()
        with anyio.move_on_after(seconds):
            try:
                return await call()
            finally:
                self._waited += anyio.current_time() - began
        raise timed_out()

    def _total_timeout(self) -> ProviderTimeout:
        return self._timeout(f"within {self._total:g} s")

    def _gap_timeout(self) -> ProviderTimeout:
        return self._timeout(f"for {self._gap:g} s in the middle of its reply")

    def _timeout(self, how_long: str) -> ProviderTimeout:
        return ProviderTimeout(
            f"{self._provider or 'The provider'} did not answer {how_long} (model {self._model!r}). "
            "Raise timeout= or chunk_timeout= if it may take longer.",
            provider=self._provider,
            model=self._model,
        )


class AsyncioDeadline(Deadline):
    """A `Deadline` on asyncio, with one timer for all the waits of a call.

    A wait that ends in time leaves the timer set for the next one.
    """

    _due = inf
    """The end of the current wait on the clock of the loop; infinite if there is none."""
    _fires_at = inf
    """When the timer fires; infinite if it is not set."""
    _timer: asyncio.TimerHandle | None = None
    _task: asyncio.Task[object] | None = None
    _fired = False
    """Whether the timer cancelled the task."""

    async def _limit(
        self,
        seconds: float | None,
        call: Callable[[], Awaitable[T]],
        timed_out: Callable[[], ProviderTimeout],
    ) -> T:
        if seconds is None:
            return await call()
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        began, cancelled_before = loop.time(), task.cancelling()
        self._task, self._due = task, began + seconds
        if self._fires_at > self._due:
            self._set(loop)
        try:
            return await call()
        except asyncio.CancelledError as error:
            if self._fired and task.cancelling() <= cancelled_before + 1:
                raise timed_out() from error
            raise
        finally:
            self._task, self._due = None, inf
            if self._fired:  # even if a library replaced or swallowed the cancellation
                self._fired = False
                task.uncancel()
            self._waited += loop.time() - began

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        self.close()
        self._fires_at = self._due
        # in an empty context: the timer would keep the context of the call alive
        self._timer = loop.call_at(self._due, self._fire, loop, context=Context())

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._fires_at = None, inf
        if loop.time() < self._due < inf:
            self._set(loop)  # the timer was set for an earlier wait
        elif self._task is not None:
            self._due, self._fired = inf, True
            self._task.cancel()

    def close(self) -> None:
        """Remove the timer from the event loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._fires_at = None, inf


def deadline_for(total: float | None, gap: float | None, *, provider: str, model: str) -> Deadline:
    """Return the deadline of a call for the running event loop. Close it after the call.

    Args:
        total: see `Deadline`.
        gap: see `Deadline`.
        provider: see `Deadline`.
        model: see `Deadline`.
    """
    try:
        on_asyncio = asyncio.current_task() is not None
    except RuntimeError:  # another event loop than asyncio's runs
        on_asyncio = False
    return (AsyncioDeadline if on_asyncio else Deadline)(total, gap, provider=provider, model=model)
