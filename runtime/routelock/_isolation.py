"""Runs coroutines and generators in a copy of the context variables, within the caller's task."""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

__all__ = ["in_context", "isolated", "isolated_events"]


T = TypeVar("T")


def isolated(coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """Return an awaitable that runs the coroutine in a copy of the context variables, in the caller's task.

    A new task would do the same and cost a turn of the event loop.
    """
    return in_context(copy_context(), coroutine)


@types.coroutine
def in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine in ``context``: the variables it sets stay there."""
    step: Callable[[Any], Any] = coroutine.send
    given: Any = None
    while True:
        try:
            out = context.run(step, given)
        except StopIteration as done:
            return cast("T", done.value)
        try:
            given = yield out
        except BaseException as error:  # a cancellation, for example, must be raised at the await
            step, given = coroutine.throw, error
        else:
            step = coroutine.send


async def isolated_events(events: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yield the same events, each made in a copy of the context variables, within the caller's task."""
    context, nothing = copy_context(), object()

    async def next_event() -> T | object:
        return await anext(events, nothing)

    async def close() -> None:
        await events.aclose()

    try:
        while (event := await in_context(context, next_event())) is not nothing:
            yield cast("T", event)
    finally:
        await in_context(context, close())
