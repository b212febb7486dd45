"""The transfer: makes the target of a handoff the active agent or handler."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import anyio

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.handoff import Handoff
from routelock.history.filters import HandoffInputData, last_user_message, without_calls
from routelock.history.messages import RunItem
from routelock.history.nesting import nest_handoff_history
from routelock.history.view import View
from routelock.run.emit import HandoffMade, HandoffReceived, emit
from routelock.run.frames import Frame, Wait, answer_item, drop_standby
from routelock.run.handler_selection import default_name
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.handoff_data import (
    ViewFilter,
    call_on_handoff_received,
    share_payload,
    source_prompt,
    target_view,
)
from routelock.run.run import Run

__all__ = ["take_over"]


async def take_over(run: Run, attempt: HandoffAttempt) -> None:
    """Build the target's view and make the target the active agent or handler.

    Handoffs that were not tried, in this turn or before, are left out of the view: what they ask for would
    mislead the target.

    Args:
        run: the run, with every call of the turn answered.
        attempt: a handoff that the target has accepted.

    Raises:
        HandoffFilterError: the input filter or the history mapper failed. The transcript is complete.
    """
    source, target, handoff = run.frame.agent, attempt.target, attempt.handoff
    assert target is not None
    source_items, view_filter = _tried_items(run), _filter_of(run, handoff)
    target_items = source_items
    try:
        if view_filter is not None or attempt.returns:
            target_items = await target_view(run, attempt, view_filter, source_items)
        passes_prompt = handoff.transfer_system_message and isinstance(target, Agent)
        prompt = await source_prompt(run) if passes_prompt else None
    except BaseException as error:
        _record_failed_handoff(run, attempt, error)
        raise
    if run.callers:
        drop_standby(run, target)
    wait = _wait_of(run, attempt) if attempt.keeps_source else None
    frame = _frame_of(run, attempt, target_items, prompt)
    run.progress.handed_over(attempt.source, target.name, attempt.input_text)
    if wait is None:
        run.close_handoff(HandoffStatus.COMPLETED)
    if isinstance(target, Agent):
        run.add_agents(target)
    run.handoffs.begin_count(attempt.id)
    if handoff.share is not None or attempt.payload is not None:
        share_payload(run, attempt)
    try:
        if run.is_observed:
            before, after = len(source_items), len(target_items)
            await _announce(run, attempt, source, view_filter, before=before, after=after)
    finally:  # the handoff is made: a cancellation here leaves the target active
        if wait is None:
            run.replace_frame(frame)
        else:
            run.frame.wait = wait
            run.push_frame(frame)
    if isinstance(target, Agent):
        if run.is_observed or target.has_hooks:
            await emit(run, HandoffReceived(source, target))
        if target.on_handoff_received is not None:
            await call_on_handoff_received(run, target, attempt)


async def _announce(
    run: Run,
    attempt: HandoffAttempt,
    source: Agent[Any],
    view_filter: ViewFilter | None,
    *,
    before: int,
    after: int,
) -> None:
    """Tell observers that the target takes over, and how its view was made."""
    record, target = run.handoffs.get(attempt.id), attempt.target
    assert record is not None
    assert target is not None
    label = None if view_filter is None or run.recorder is None else view_filter.label
    await emit(run, HandoffMade(record, source, target, label, before, after))


def _wait_of(run: Run, attempt: HandoffAttempt) -> Wait:
    """Return how the source waits for the target's output, or stands by."""
    seconds = None if attempt.handoff.run_timeout == math.inf else attempt.handoff.run_timeout
    return Wait(
        call=attempt.call,
        seconds=seconds,
        until=math.inf if seconds is None else anyio.current_time() + seconds,
        payload=run.memory.payload,
        memory_level=len(run.memory.scopes),
        is_standby=not attempt.returns,
    )


def _frame_of(run: Run, attempt: HandoffAttempt, items: list[RunItem], source_prompt: str | None) -> Frame:
    """Return the frame of the target; a handler keeps the agent, the view and the instructions."""
    source, target, handler = run.frame, attempt.target, attempt.handler
    assert handler is not None
    is_unchanged = not attempt.keeps_source and items is source.view.items
    frame = Frame(
        agent=source.agent,
        handler=handler,
        default_handler=source.default_handler,
        view=source.view if is_unchanged else View(items),
        handler_override=handler.name != source.default_handler,
        turns=source.turns,
        handoff_id=attempt.id,
        handoff_input=attempt.input,
        source_prompt=source.source_prompt,
    )
    if isinstance(target, Agent):
        frame.agent, frame.source_prompt, frame.turns = target, source_prompt, 0
        frame.default_handler, frame.handler_override = default_name(target, run.config), False
    return frame


def _tried_items(run: Run) -> list[RunItem]:
    """Return the items of the source's view, without the calls of handoffs that were not tried."""
    not_tried = {one.call_id for one in run.handoffs.records if not one.tried and one.requested_by == "model"}
    return without_calls(run.frame.view.items, not_tried) if not_tried else run.frame.view.items


def _record_failed_handoff(run: Run, attempt: HandoffAttempt, error: BaseException) -> None:
    """Record that an accepted handoff failed, and put that into its answer: the source may go on later."""
    is_failure = isinstance(error, Exception)
    why = str(error) if is_failure else "it was cancelled before the target took over"
    run.handoffs.close(attempt.id, run.config.clock(), HandoffStatus.FAILED, why)
    answer = answer_item(run, attempt.call, f"The transfer was not made: {why}", place=0).message
    run.frame.view.replace(
        replace(item, message=answer) if item.message.get("tool_call_id") == attempt.call["id"] else item
        for item in run.frame.view.items
    )


def _filter_of(run: Run, handoff: Handoff) -> ViewFilter | None:
    """Return the filter of the target's view: that of the handoff, else that of the run, else nesting.

    It is None for a view that stays as it is.
    """
    if handoff.input_filter is not None:
        return ViewFilter("input_filter of the handoff", handoff.input_filter)
    if not handoff.preserve_context:
        return ViewFilter("preserve_context=False", last_user_message, is_own=True)
    if run.config.handoff_input_filter is not None:
        return ViewFilter("handoff_input_filter of the run", run.config.handoff_input_filter)
    nest = run.config.nest_handoff_history if (own := handoff.nest_handoff_history) is None else own
    if not nest:
        return None

    def nested(data: HandoffInputData) -> MaybeAwaitable[HandoffInputData]:
        return nest_handoff_history(
            data,
            history_mapper=run.config.handoff_history_mapper,
            keep_last_user=run.config.nest_keep_last_user,
            wrappers=run.config.history_wrappers,
        )

    return ViewFilter("nest_handoff_history", nested, is_own=True)
