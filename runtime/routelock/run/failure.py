"""Failures: another handler answers, an agent fails and its caller goes on, or the run ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from routelock._callables import call_user_code, error_text
from routelock._concurrency import in_time
from routelock._sendable import sendable
from routelock.errors import (
    ContentRefused,
    HandlerError,
    HandoffTimeout,
    LimitExceeded,
    RoutelockError,
    RunTimeout,
)
from routelock.handlers.port import written_name
from routelock.handlers.replies import reply_problem, storable_reply
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handoff_request import HandoffStatus
from routelock.history.unfinished_turn import left_over
from routelock.run.call_faults import count_failed, handler_label
from routelock.run.compact import compact_refused
from routelock.run.emit import ModelCallEnds, RunEnds, emit_now
from routelock.run.events import Compacted, HandlerFallback, HandoffFailed, RunDone, RunEvent
from routelock.run.frames import Frame, answer_item, asking_caller, failure_of
from routelock.run.handler_selection import next_handler
from routelock.run.limit_errors import set_by
from routelock.run.model_call import end_call, record_reply
from routelock.run.run import Run
from routelock.run.subrun import Events
from routelock.tools.failures import reason_of, text_for_app
from routelock.tools.outcome import NoTextError, to_text

__all__ = [
    "fail",
    "fail_frame",
    "fall_back",
    "in_run_time",
    "keep_partial",
    "recover",
]


_ABANDONED = "This call was not carried out: the agent had failed before."


def fail_frame(run: Run, error: Exception) -> None:
    """Fail the active agent: a caller goes on, and the error is the result of its call.

    Calls that the active agent has left are not carried out.

    Args:
        run: the run.
        error: why the active agent failed; a `HandoffTimeout` names the caller whose wait is over.
    """
    if not _has_model_call(run):
        run.turn -= 1
    keep_partial(run, error)
    _abandon_calls(run)
    source = run.active_name
    next_frame, told = _frame_after(run, error)
    text = text_for_app(told, error)
    reason = text.removeprefix(f"{source!r} failed: ")
    call, stood_by = next_frame.waits_for, next_frame.is_standby
    while True:
        run.close_handoff(HandoffStatus.FAILED, reason)
        has_result = run.callers[-1].is_standby
        answered = run.pop_frame()
        if not has_result:  # the callers in between get a result, too
            run.add_message("handoff", answer_item(run, answered, told, place=0).message)
        if run.frame is next_frame:
            break
    if stood_by:  # its call has a result already
        run.add_message("nudge", {"role": "user", "content": f"{told}. Answer the user yourself."})
    function = call["function"]
    run.progress.target_failed(function["name"], function.get("arguments") or "", reason.partition(":")[0])
    run.add_problem("handoff", text, call_id=call["id"], error=error)
    failed = HandoffFailed(source=run.active_name, target=source, call_id=call["id"], reason=text)
    run.handoffs.events.append(failed)


def _frame_after(run: Run, error: Exception) -> tuple[Frame, str]:
    """Return the frame that goes on after an error, and the text for its model."""
    if isinstance(error, HandoffTimeout):
        late = next((each for each in run.callers if each.waits_for["id"] == error.call_id), None)
        if late is not None:
            return late, str(error)
    asking = asking_caller(run.callers)
    assert asking is not None
    return asking, f"{run.active_name!r} failed: {failure_of(error)}"


def _has_model_call(run: Run) -> bool:
    """Whether this turn has a model call; a turn that failed before its call is not counted."""
    calls = run.report.model_calls
    if run.model_call.request is not None or (calls and calls[-1].turn == run.turn):
        return True
    return any(item.kind == "model" for item in run.transcript.items[run.first_of_turn :])


def _abandon_calls(run: Run) -> None:
    """Answer the open calls of an agent that failed, so that none of them waits for an approval."""
    waiting = {frame.waits_for["id"] for frame in run.callers}
    for call in left_over(run.transcript.items, run.first_of_turn, run.turn, waiting).calls:
        run.add_message("tool", answer_item(run, call, _ABANDONED, place=0).message)
    run.open_calls.interruptions = ()
    run.sub_runs.waiting.clear()
    run.sub_runs.to_resume.clear()


async def in_run_time(run: Run, events: AsyncGenerator[RunEvent], seconds: float) -> AsyncGenerator[RunEvent]:
    """Carry out a run and cancel it when its time is over, which ends it like any other limit."""
    setting = set_by(run.budget.limits, "seconds", seconds, "RunConfig(timeout=...)")
    late = RunTimeout(
        f"The run that agent {run.first_agent.name!r} began took longer than its timeout of {seconds:g} s. "
        f"Raise {setting}, or use the partial result in error.result."
    )
    raised: Exception | None = None
    try:
        async with aclosing(in_time(events, seconds, late)) as limited:
            async for event in limited:
                yield event
        return
    except RunTimeout as error:
        if error is not late:
            raise
        raised = await fail(run, late)
    finally:
        emit_now(run, RunEnds(raised))
    while run.handoffs.events:
        yield run.handoffs.events.pop(0)
    if raised is not None:
        raise raised
    yield RunDone(run.result())


async def fail(run: Run, error: Exception) -> Exception | None:
    """End the run with an error.

    Returns:
        the error to raise, with the partial result; None if a limit ended the run and is not to be raised.
    """
    keep_partial(run, error)
    if run.store is not None:
        await run.store.close(run, error)
    run.ending.stop_reason, run.ending.failure = "error", f"{type(error).__name__}: {error_text(error)}"
    is_own_limit = isinstance(error, LimitExceeded) and error.result is None  # not that of a sub-run
    if is_own_limit:
        run.close()
    else:
        run.close(HandoffStatus.FAILED, run.ending.failure)
    if is_own_limit and run.config.on_limit != "raise":
        return await _end_at_limit(run, cast(LimitExceeded, error))
    if isinstance(error, RoutelockError):
        error.result = run.result()
        return error
    if isinstance(error, AssertionError):  # a test failed within a callback: the handler did not
        return error
    raised = HandlerError(
        f"{handler_label(run)} raised {type(error).__name__} in turn {run.turn}: {error_text(error)}"
    )
    raised.result, raised.__cause__, raised.raised = run.result(), error, reason_of(error)
    return raised


async def _end_at_limit(run: Run, error: LimitExceeded) -> RoutelockError | None:
    """End the run at a limit without raising; an ``on_limit`` function gives the final output."""
    run.ending.stop_reason = "limit"
    run.add_problem("limit", str(error), error=error)
    if not callable(run.config.on_limit):
        return None
    error.result = run.result()
    try:
        what = "The on_limit function of the run"
        run.ending.final_output = await call_user_code(what, run.config.on_limit, error)
        await _add_output(run, run.ending.final_output)
    except RoutelockError as failed:
        run.ending.stop_reason = "error"
        failed.result = run.result()
        return failed
    return None


async def _add_output(run: Run, output: object) -> None:
    """Add the output of ``on_limit`` to the conversation: the user sees it."""
    try:
        text = to_text(output)
    except NoTextError as error:
        run.warn(f"the output of on_limit is not in the conversation: {error}")
        return
    if text.strip():
        run.add_message("model", {"role": "assistant", "content": text}, final=True)
        if run.store is not None:
            await run.store.close(run)


def keep_partial(run: Run, error: BaseException | None = None) -> None:
    """Add a partial reply to the transcript when the model call is cut off, and count the call."""
    if run.model_call.request is None:
        return
    reply, text = run.model_call.reply, sendable(join_surrogates(run.model_call.text))
    refused = isinstance(error, ContentRefused)  # vendors refuse a history with a refused reply in it
    if reply is not None and not refused and not reply_problem(reply.message):
        record_reply(run, *storable_reply(reply, run.turn, run.transcript.call_ids))
        return
    end_call(run, reply if refused else None, error)
    if run.budget.in_flight:
        count_failed(run, error)
    if not text and run.model_call.text:
        run.warn(f"turn {run.turn}: the reply was cut off before it had any text")
    run.model_call.forget_reply()
    if text:
        run.add_message("model", {"role": "assistant", "content": text})
        run.warn(f"turn {run.turn}: the reply was cut off after {len(text)} characters")


def _discard_call(run: Run, error: HandoffTimeout) -> None:
    """Remove a model call that was noted and never made."""
    run.model_call.request, run.budget.in_flight = None, False
    run.model_call.forget_reply()
    emit_now(run, ModelCallEnds(None, error))


def _end_failed(run: Run, error: Exception) -> None:
    """End a call that failed and is made again in another way."""
    end_call(run, run.model_call.reply, error)
    if run.budget.in_flight:
        count_failed(run, error)
    run.model_call.forget_reply()


async def recover(run: Run, error: Exception, events: Events) -> RunEvent:
    """Prepare another try of a failed call: with a shorter view if it was too long, or by another handler.

    Raises:
        Exception: the error itself, if neither is possible.
    """
    if (made := await compact_refused(run, error, events)) is None:
        return fall_back(run, error)
    run.add_problem("provider", f"the request was too long and is repeated: {error_text(error)}", error=error)
    _end_failed(run, error)
    run.retakes_turn = True
    return Compacted(made)


def fall_back(run: Run, error: Exception) -> HandlerFallback:
    """Replace a handler that failed before it showed anything with the agent's next one.

    Raises:
        Exception: the error itself, if the run does not allow a fallback or no handler is left.
    """
    if isinstance(error, HandoffTimeout) and not error.asked and error.result is None:
        _discard_call(run, error)
    from_handler = isinstance(error, HandlerError) or not isinstance(error, RoutelockError | AssertionError)
    if isinstance(error, RoutelockError) and error.result is not None:
        from_handler = True  # it ended another run, which the handler had started
    arrived = run.model_call.reply is not None and not isinstance(error, ContentRefused)
    began = run.model_call.request is None or run.model_call.text or arrived
    if not from_handler or began or not run.config.fallback:
        raise error
    agent, failed = run.frame.agent, run.frame.handler.name
    handler = next_handler(agent, failed, run.failed_of(agent), run.config)
    if handler is None:
        raise error
    text = f"handler {written_name(run.frame.handler)!r} failed, {written_name(handler)!r} answers instead: "
    text += f"{type(error).__name__}: {error_text(error)}"
    run.add_problem("fallback", text, error=error)
    _end_failed(run, error)
    run.replace_handler(handler)
    return HandlerFallback(agent=run.frame.agent.name, handler=failed, next_handler=handler.name, error=error)
