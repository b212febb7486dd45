"""Making a transfer that the target agreed to: put it on record, reshape the view, switch."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import anyio

from routelock._callables import MaybeAwaitable, call_user_code, callback_errors, name_of
from routelock._json import unshared
from routelock.agents.agent import Agent
from routelock.context import PAYLOAD_KEY
from routelock.handlers.port import family_of
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus, recordable
from routelock.handoffs.context import TOOL_STATE_KEY, HandoffContext
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import carried, loggable
from routelock.history.filters import HandoffInputData, HandoffInputFilter, last_user_message
from routelock.history.messages import Message, RunItem, calls_of
from routelock.history.nesting import nest_handoff_history
from routelock.history.view import View, apply_filter, partition
from routelock.run.emit import HandoffMade, HandoffNoted, HandoffReceived, emit, emit_now, log
from routelock.run.frames import Frame, Wait, answer_item, drop_standby
from routelock.run.handler_selection import default_name
from routelock.run.prompt import instructions, rode_along
from routelock.run.result import HandoffRecord
from routelock.run.run import Run
from routelock.run.transfer_request import Transfer, data_of

__all__ = ["put_on_record", "take_over"]


_log = logging.getLogger("routelock.handoff")


def put_on_record(run: Run, transfer: Transfer) -> None:
    """Put a transfer on the result, taken or not."""
    by_tool = transfer.by_tool
    made = transfer.target is not None
    run.handoffs.records.append(
        HandoffRecord(
            id=transfer.request.request_id,
            source=run.active_name,
            target=transfer.target_name,
            tool_name=transfer.call["function"]["name"] if by_tool else transfer.edge.tool_name,
            call_id=transfer.call["id"],
            turn=run.turn,
            status=transfer.status,
            tried=transfer.tried,
            requested_by="tool" if by_tool else "model",
            reason=transfer.reason,
            input=transfer.input,
            error=transfer.error,
            request=_kept(transfer),
            response=_response(transfer),
            passed_over=transfer.passed_over,
            parent_id=run.frame.handoff_id,
            depth=1 + sum([one.taken and one.turn < run.turn for one in run.handoffs.records]),
            started=transfer.started,
            ended=None if made else run.config.clock(),
        )
    )
    emit_now(run, HandoffNoted(run.handoffs.records[-1]))


def _response(transfer: Transfer) -> HandoffResponse:
    """Return the answer as it counts: what the target said, and what the run made of it."""
    said = transfer.said
    return HandoffResponse(
        status=transfer.status,
        handoff_id=(said.handoff_id if said is not None else "") or transfer.request.request_id,
        rejection_reason=transfer.error,
        metadata={} if said is None else said.metadata,
        from_agent="" if said is None else said.from_agent,
    )


def _kept(transfer: Transfer) -> HandoffRequest:
    """Return the request for the record: the data that rode along is gone with the run."""
    payload = transfer.payload
    if payload is None:
        return transfer.request
    return replace(transfer.request, payload=replace(payload, context_data={}))


async def take_over(run: Run, transfer: Transfer) -> None:
    """Reshape the view for the target and make it the active agent or handler.

    Transfers that were not taken, in this turn or before, are left out of the view: what they ask for
    would lead the target astray.

    Args:
        run: the run, with every call of the turn answered.
        transfer: one that was made.

    Raises:
        HandoffFilterError: the input filter or the history mapper failed. The transcript is complete.
    """
    source, target, speaker = run.frame.agent, transfer.target, run.active_name
    assert target is not None
    seen = _without_not_tried(run)
    try:
        shaped = await _shaped(run, transfer, seen)
        passed_on = transfer.edge.transfer_system_message and isinstance(target, Agent)
        source_prompt = await _passed_on(run) if passed_on else None
    except BaseException as error:
        _not_taken_over(run, transfer, error)
        raise
    drop_standby(run, target)
    wait = _wait_of(run, transfer) if transfer.waits else None
    frame = _frame_of(run, transfer, shaped, source_prompt)
    if wait is None:
        run.close_handoff(HandoffStatus.COMPLETED)
    run.handoffs.begin(transfer.request.request_id)
    if isinstance(target, Agent):
        run.add_agents(target)
    _carry(run, transfer)
    run.progress.handed_over(speaker, target.name, data_of(transfer.request))
    record = run.handoffs.get(transfer.request.request_id)
    assert record is not None
    try:
        shaped_by = _shaped_by(run, transfer)
        await emit(run, HandoffMade(record, source, target, shaped_by, len(seen), len(shaped)))
    finally:  # it is made: who is cancelled here finds the target active
        if wait is None:
            run.replace_frame(frame)
        else:
            run.frame.wait = wait
            run.push_frame(frame)
    if isinstance(target, Agent):
        await _greet(run, source, target, transfer)


def _wait_of(run: Run, transfer: Transfer) -> Wait:
    """Return how the source waits for the answer to its call, or stands by."""
    seconds = None if transfer.edge.run_timeout == math.inf else transfer.edge.run_timeout
    return Wait(
        call=transfer.call,
        seconds=seconds,
        until=math.inf if seconds is None else anyio.current_time() + seconds,
        payload=run.memory.payload,
        memory_level=len(run.memory.scopes),
        stands_by=not transfer.returns,
    )


def _frame_of(run: Run, transfer: Transfer, shaped: list[RunItem], source_prompt: str | None) -> Frame:
    """Return the frame of the target; a handler goes on with what the agent was shown and told."""
    source, target, handler = run.frame, transfer.target, transfer.handler
    assert handler is not None
    goes_on = not transfer.waits and shaped is source.view.items
    frame = Frame(
        agent=source.agent,
        handler=handler,
        default_handler=source.default_handler,
        view=source.view if goes_on else View(shaped),
        handler_override=handler.name != source.default_handler,
        turns=source.turns,
        handoff_id=transfer.request.request_id,
        handoff_input=transfer.input,
        source_prompt=source.source_prompt,
    )
    if isinstance(target, Agent):
        frame.agent, frame.source_prompt, frame.turns = target, source_prompt, 0
        frame.default_handler, frame.handler_override = default_name(target, run.config), False
    return frame


def _without_not_tried(run: Run) -> list[RunItem]:
    not_tried = {one.call_id for one in run.handoffs.records if not one.tried and one.requested_by == "model"}
    return _without_calls(run.frame.view.items, not_tried) if not_tried else run.frame.view.items


def _not_taken_over(run: Run, transfer: Transfer, error: BaseException) -> None:
    """Put on record that a transfer was not made after all; a source that goes on later is shown so."""
    broken = isinstance(error, Exception)
    why = str(error) if broken else "it was cancelled before the target took over"
    run.handoffs.close([transfer.request.request_id], run.config.clock(), HandoffStatus.FAILED, why)
    run.handoffs.release(transfer.request.request_id)
    told = answer_item(run, transfer.call, f"The transfer was not made: {why}", place=0).message
    run.frame.view.replace(
        replace(item, message=told) if item.message.get("tool_call_id") == transfer.call["id"] else item
        for item in run.frame.view.items
    )


def _carry(run: Run, transfer: Transfer) -> None:
    """Let the payload ride along in the shared memory, as far as that goes with the target.

    A nested run may not change the payload of the outer one, nor of another that goes on at the same time:
    it goes on with a memory of its own, and what it changes there comes back when it is done.
    """
    if transfer.edge.share is not None or (run.sub_runs.depth and transfer.payload is not None):
        run.memory.enter_scope(transfer.edge.share)
        run.current_context = None
    if transfer.payload is None:
        return
    payload = carried(run.memory.shared, transfer.payload) if rode_along(run) else transfer.payload
    run.memory.shared[PAYLOAD_KEY] = unshared(payload.to_dict())  # the record keeps what was sent
    if _log.isEnabledFor(logging.INFO):
        log(run, _log, logging.INFO, "%s passes along %s", run.active_name, loggable(payload))
        log(run, _log, logging.INFO, "%s receives %s", transfer.target_name, loggable(payload))
        log(run, _log, logging.DEBUG, "it is %s", loggable(payload, logging.DEBUG))


async def _greet(run: Run, source: Agent[Any], target: Agent[Any], transfer: Transfer) -> None:
    """Call the target's own hooks."""
    await emit(run, HandoffReceived(source, target))
    if target.on_handoff_received is not None:
        await _received(run, target, transfer)


