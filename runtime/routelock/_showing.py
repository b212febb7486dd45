"""How a coroutine shows events to whoever reads them, without a queue or a second task.

An async generator that passes on what another one yields costs a hop for each event and each layer, and
every layer has to close the next. So the loop is a plain coroutine: deep inside, `show` suspends it with an
event, and `shown_by` carries it from one event to the next, at the pace of its reader and within the
reader's own task. What the event loop has to see, the things that are truly awaited, passes through.

This is what Python does for async generators, but for any depth. The rules are theirs as well: nothing is
shown while a task group or a cancel scope is open, and leaving early ends the coroutine where it stands.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["show", "show_all", "shown_by"]


T = TypeVar("T")


class _ReaderLeft(BaseException):
    """Ends a coroutine where it showed its last event. `GeneratorExit` would not do: thrown into a coroutine,
    Python makes it a ``close()`` of all it awaits, which leaves no time to await anything in the end.
    """


class _Shown(Generic[T]):
    """What passes up through the awaiting frames, where a future of the event loop passes otherwise."""

    __slots__ = ("event",)

    def __init__(self, event: T) -> None:
        self.event = event


@types.coroutine
def show(event: object) -> Generator[Any, Any, None]:
    """Let whoever reads `shown_by` have this event, and go on when the next one is asked for."""
    yield _Shown(event)


async def show_all(events: Iterable[object]) -> None:
    """Show several, in order."""
    for event in events:
        await show(event)


async def shown_by(start: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[Any]:
    """Yield what a coroutine shows, until it ends.

    Args:
        start: makes the coroutine; called when the first event is asked for.

    Raises:
        BaseException: what the coroutine raises.
    """
    coroutine = start()
    while (shown := await _next(coroutine, coroutine.send, None)) is not None:
        try:
            yield shown.event
        except BaseException:  # the reader has left
            await _close(coroutine)
            raise


async def _close(coroutine: Coroutine[Any, Any, None]) -> None:
    """End a coroutine where it stands, and let it await what it needs for that."""
    try:
        shown = await _next(coroutine, coroutine.throw, _ReaderLeft())
    except _ReaderLeft:
        return
    if shown is not None:
        raise RuntimeError("an event was shown by what had been told to end")


@types.coroutine
def _next(
    coroutine: Coroutine[Any, Any, None], step: Callable[[Any], Any], given: Any
) -> Generator[Any, Any, _Shown[Any] | None]:
    """Carry a coroutine on until it shows something; return None when it has ended."""
    while True:
        try:
            out = step(given)
        except StopIteration:
            return None
        if out.__class__ is _Shown:
            return out  # pyright: ignore[reportUnknownVariableType]
        try:
            given = yield out
        except BaseException as error:  # a cancellation, for instance: it belongs where the await is
            step, given = coroutine.throw, error
        else:
            step = coroutine.send
