"""One model call: its time limits, the app's executor, and what the run notes of each event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from math import inf, isinf
from typing import Any, cast

import anyio

from routelock._concurrency import in_time, open_group
from routelock._json import detached, recordable
from routelock.errors import HandlerError, ProviderTimeout
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
from routelock.run.executor import Call, Executor
from routelock.run.frames import earliest_deadline, time_left
from routelock.run.result import Shown
from routelock.run.run import Run
from routelock.usage import is_usage

__all__ = ["Check", "call_model"]


Check = Callable[[], Awaitable[None]]
"""Checks the input of an agent while the model call is made; it raises if the input is refused."""


async def call_model(
    run: Run, request: Request, shown: Shown, check: Check | None
) -> AsyncGenerator[HandlerEvent]:
    """Make the model call, through the executor and within the time limits that the run has.

    Each event is noted in the run as soon as it arrives; those that a reader is to see are yielded.

    Args:
        run: the run.
        request: the request for the handler.
        shown: the messages in it.
        check: checks the input meanwhile; no event of the reply is yielded before it has passed.

    Raises:
        Exception: the error of ``check``, or of the handler.
    """
    if run.callers and run.config.executor is None:
        time_left(run.callers, run.active_name)  # skip the call if the caller's deadline has passed
    run.begin_call(request, shown)
    async with aclosing(_events(run, request)) as events:
        held: Sequence[HandlerEvent] = ()
        failed: Exception | None = None
        if check is not None:
            held, failed = await _read_beside(run, events, check)
        for event in held:
            yield event
        if failed is not None:
            raise failed
        async for event in events:
            if _note(run, event):
                yield event


@dataclass(frozen=True, slots=True)
class _CopyingHandler:
    """A handler that gets a copy of each request, so that it cannot change the run."""

    inner: Handler

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.inner.name

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the handler."""
        return self.inner.stream(copy_of(request))


def _active_handler(run: Run) -> Handler:
    """Return the active handler, wrapped for the traces; a function of the app gets copies."""
    handler = run.frame.handler if run.recorder is None else run.recorder.handler()
    return _CopyingHandler(handler) if isinstance(run.frame.handler, FunctionHandler) else handler


async def _read_beside(
    run: Run, events: AsyncGenerator[HandlerEvent], check: Check
) -> tuple[Sequence[HandlerEvent], Exception | None]:
    """Run the check beside the model call; return what arrived until it passed, and the handler's error.

    Only this task reads the events, because cancel scopes in their generator belong to the task that started
    it.
    """
    held: list[HandlerEvent] = []
    refusals: list[Exception] = []
    failed: Exception | None = None
    checked = anyio.Event()
    try:
        async with open_group() as group:
            group.start_soon(_check, check, checked, refusals, group.cancel_scope)
            try:
                while not checked.is_set() and (event := await anext(events, None)) is not None:
                    held += [event] if _note(run, event) else []
            except Exception as error:  # the check goes on and may refuse the input
                failed = error
        if refusals:
            raise refusals[0]
    except BaseException:
        run.refuse_reply()
        raise
    return held, failed


async def _check(
    check: Check, checked: anyio.Event, refusals: list[Exception], reading: anyio.CancelScope
) -> None:
    try:
        await check()
    except Exception as error:  # a task group would wrap it in an exception group
        refusals.append(error)
        reading.cancel()
    checked.set()


def _events(run: Run, request: Request) -> AsyncGenerator[HandlerEvent]:
    def made() -> AsyncGenerator[HandlerEvent]:
        # the time limit is part of the step, so that a replay has the same timeout
        return _in_time(run, attempts(_active_handler(run), request, run.config.retry, run.begin_attempt))

    if (executor := run.config.executor) is None:
        return made()
    call = Call(run.run_id, _step_key(run), "model", _step_arguments(run, request))
    return _by_executor(run, executor, call, made)


async def _by_executor(
    run: Run, executor: Executor, call: Call, make: Callable[[], AsyncGenerator[HandlerEvent]]
) -> AsyncGenerator[HandlerEvent]:
    """Make the model call as a step; a replayed step begins its further attempts, as a new one does."""
    is_replayed = True

    def body(_: Call) -> AsyncGenerator[HandlerEvent]:
        nonlocal is_replayed
        is_replayed = False
        return make()

    async with aclosing(executor.stream(call, body)) as events:
        async for event in events:
            yield event
            if is_replayed and isinstance(event, AttemptFailed):
                run.begin_attempt()


def _step_key(run: Run) -> str:
    key = f"t{run.turn}.model.{run.frame.agent.name}"
    if earliest_deadline(run.callers) < inf:  # a step that times out is no turn: the next needs another key
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
    """Limit the model call to the run's ``turn_timeout`` and to the deadlines of the callers."""
    if (seconds := run.config.turn_timeout) is not None:
        late = ProviderTimeout(
            f"Handler {run.frame.handler.name!r} gave no complete reply in turn {run.turn} within "
            f"{seconds:g} s, the turn_timeout of the run."
        )
        events = in_time(events, seconds, late)
    return _before_deadline(run, events) if run.callers else events


def _before_deadline(run: Run, events: AsyncGenerator[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
    """Limit the model call to the deadlines of the callers."""
    seconds, late = time_left(run.callers, run.active_name)
    return events if isinf(seconds) else in_time(events, seconds, late)


def _note(run: Run, event: HandlerEvent) -> bool:
    """Note an event in the run, so that a cut-off call loses nothing; return whether it is streamed."""
    if isinstance(event, TextDelta):
        return _note_text(run, event.text)
    if isinstance(event, MessageDone):
        if run.model_call.reply is not None:
            name = run.frame.handler.name
            raise HandlerError(f"Handler {name!r} yielded two MessageDone in turn {run.turn}.")
        if isinstance(run.frame.handler, FunctionHandler):  # the app may keep the message and edit it
            event = replace(event, message=detached(event.message))
        run.model_call.reply = _with_valid_usage(run, event)
        return False
    if isinstance(event, AttemptFailed):
        run.problem("provider", f"attempt {event.attempt} failed: {event.error}", error=event.error)
        run.void_attempt(event)
    elif not isinstance(cast(object, event), ReasoningDelta | ToolCallDelta):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a {type(event).__name__} in turn {run.turn}, not "
            "a routelock event. routelock.function_handler converts text, chunks and messages to events."
        )
    elif not run.model_call.text:
        run.model_call.text.append("")  # marks that a delta was shown
    return True


def _note_text(run: Run, text: object) -> bool:
    if text is None:  # the content of some vendors' chunks
        return False
    if not isinstance(text, str):
        raise HandlerError(
            f"Handler {run.frame.handler.name!r} yielded a TextDelta in turn {run.turn} whose text is "
            f"{text!r:.80}."
        )
    run.model_call.text.append(text)
    return True


def _with_valid_usage(run: Run, done: MessageDone) -> MessageDone:
    """Return the reply, without its usage if that is not valid: the message must not be lost."""
    if done.usage is None or is_usage(done.usage):
        return done
    run.warn(
        f"turn {run.turn}: handler {run.frame.handler.name!r} gave {done.usage!r:.80} as usage, which is not "
        "a routelock.Usage of numbers, so the usage of the call is unknown"
    )
    return replace(done, usage=None)