async def _received(run: Run, target: Agent[Any], transfer: Transfer) -> None:
    """Call the target's own hook, last of all, with the history that it is about to be shown."""
    messages, _ = View(run.frame.view.items).messages(family_of(run.frame.handler), run.audience())
    carries = PAYLOAD_KEY in run.memory.shared
    payload = {PAYLOAD_KEY: recordable(run.memory.shared[PAYLOAD_KEY])} if carries else {}
    with callback_errors(f"The snapshot for on_handoff_received of agent {target.name!r}"):
        context = HandoffContext.of(
            messages,
            agent=transfer.request.from_agent,
            run_id=run.run_id,
            handoff_id=transfer.request.request_id,
            created_at=datetime.fromtimestamp(transfer.started, UTC),
            tool_state=_kept_by_tools(run),
            metadata=payload,
        )
    given = (context, run.now()) if "on_handoff_received" in target.hooks_with_context else (context,)
    what = f"on_handoff_received of agent {target.name!r}"
    await call_user_code(what, cast(Any, target.on_handoff_received), *given)


def _kept_by_tools(run: Run) -> dict[str, Any]:
    """Return what tools have kept for the agent that takes over, as far as it is shared with the target."""
    kept: object = run.memory.shared.get(TOOL_STATE_KEY, {})
    if not isinstance(kept, dict):
        kind = type(kept).__name__
        what = f"shared_memory[{TOOL_STATE_KEY!r}] is a {kind}, not a dict"
        name = run.frame.agent.name
        run.warn(f"turn {run.turn}: {what}, so the snapshot of agent {name!r} has no tool_state")
        return {}
    return cast("dict[str, Any]", recordable(cast(object, kept)))


