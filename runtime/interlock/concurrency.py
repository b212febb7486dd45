"""Running several things at the same time, with one set of rules however many there are.

Each job runs in a copy of its caller's context variables, so what it sets is seen by nothing else. An
exception comes out as it is, never in a group of one; of several, the first in the order of the jobs comes
out, and the others are its notes.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from traceback import format_exception
from typing import Any, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

__all__ = ["in_context", "isolated", "open_group", "run_all"]

T = TypeVar("T")


def isolated(coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
    """Return what does the same in a copy of the context variables, within the caller's task.

    A task of its own would do that as well, and cost a turn of the event loop.
    """
    return in_context(copy_context(), coroutine)


@types.coroutine
def in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine in ``context``: what it sets stays there."""
    step: Callable[[Any], Any] = coroutine.send
    given: Any = None
    while True:
        try:
            out = context.run(step, given)
        except StopIteration as done:
            return cast("T", done.value)
        try:
            given = yield out
        except BaseException as error:  # a cancellation, for instance: it belongs where the await is
            step, given = coroutine.throw, error
        else:
            step = coroutine.send


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]], slots: anyio.Semaphore | None = None
) -> list[T]:
    """Run jobs at the same time and return what they return, in their order.

    A single job runs in the caller's own task.

    Args:
        jobs: what makes each coroutine.
        slots: if given, as many jobs run at a time as it has places; they get one in order.

    Raises:
        BaseException: what a job raised; the others are cancelled then.
    """
    if len(jobs) == 1:
        return [await isolated(jobs[0]())]
    results: dict[int, T] = {}
    raised: dict[int, BaseException] = {}

    async def run(place: int) -> None:
        try:
            results[place] = await jobs[place]()
        except BaseException as error:
            raised[place] = error
            raise
        finally:
            if slots is not None:
                slots.release()

    async with open_group(raised) as group:
        for place in range(len(jobs)):
            if slots is not None:
                await slots.acquire()
            group.start_soon(run, place)
    return [results[place] for place in range(len(jobs))]


@asynccontextmanager
async def open_group(raised: dict[int, BaseException] | None = None) -> AsyncGenerator[TaskGroup]:
    """Open a task group out of which exceptions come as themselves.

    Args:
        raised: what tasks raised, by their place in the order that counts; tasks fill it in.

    Raises:
        BaseException: the first of what was raised, with the others as its notes.
    """
    try:
        async with anyio.create_task_group() as group:
            yield group
    except BaseExceptionGroup as several:
        error = _first_of(several, raised or {})
    else:
        return
    raise error


def _first_of(several: BaseExceptionGroup[BaseException], raised: dict[int, BaseException]) -> BaseException:
    cancelled = anyio.get_cancelled_exc_class()
    of_tasks = [error for _, error in sorted(raised.items()) if not isinstance(error, cancelled)]
    known = set(map(id, of_tasks))
    # a group that a task raised itself is another object in this one: trio makes it anew
    of_owner = [
        each for each in several.exceptions if not (of_tasks and _is_group(each)) and id(each) not in known
    ]
    first, *others = *of_owner, *of_tasks
    for other in others:
        first.add_note("At the same time this was raised:\n" + "".join(format_exception(other)).rstrip())
    return first


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)
