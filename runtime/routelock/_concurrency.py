"""Runs jobs and calls functions of the app concurrently, with the same rules for one and for many.

Each job runs in a copy of the caller's context variables, so the variables it sets stay inside it. An
exception is raised as it is, never in a group. If several jobs raise, the exception of the first of them is
raised, with the others as its notes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable, iscoroutine
from traceback import format_exception
from typing import Any, Generic, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from routelock._callables import MaybeAwaitable, callback_errors, resolve
from routelock._isolation import in_context, isolated

__all__ = [
    "Question",
    "ask_all",
    "call_in_time",
    "in_time",
    "open_group",
    "run_all",
]


T = TypeVar("T")


async def run_all(
    jobs: Sequence[Callable[[], Coroutine[Any, Any, T]]],
    before: Callable[[int], Awaitable[None]] | None = None,
) -> list[T]:
    """Run jobs concurrently and return their results, in the order of the jobs.

    A single job runs in the caller's own task.

    Args:
        jobs: functions that return the coroutines.
        before: awaited with the index of each job, in order, before the job starts; it may delay the job.

    Raises:
        BaseException: a job raised it; the other jobs are cancelled.
    """
    if len(jobs) == 1:
        if before is not None:
            await before(0)
        return [await isolated(jobs[0]())]
    results: dict[int, T] = {}
    raised: dict[int, BaseException] = {}

    async def run(index: int) -> None:
        try:
            results[index] = await jobs[index]()
        except BaseException as error:
            raised[index] = error
            raise

    async with open_group(raised) as group:
        for index in range(len(jobs)):
            if before is not None:
                await before(index)
            group.start_soon(run, index)
    return [results[index] for index in range(len(jobs))]


async def call_in_time(call: Callable[[], Awaitable[T]], seconds: float, late: Callable[[], Exception]) -> T:
    """Await a call and return its result, or raise an error if it takes too long.

    Args:
        call: returns the awaitable.
        seconds: the time limit.
        late: makes the error that is raised when the limit has passed. The call is cancelled then.
    """
    with anyio.move_on_after(seconds):
        return await call()
    raise late()


async def in_time(events: AsyncGenerator[T], seconds: float, late: Exception) -> AsyncGenerator[T]:
    """Yield events until the time limit; the time that the reader takes does not count.

    Each event has a cancel scope of its own, because one for all events would be open during a yield.

    Args:
        events: the events; the generator is closed at the end.
        seconds: the time limit for all events together.
        late: the error that is raised when the limit has passed.
    """
    nothing = object()
    async with aclosing(events):
        while True:
            since = anyio.current_time()
            event = await call_in_time(lambda: anext(events, nothing), seconds, lambda: late)
            if event is nothing:
                return
            seconds -= anyio.current_time() - since
            yield cast("T", event)


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One function of the app to call, for `ask_all`."""

    whose: str
    """Names the function in errors, such as ``"The is_enabled function of tool 'x'"``."""
    ask: Callable[[], MaybeAwaitable[Any]]
    """Calls the function."""
    read: Callable[[Any], T]
    """Turns the result of the function into the answer; an exception ends `ask_all`."""

    async def later(self, context: Context, found: Awaitable[Any]) -> T:
        """Return the answer of an async function."""
        with callback_errors(self.whose):
            return self.read(await in_context(context, resolve(found)))


async def ask_all(questions: Sequence[Question[T]]) -> list[T]:
    """Call functions of the app concurrently, and return their answers in the order of the questions.

    A sync function returns before the next function is called.

    Raises:
        CallbackError: a function raised. Functions that are still running are cancelled.
        Exception: `Question.read` raised it. Of several errors the first in the order of the questions is
            raised.
    """
    answers: dict[int, T] = {}
    awaited: dict[int, Awaitable[Any]] = {}
    jobs: list[Callable[[], Coroutine[Any, Any, T]]] = []
    try:
        for index, question in enumerate(questions):
            context = copy_context()
            with callback_errors(question.whose):
                found = context.run(question.ask)
                if not isawaitable(found):
                    answers[index] = question.read(found)
                    continue
            awaited[index] = found
            jobs.append(partial(question.later, context, found))
    except BaseException:
        for each in awaited.values():
            if iscoroutine(each):
                each.close()  # this coroutine never started
        raise
    if jobs:
        answers |= zip(awaited, await run_all(jobs), strict=True)
    return [answers[index] for index in range(len(questions))]


@asynccontextmanager
async def open_group(raised: dict[int, BaseException] | None = None) -> AsyncGenerator[TaskGroup]:
    """Open a task group that raises single exceptions instead of exception groups.

    Args:
        raised: the exception of each failed task by the task's position in the order; the tasks fill it in.

    Raises:
        BaseException: the first exception, with the others as its notes.
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
    # trio rebuilds an exception group that a task raised, so the object is not the one in `raised`
    of_owner = [
        each for each in several.exceptions if not (of_tasks and _is_group(each)) and id(each) not in known
    ]
    first, *others = *of_owner, *of_tasks
    for other in others:
        first.add_note("At the same time this was raised:\n" + "".join(format_exception(other)).rstrip())
    return first


def _is_group(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup)
