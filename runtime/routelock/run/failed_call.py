"""What becomes of a model call that failed or was cut off: a partial reply, or the next handler."""

from __future__ import annotations

from routelock._callables import error_text
from routelock._json import sendable
from routelock.errors import ContentRefused, HandlerError, HandoffTimeout, RoutelockError
from routelock.handlers.port import written_name
from routelock.handlers.replies import reply_problem, with_unique_ids
from routelock.handlers.stream_assembler import join_surrogates
from routelock.run.compact import compact_refused
from routelock.run.emit import ModelCallEnds, emit_now
from routelock.run.events import Compacted, HandlerFallback, RunEvent
from routelock.run.failed_attempt import count_failed
from routelock.run.handler_selection import next_handler
from routelock.run.model_call import end_call, record_reply
from routelock.run.run import Run
from routelock.run.subrun import Events

__all__ = ["fall_back", "keep_partial", "recover"]


def keep_partial(run: Run, error: BaseException | None = None) -> None:
    """Add a partial reply to the transcript when the model call is cut off, and count the call."""
    if run.model_call.request is None:
        return
    reply, text = run.model_call.reply, sendable(join_surrogates(run.model_call.text))
    refused = isinstance(error, ContentRefused)  # vendors refuse a history with a refused reply in it
    if reply is not None and not refused and not reply_problem(reply.message):
        record_reply(run, *with_unique_ids(reply, run.turn, run.transcript.call_ids))
        return
    end_call(run, reply if refused else None, error)
    if run.budget.in_flight:
        count_failed(run, error)
    if not text and run.model_call.text:
        run.warn(f"turn {run.turn}: the reply was cut off before it had any text")
    run.model_call.forget_reply()
    if text:
        run.add("model", {"role": "assistant", "content": text})
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
    """Let a failed call be repeated: with a shorter view if it was too long, or by another handler.

    Raises:
        Exception: the error itself, if neither is possible.
    """
    if (made := await compact_refused(run, error, events)) is None:
        return fall_back(run, error)
    run.problem("provider", f"the request was too long and is made again: {error_text(error)}", error=error)
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
    run.problem("fallback", text, error=error)
    _end_failed(run, error)
    run.replace_handler(handler)
    return HandlerFallback(agent=run.frame.agent.name, handler=failed, next_handler=handler.name, error=error)
