"""The transfer: put a handoff on record, build the target's view, and make the target active."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import anyio

from routelock._callables import MaybeAwaitable, call_user_code, callback_errors, name_of
from routelock._json import recordable, unshared
from routelock.agents.agent import Agent
from routelock.context import PAYLOAD_KEY
from routelock.handlers.port import family_of
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.context import TOOL_STATE_KEY, HandoffContext
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import carried, loggable
from routelock.history.filters import (
    HandoffInputData,
    HandoffInputFilter,
    apply_filter,
    last_user_message,
    partition,
)
from routelock.history.messages import Message, RunItem, calls_of, portable
from routelock.history.nesting import nest_handoff_history
from routelock.history.view import View
from routelock.run.emit import HandoffMade, HandoffNoted, HandoffReceived, emit, emit_now, log
from routelock.run.frames import Frame, Wait, answer_item, drop_standby
from routelock.run.handler_selection import default_name
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.prompt import has_own_payload, instructions
from routelock.run.run import Run

__all__ = ["put_on_record", "take_over"]


_log = logging.getLogger("routelock.handoff")


def put_on_record(run: Run, attempt: HandoffAttempt) -> None:
    """Put a handoff on the result, whether it is made or not."""
    records = run.handoffs.records
    record = attempt.record(
        turn=run.turn,
        parent_id=run.frame.handoff_id,
        depth=1 + sum([one.taken and one.turn < run.turn for one in records]),
        ended=None if attempt.target is not None else run.config.clock(),
    )
    records.append(record)
    if run.is_observed:
        emit_now(run, HandoffNoted(record))


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
    source, target, speaker = run.frame.agent, attempt.target, run.active_name
    assert target is not None
    seen = _without_not_tried(run)
    try:
        items = await _target_view(run, attempt, seen)
        passes_prompt = attempt.edge.transfer_system_message and isinstance(target, Agent)
        source_prompt = await _source_prompt(run) if passes_prompt else None
    except BaseException as error:
        _not_taken_over(run, attempt, error)
        raise
    if run.callers:
        drop_standby(run, target)
    wait = _wait_of(run, attempt) if attempt.keeps_source else None
    frame = _frame_of(run, attempt, items, source_prompt)
    if wait is None:
        run.close_handoff(HandoffStatus.COMPLETED)
    run.handoffs.begin(attempt.id)
    if isinstance(target, Agent):
        run.add_agents(target)
    _share_payload(run, attempt)
    run.progress.handed_over(speaker, target.name, attempt.input_json())
    try:
        if run.is_observed:
            await _announce(run, attempt, source, before=len(seen), after=len(items))
    finally:  # the handoff is made: a cancellation here leaves the target active
        if wait is None:
            run.replace_frame(frame)
        else:
            run.frame.wait = wait
            run.push_frame(frame)
    if isinstance(target, Agent):
        await _call_hooks_of(run, source, target, attempt)


async def _announce(
    run: Run, attempt: HandoffAttempt, source: Agent[Any], *, before: int, after: int
) -> None:
    """Tell observers that the target takes over, and how its view was made."""
    record, target = run.handoffs.get(attempt.id), attempt.target
    assert record is not None
    assert target is not None
    await emit(run, HandoffMade(record, source, target, _shaped_by(run, attempt), before, after))


def _wait_of(run: Run, attempt: HandoffAttempt) -> Wait:
    """Return how the source waits for the target's output, or stands by."""
    seconds = None if attempt.edge.run_timeout == math.inf else attempt.edge.run_timeout
    return Wait(
        call=attempt.call,
        seconds=seconds,
        until=math.inf if seconds is None else anyio.current_time() + seconds,
        payload=run.memory.payload,
        memory_level=len(run.memory.scopes),
        stands_by=not attempt.returns,
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


def _without_not_tried(run: Run) -> list[RunItem]:
    not_tried = {one.call_id for one in run.handoffs.records if not one.tried and one.requested_by == "model"}
    return _without_calls(run.frame.view.items, not_tried) if not_tried else run.frame.view.items


def _not_taken_over(run: Run, attempt: HandoffAttempt, error: BaseException) -> None:
    """Put on record that a handoff failed after all, and tell a source that goes on later."""
    broken = isinstance(error, Exception)
    why = str(error) if broken else "it was cancelled before the target took over"
    run.handoffs.close(attempt.id, run.config.clock(), HandoffStatus.FAILED, why)
    answer = answer_item(run, attempt.call, f"The transfer was not made: {why}", place=0).message
    run.frame.view.replace(
        replace(item, message=answer) if item.message.get("tool_call_id") == attempt.call["id"] else item
        for item in run.frame.view.items
    )


def _share_payload(run: Run, attempt: HandoffAttempt) -> None:
    """Put the payload into the shared memory that the target sees.

    A sub-run must not change the payload of the outer run, or of another sub-run at the same time: it gets a
    memory of its own, and its changes come back when it has ended.
    """
    if attempt.edge.share is not None or (run.sub_runs.depth and attempt.payload is not None):
        run.memory.enter_scope(attempt.edge.share)
        run.current_context = None
    if attempt.payload is None:
        return
    payload = carried(run.memory.shared, attempt.payload) if has_own_payload(run) else attempt.payload
    run.memory.shared[PAYLOAD_KEY] = unshared(payload.to_dict())  # the record keeps what was sent
    if _log.isEnabledFor(logging.INFO):
        log(run, _log, logging.INFO, "%s passes along %s", run.active_name, loggable(payload))
        log(run, _log, logging.INFO, "%s receives %s", attempt.target_name, loggable(payload))
        log(run, _log, logging.DEBUG, "it is %s", loggable(payload, logging.DEBUG))


async def _call_hooks_of(run: Run, source: Agent[Any], target: Agent[Any], attempt: HandoffAttempt) -> None:
    """Call the target's own hooks."""
    if run.is_observed or target.has_hooks:
        await emit(run, HandoffReceived(source, target))
    if target.on_handoff_received is not None:
        await _call_on_handoff_received(run, target, attempt)


async def _call_on_handoff_received(run: Run, target: Agent[Any], attempt: HandoffAttempt) -> None:
    """Call the target's ``on_handoff_received``, last of all, with the history that its model will see."""
    messages, _ = View(run.frame.view.items).messages(family_of(run.frame.handler), run.audience())
    carries = PAYLOAD_KEY in run.memory.shared
    payload = {PAYLOAD_KEY: recordable(run.memory.shared[PAYLOAD_KEY])} if carries else {}
    with callback_errors(f"The snapshot for on_handoff_received of agent {target.name!r}"):
        context = HandoffContext.of(
            messages,
            agent=attempt.source,
            run_id=run.run_id,
            handoff_id=attempt.id,
            created_at=datetime.fromtimestamp(attempt.started, UTC),
            tool_state=_kept_by_tools(run),
            metadata=payload,
        )
    given = (context, run.now()) if "on_handoff_received" in target.hooks_with_context else (context,)
    what = f"on_handoff_received of agent {target.name!r}"
    await call_user_code(what, cast(Any, target.on_handoff_received), *given)


def _kept_by_tools(run: Run) -> dict[str, Any]:
    """Return the state that tools kept for the next agent, as far as it is shared with the target."""
    kept: object = run.memory.shared.get(TOOL_STATE_KEY, {})
    if not isinstance(kept, dict):
        kind = type(kept).__name__
        what = f"shared_memory[{TOOL_STATE_KEY!r}] is a {kind}, not a dict"
        name = run.frame.agent.name
        run.warn(f"turn {run.turn}: {what}, so the snapshot of agent {name!r} has no tool_state")
        return {}
    return cast("dict[str, Any]", recordable(cast(object, kept)))


async def _source_prompt(run: Run) -> str | None:
    """Return the source's instructions as a section of the target's instructions."""
    prompt = await instructions(run)
    return f"# Instructions of the previous agent, {run.frame.agent.name}\n{prompt}" if prompt else None


async def _target_view(run: Run, attempt: HandoffAttempt, seen: list[RunItem]) -> list[RunItem]:
    """Return the target's view, made from the items that the source has seen."""
    if attempt.returns:
        seen = [*seen, answer_item(run, attempt.call, attempt.answer, place=len(run.transcript.items) - 1)]
    chosen = _filter_of(run, attempt.edge)
    if chosen is None:
        return seen
    history, before, new = partition(seen, run.transcript.input_count, run.first_of_turn)
    data = HandoffInputData(
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        run_context=run.now(),
        source=run.active_name,
        target=attempt.target_name,
        arguments=attempt.input,
        reason=attempt.reason,
        tool_call_id=attempt.call["id"],
    )
    name, apply, own = chosen
    items = await apply_filter(apply, data, name, own=own)
    if attempt.reason and all(item.message["role"] in ("system", "developer") for item in items):
        reason: Message = {"role": "user", "content": attempt.reason}
        items.append(RunItem(id=len(run.transcript.items) - 1, kind="filter", message=reason))
    return items


def _filter_of(run: Run, edge: Handoff) -> tuple[str, HandoffInputFilter, bool] | None:
    """Return the filter of the target's view: that of the handoff, else that of the run, else nesting.

    Return its name, the function, and whether it is routelock's own, which never edits in place; None for a
    view that stays as it is.
    """
    if edge.input_filter is not None:
        return "input_filter of the handoff", edge.input_filter, False
    if not edge.preserve_context:
        return "preserve_context=False", last_user_message, True
    if run.config.handoff_input_filter is not None:
        return "handoff_input_filter of the run", run.config.handoff_input_filter, False
    nest = run.config.nest_handoff_history if edge.nest_handoff_history is None else edge.nest_handoff_history
    if not nest:
        return None

    def fold(data: HandoffInputData) -> MaybeAwaitable[HandoffInputData]:
        return nest_handoff_history(
            data,
            history_mapper=run.config.handoff_history_mapper,
            keep_last_user=run.config.nest_keep_last_user,
            wrappers=run.config.history_wrappers,
        )

    return "nest_handoff_history", fold, True


def _shaped_by(run: Run, attempt: HandoffAttempt) -> str | None:
    """Return the name of the filter of the target's view, with the function's name for one of the app."""
    if run.recorder is None or (chosen := _filter_of(run, attempt.edge)) is None:
        return None
    what, apply, own = chosen
    return what if own else f"{what}: {name_of(apply)}"


def _without_calls(items: list[RunItem], call_ids: Collection[str]) -> list[RunItem]:
    kept: list[RunItem] = []
    for item in items:
        message = item.message
        calls = [call for call in calls_of(message) if call.get("id") not in call_ids]
        if message.get("tool_call_id") in call_ids:
            continue
        if calls and len(calls) < len(calls_of(message)):
            kept.append(replace(item, message=cast(Message, {**message, "tool_calls": calls})))
        elif calls or not calls_of(message):
            kept.append(item)
        elif content := portable(message).get("content"):
            words: Message = {"role": "assistant", "content": content}
            kept.append(replace(item, message=words))
    return kept
