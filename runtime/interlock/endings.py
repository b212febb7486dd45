"""How a run ends that does not end well: with what there is, and an error or a result that carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from interlock.callables import resolve, users_code, words_of
from interlock.errors import HandlerError, InterlockError, LimitExceeded, RunTimeout
from interlock.handoff_request import HandoffStatus
from interlock.results import RunDone, RunEvent
from interlock.run import Run
from interlock.time_limits import in_time

__all__ = ["end_badly", "within"]


async def within(run: Run, events: AsyncGenerator[RunEvent], seconds: float) -> AsyncGenerator[RunEvent]:
    """Carry out a run that is cancelled when its time is up, which is the end of it as any limit is."""
    late = RunTimeout(
        f"The run took longer than its timeout of {seconds:g} s: agent {run.first.name!r} began it. Raise "
        "RunConfig(timeout=...), or take what there is from error.result."
    )
    try:
        async with aclosing(in_time(events, seconds, late)) as in_due_time:
            async for event in in_due_time:
                yield event
        return
    except RunTimeout as error:
        if error is not late:
            raise
    await end_badly(run, late)
    yield RunDone(run.result())


async def end_badly(run: Run, error: Exception) -> None:
    """End the run with an error that carries the partial result, or with a result if a limit is to be one."""
    run.keep_partial(error)
    run.stop_reason = "error"
    fresh = isinstance(error, LimitExceeded) and error.result is None  # not that of a run within this one
    if fresh:
        run.wind_up()
    else:
        run.wind_up(HandoffStatus.FAILED, f"{type(error).__name__}: {words_of(error)}")
    if fresh and run.config.on_limit != "raise":
        await _end_at_limit(run, cast(LimitExceeded, error))
        return
    if isinstance(error, InterlockError):
        error.result = run.result()
        raise error
    if isinstance(error, AssertionError):  # a test's own complaint is not the handler's fault
        raise error
    raised = HandlerError(
        f"Handler {run.handler.name!r} of agent {run.agent.name!r} raised {type(error).__name__} "
        f"in turn {run.turn}: {words_of(error)}"
    )
    raised.result = run.result()
    raise raised from error


async def _end_at_limit(run: Run, error: LimitExceeded) -> None:
    """Take the limit as the end of the run; the app may say what its final output is."""
    run.stop_reason = "limit"
    run.problem("limit", str(error), error=error)
    if not callable(run.config.on_limit):
        return
    error.result = run.result()
    try:
        with users_code("The on_limit function of the run"):
            run.final_output = await resolve(run.config.on_limit(error))
    except InterlockError as failed:
        run.stop_reason = "error"
        failed.result = run.result()
        raise
