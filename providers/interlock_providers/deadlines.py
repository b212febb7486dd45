"""Deadlines around single awaits. A vendor's own timeout is per read: a trickle never ends for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from math import inf
from typing import TypeVar

import anyio

from interlock.errors import ConfigError, ProviderTimeout

__all__ = ["Alarm", "Alarms", "AsyncioDeadline", "Deadline", "check_seconds", "deadline_for"]

T = TypeVar("T")

_LONGEST = 15.0
"""Seconds for which an alarm is set; as long as aiohttp keeps a connection that nobody uses."""


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

    What `asyncio.timeout` does, without the object that does it, and without an alarm of its own.

    Args:
        total: see `Deadline`, as all but the last.
        gap: likewise.
        provider: likewise.
        model: likewise.
        alarm: rings for it.
    """

    def __init__(
        self, total: float | None, gap: float | None, *, provider: str, model: str, alarm: Alarm
    ) -> None:
        super().__init__(total, gap, provider=provider, model=model)
        self.due = inf
        """When the present wait has to be over, on the clock of the loop; infinite when there is none."""
        self._alarm = alarm
        self._task: asyncio.Task[object] | None = None
        self._rang = False
        alarm.calls.add(self)

    async def _within(
        self, seconds: float | None, call: Callable[[], Awaitable[T]], late: Callable[[], ProviderTimeout]
    ) -> T:
        if seconds is None:
            return await call()
        alarm, task = self._alarm, asyncio.current_task()
        assert task is not None
        began, cancelled_before = alarm.loop.time(), task.cancelling()
        self._task, self.due = task, began + seconds
        if alarm.rings_at > self.due:
            alarm.set(began, self.due)
        try:
            return await call()
        except asyncio.CancelledError as error:
            if self._rang and task.cancelling() <= cancelled_before + 1:
                raise late() from error
            raise
        finally:
            self._task, self.due = None, inf
            if self._rang:  # also if a library made something else of it, or nothing
                self._rang = False
                task.uncancel()
            self._waited += alarm.loop.time() - began

    def ring(self) -> None:
        """End the wait: its time is over."""
        assert self._task is not None
        self.due, self._rang = inf, True
        self._task.cancel()

    def close(self) -> None:
        """Leave nothing of the call behind on the event loop."""
        self._alarm.forget(self)


class Alarm:
    """Rings for all calls of a handler on one event loop.

    It may stay set for some seconds when the last of them is over, so that the next need not set it: to set
    one and to call it off for every call was a fortieth of the instructions of a call.

    Args:
        loop: rings.
        stays: whether it does; else it is of one call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, stays: bool = False) -> None:
        self.loop = loop
        self.rings_at = inf
        """When it rings at the latest, on the clock of the loop; infinite when it is not set."""
        self.calls: set[AsyncioDeadline] = set()
        """Those that are under way."""
        self._stays = stays
        self._handle: asyncio.TimerHandle | None = None

    def set(self, now: float, due: float) -> None:
        """Ring then, or after `_LONGEST`, to see what is due by then."""
        self._unset()
        self.rings_at = min(due, now + _LONGEST)
        # in no call's context: that would be kept as long as this is set
        self._handle = self.loop.call_at(self.rings_at, self._ring, context=Context())

    def forget(self, call: AsyncioDeadline) -> None:
        """Note that a call is over."""
        self.calls.discard(call)
        if not (self._stays or self.calls):
            self._unset()

    def close(self) -> None:
        """Stay set no longer than there are calls."""
        self._stays = False
        if not self.calls:
            self._unset()

    def _unset(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self.rings_at = None, inf

    def _ring(self) -> None:
        self._handle, self.rings_at = None, inf
        now = self.loop.time()
        for call in self.calls:
            if call.due <= now:
                call.ring()
        if (due := min((call.due for call in self.calls), default=inf)) < inf:
            self.set(now, due)


class Alarms:
    """The alarms of a handler, one per event loop that it is used on."""

    def __init__(self) -> None:
        self._of: dict[asyncio.AbstractEventLoop, Alarm] = {}

    def on(self, loop: asyncio.AbstractEventLoop) -> Alarm:
        """Return the one of an event loop."""
        return self._of.get(loop) or self._made(loop)

    def close(self) -> None:
        """Leave nothing behind on the running event loop, if it is asyncio's. No call loses its time."""
        with suppress(RuntimeError):
            if (alarm := self._of.pop(asyncio.get_running_loop(), None)) is not None:
                alarm.close()

    def _made(self, loop: asyncio.AbstractEventLoop) -> Alarm:
        for ended in [each for each in tuple(self._of) if each.is_closed()]:
            self._of.pop(ended, None)
        alarm = self._of[loop] = Alarm(loop, stays=True)
        return alarm


def deadline_for(
    total: float | None, gap: float | None, *, provider: str, model: str, alarms: Alarms | None = None
) -> Deadline:
    """Return the deadline of a call for the event loop that goes on. Close it.

    Args:
        total: see `Deadline`, as all but the last.
        gap: likewise.
        provider: likewise.
        model: likewise.
        alarms: of the handler, if it has any: they ring on asyncio.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the loop is none of asyncio's
        task = None
    if task is None:
        return Deadline(total, gap, provider=provider, model=model)
    alarm = Alarm(task.get_loop()) if alarms is None else alarms.on(task.get_loop())
    return AsyncioDeadline(total, gap, provider=provider, model=model, alarm=alarm)