async def _passed_on(run: Run) -> str | None:
    """Return the source's instructions as a section of the target's."""
    prompt = await instructions(run)
    return f"# Instructions of the previous agent, {run.frame.agent.name}\n{prompt}" if prompt else None


async def _shaped(run: Run, transfer: Transfer, seen: list[RunItem]) -> list[RunItem]:
    """Return what the target is to see of what the source has seen."""
    if transfer.returns:
        seen = [*seen, answer_item(run, transfer.call, transfer.answer, place=len(run.transcript.items) - 1)]
    chosen = _shaping(run, transfer.edge)
    if chosen is None:
        return seen
    history, before, new = partition(seen, run.transcript.input_count, run.first_of_turn)
    data = HandoffInputData(
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        run_context=run.now(),
        source=run.active_name,
        target=transfer.target_name,
        arguments=transfer.input,
        reason=transfer.reason,
        tool_call_id=transfer.call["id"],
    )
    name, apply, own = chosen
    items = await apply_filter(apply, data, name, own=own)
    if transfer.reason and all(item.message["role"] in ("system", "developer") for item in items):
        reason: Message = {"role": "user", "content": transfer.reason}
        items.append(RunItem(id=len(run.transcript.items) - 1, kind="filter", message=reason))
    return items


def _shaping(run: Run, edge: Handoff) -> tuple[str, HandoffInputFilter, bool] | None:
    """Choose what shapes the target's view: the edge's own wish, then the run's filter, then nesting.

    Return its name, itself, and whether it is routelock's own and so known not to edit in place.
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


def _shaped_by(run: Run, transfer: Transfer) -> str | None:
    """Return what shapes the view of the target; a filter of the app's by its own name, too."""
    if run.recorder is None or (shaping := _shaping(run, transfer.edge)) is None:
        return None
    what, apply, own = shaping
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
        elif message.get("content"):
            words: Message = {"role": "assistant", "content": message.get("content")}
            kept.append(replace(item, message=words))
    return kept
