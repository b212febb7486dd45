"""One model call: within its time, through the app's executor; what arrives is noted in the run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass, replace
from math import inf, isinf
from typing import Any, cast

import anyio

from routelock._concurrency import open_group
from routelock._json import detached
from routelock.errors import HandlerError, ProviderTimeout, RoutelockError
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.function_handler import FunctionHandler
from routelock.handlers.port import Handler, Request, copy_of
from routelock.handlers.retry import attempts
from routelock.handoff_request import recordable
from routelock.run.executor import Call
from routelock.run.frames import earliest_deadline, time_left
from routelock.run.result import Shown
from routelock.run.run import Run
from routelock.run.timeouts import in_time
from routelock.usage import is_usage

__all__ = ["Check", "call_model", "note"]


Check = Callable[[], Awaitable[None]]
"""Judges the input; it raises if that must not be answered."""


def call_model(run: Run, request: Request, shown: Shown, check: Check | None) -> AsyncGenerator[HandlerEvent]:
    """Make the model call: through the app's executor and within its time, where there is such a thing.

    Each event that arrives is to be noted (`note`) before anything else is done with it.

    Args:
        run: the run.
        request: what the handler is given.
        shown: the messages in it.
        check: judges the input meanwhile; before it is done nothing of the reply is yielded.

    Raises:
        Exception: what ``check`` raises, or the handler.
    """
    if run.callers and run.config.executor is None:
        time_left(run.callers, run.active_name)  # skip the call if the caller's deadline has passed
    run.begin_call(request, shown)
    events = _events(run, request)
    return events if check is None else _once_judged(run, events, check)


@dataclass(frozen=True, slots=True)
class _Apart:
    """A handler that is asked with copies: whatever it does to them, the run stays as it is."""

    inner: Handler

    @property
    def name(self) -> str:
        """That of the handler."""
        return self.inner.name

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Ask the handler."""
        return self.inner.stream(copy_of(request))


def _answering(run: Run) -> Handler:
    """Return the handler, within what a trace wants around it; a function of the app's is given copies."""
    handler = run.frame.handler if run.recorder is None else run.recorder.handler()
    return _Apart(handler) if isinstance(run.frame.handler, FunctionHandler) else handler


async def _once_judged(
    run: Run, events: AsyncGenerator[HandlerEvent], check: Check
) -> AsyncGenerator[HandlerEvent]:
    """Yield nothing of what arrives until the input has been judged.

    The group is closed before anything is yielded. Only this task reads the events: what they hold open
    belongs to the task that began to read them.
    """
    held: list[HandlerEvent] = []
    refusals: list[Exception] = []
    failed: Exception | None = None
    judged = anyio.Event()
    async with aclosing(events):
        try:
            async with open_group() as group:
                group.start_soon(_judge, check, judged, refusals, group.cancel_scope)
                try:
                    while not judged.is_set() and (event := await anext(events, None)) is not None:
                        held.append(event)
                except Exception as error:  # the input is judged all the same
                    failed = error
            if refusals:
                raise refusals[0]
        except BaseException:
            _count_refused(run, held)
            raise
        for event in held:
            yield event
        if failed is not None:
            raise failed
        async for event in events:
            yield event


def _count_refused(run: Run, held: Sequence[HandlerEvent]) -> None:
    """Count what a reply took that must not be shown: its input was refused."""
    with suppress(RoutelockError):
        for event in held:
            note(run, event)
    run.refuse_reply()


async def _judge(
    check: Check, judged: anyio.Event, refusals: list[Exception], reading: anyio.CancelScope
) -> None:
    try:
        await check()
    except Exception as error:  # raised in a group, it would come together with a cancellation
        refusals.append(error)
        reading.cancel()
    judged.set()


def _events(run: Run, request: Request) -> AsyncGenerator[HandlerEvent]:
    def made() -> AsyncGenerator[HandlerEvent]:
        # within the step, so that an engine which replays knows whether time was up
        return _in_time(run, attempts(_answering(run), request, run.config.retry, run.begin_attempt))

    if (executor := run.config.executor) is None:
        return made()
    call = Call(run.run_id, _step_key(run), "model", _step_arguments(run, request))
    return executor.stream(call, lambda _: made())


def _step_key(run: Run) -> str:
    key = f"t{run.turn}.model.{run.frame.agent.name}"
    if earliest_deadline(run.callers) < inf:  # if time is over, that is one step, and the turn is not counted
        key = f"{key}~{len(run.callers)}"
    return f"{key}.{run.frame.handler.name}" if run.failed_handlers else key


def _step_arguments(run: Run, request: Request) -> dict[str, Any]:
    output = request.output_schema
    args: dict[str, Any] = {
        "agent": request.agent,
        "handler": run.frame.handler.name,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "settings": request.settings,
        "output_schema": None if output is None else asdict(output),
    }
    if request.handoff_input is not None:
        args["handoff_input"] = recordable(request.handoff_input)
    return args


def _in_time(run: Run, events: AsyncGenerator[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
    """Let the model call take no longer than the run allows, and no longer than the callers wait."""
    if (seconds := run.config.turn_timeout) is not None:
        late = ProviderTimeout(
            f"Handler {run.frame.handler.name!r} gave no complete reply in turn {run.turn} within "
            f"{seconds:g} s, the turn_timeout of the run."
        )
        events = in_time(events, seconds, late)
    return _in_patience(run, events) if run.callers else events


def _in_patience(run: Run, events: AsyncGenerator[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
    """Let the model call take no longer than the callers wait."""
    seconds, late = time_left(run.callers, run.active_name)
    return events if isinf(seconds) else in_time(events, seconds, late)


def note(run: Run, event: HandlerEvent) -> bool:
    """Note what arrives, so that nothing is lost however the call ends; return whether the reader gets it."""
    if isinstance(event, TextDelta):
        return _noted_text(run, event.text)
    if isinstance(event, MessageDone):
        if run.model_call.reply is not None:
            name = run.frame.handler.name
            raise HandlerError(f"Handler {name!r} yielded two MessageDone in turn {run.turn}.")
        if isinstance(run.frame.handler, FunctionHandler):  # it may keep what it gave, and edit it
            event = replace(event, message=detached(event.message))
        run.model_call.reply = _counted(run, event)
        return False
    if isinstance(event, AttemptFailed):
        run.problem("provider", f"attempt {event.attempt} failed: {event.error}", error=event.error)
        run.void_attempt(event)
    elif not isinstance(cast(object, event), ReasoningDelta | ToolCallDelta):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a {type(event).__name__} in turn {run.turn}, not "
            "one of routelock's events. routelock.function_handler makes them of text, chunks and messages."
        )
    elif not run.model_call.text:
        run.model_call.text.append("")  # nothing to keep, but something was shown
    return True


def _noted_text(run: Run, text: object) -> bool:
    if text is None:  # the content of many a vendor's chunk
        return False
    if not isinstance(text, str):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a TextDelta in turn {run.turn} whose text is "
            f"{text!r:.80}."
        )
    run.model_call.text.append(text)
    return True


def _counted(run: Run, done: MessageDone) -> MessageDone:
    """Return a reply whose usage is one; what it said must not be lost because of what it cost."""
    if done.usage is None or is_usage(done.usage):
        return done
    run.warn(
        f"turn {run.turn}: handler {run.frame.handler.name!r} gave {done.usage!r:.80} as its usage, which is "
        "no routelock.Usage of numbers, so it is unknown what the call took"
    )
    return replace(done, usage=None)
