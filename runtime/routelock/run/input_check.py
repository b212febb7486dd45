"""Runs the input guardrails of an agent beside its first model call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import anyio

from routelock._concurrency import open_group
from routelock.handlers.events import HandlerEvent
from routelock.run.call_faults import count_failed
from routelock.run.model_call import InputCheck, note_event
from routelock.run.run import Run

__all__ = ["read_beside"]


async def read_beside(
    run: Run, events: AsyncGenerator[HandlerEvent], check: InputCheck
) -> Sequence[HandlerEvent]:
    """Run a check beside the model call; return the events to stream that arrived until it passed.

    Only this task reads the events, because cancel scopes in their generator belong to the task that started
    it. An error of the handler is kept for `take_reply`, because what arrived before it is streamed first.

    Raises:
        Exception: the error of the check.
    """
    held: list[HandlerEvent] = []
    refusals: list[Exception] = []
    checked = anyio.Event()
    try:
        async with open_group() as group:
            group.start_soon(_check, check, checked, refusals, group.cancel_scope)
            try:
                while not checked.is_set() and (event := await anext(events, None)) is not None:
                    held += [event] if note_event(run, event) else []
            except Exception as error:  # the check goes on and may refuse the input
                run.model_call.error = error
                await events.aclose()  # it may come from `note_event`: then there are more events
        if refusals:
            raise refusals[0]
    except BaseException:
        if run.model_call.reply is not None:
            count_failed(run, None)
        run.model_call.forget_reply()
        raise
    return held


async def _check(
    check: InputCheck, checked: anyio.Event, refusals: list[Exception], reading: anyio.CancelScope
) -> None:
    try:
        await check()
    except Exception as error:  # a task group would wrap it in an exception group
        refusals.append(error)
        reading.cancel()
    checked.set()
