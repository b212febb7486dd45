"""How a run begins, and how it ends that does not end well: with what there is, on an error or a result."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from routelock._callables import resolve, users_code, words_of
from routelock.errors import HandlerError, LimitExceeded, RoutelockError, RunTimeout
from routelock.handoff_request import HandoffStatus
from routelock.results import RunDone, RunEvent
from routelock.run import Run
from routelock.time_limits import in_time
from routelock.tools.invoke import NoTextError, to_text

__all__ = ["begin", "close", "end_badly", "within"]


async def begin(run: Run) -> None:
    """Open the books of a run: its trace, and its session."""
    if run.tracing is not None:
        run.tracing.begin()
    if run.keeper is not None:
        await run.keeper.begin(run)


async def within(run: Run, events: AsyncGenerator[RunEvent], seconds: float) -> AsyncGenerator[RunEvent]:
    """Carry out a run that is cancelled when its time is up, which is the end of it as any limit is."""
    setting = run.set_by("seconds", seconds, "RunConfig(timeout=...)")
    late = RunTimeout(
        f"The run took longer than its timeout of {seconds:g} s: agent {run.first.name!r} began it. Raise "
        f"{setting}, or take what there is from error.result."
    )
    raised: Exception | None = None
    try:
        async with aclosing(in_time(events, seconds, late)) as in_due_time:
            async for event in in_due_time:
                yield event
        return
    except RunTimeout as error:
        if error is not late:
            raise
        raised = await end_badly(run, late)
    finally:
        if run.tracing is not None:
            run.tracing.end(raised)
    for event in run.take_completed():
        yield event
    if raised is not None:
        raise raised
    yield RunDone(run.result())


async def close(run: Run, raised: Exception | None) -> None:
    """Close the books of a run, however it ended."""
    run.keep_partial()
    run.wind_up()
    if run.keeper is not None:
        await run.keeper.last(run)
    # what was cancelled may be so because its time is up, which `within` knows
    if run.tracing is not None and (run.config.timeout is None or run.stop_reason != "unfinished"):
        run.tracing.end(raised)


async def end_badly(run: Run, error: Exception) -> Exception | None:
    """End the run; return the error to raise, with the partial result. None: the limit is to be a result."""
    run.keep_partial(error)
    if run.keeper is not None:
        await run.keeper.last(run, error)
    run.stop_reason, run.failure = "error", f"{type(error).__name__}: {words_of(error)}"
    fresh = isinstance(error, LimitExceeded) and error.result is None  # not that of a run within this one
    if fresh:
        run.wind_up()
    else:
        run.wind_up(HandoffStatus.FAILED, run.failure)
    if fresh and run.config.on_limit != "raise":
        return await _end_at_limit(run, cast(LimitExceeded, error))
    if isinstance(error, RoutelockError):
        error.result = run.result()
        return error
    if isinstance(error, AssertionError):  # a test's own complaint is not the handler's fault
        return error
    raised = HandlerError(
        f"Handler {run.handler.name!r} of agent {run.agent.name!r} raised {type(error).__name__} "
        f"in turn {run.turn}: {words_of(error)}"
    )
    raised.result, raised.__cause__ = run.result(), error
    return raised


async def _end_at_limit(run: Run, error: LimitExceeded) -> RoutelockError | None:
    """Take the limit as the end of the run; the app may say what its final output is."""
    run.stop_reason = "limit"
    run.problem("limit", str(error), error=error)
    if not callable(run.config.on_limit):
        return None
    error.result = run.result()
    try:
        with users_code("The on_limit function of the run"):
            run.final_output = await resolve(run.config.on_limit(error))
        await _put_in(run, run.final_output)
    except RoutelockError as failed:
        run.stop_reason = "error"
        failed.result = run.result()
        return failed
    return None


async def _put_in(run: Run, output: object) -> None:
    """Make the answer of ``on_limit`` a part of the conversation: it is what the user is told."""
    try:
        text = to_text(output)
    except NoTextError as error:
        run.warn(f"what on_limit answered is not in the conversation: {error}")
        return
    if text.strip():
        run.add("model", {"role": "assistant", "content": text}, final=True)
        if run.keeper is not None:
            await run.keeper.last(run)
