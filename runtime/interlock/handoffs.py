"""Making a transfer: check what the model asked for, call back, reshape the view, switch."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from pydantic_core import to_json

from interlock.agents import Agent, Handoff
from interlock.callables import resolve
from interlock.calls import reason_of
from interlock.errors import HandoffFilterError, ModelBehaviorError
from interlock.filters import HandoffInputData, HandoffInputFilter, last_user_message
from interlock.graph import find_agent
from interlock.handoff_request import HandoffRequest
from interlock.history import filtered, nest_handoff_history, partition
from interlock.messages import Message, RunItem, ToolCall, calls_of
from interlock.models import handler_for, load
from interlock.port import Handler
from interlock.prompts import instructions
from interlock.results import HandoffRecord
from interlock.routing import Wanted
from interlock.run_state import RunState
from interlock.schema import clip, describe_error
from interlock.scopes import permits
from interlock.tell import tell

__all__ = ["Transfer", "edge_for", "passed_over", "take_over", "try_transfer"]

_log = logging.getLogger("interlock.handoff")
_LONGEST_REASON = 700  # characters of an error: it stays in the history and is paid for again


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What became of one transfer call. Without a ``target`` it was not made, and ``error`` says why."""

    call: ToolCall
    edge: Handoff
    answer: str
    target: Agent[Any] | Handler | None = None
    handler: Handler | None = None
    """What answers from then on."""
    input: Any = None
    reason: str | None = None
    error: str | None = None
    refusal: Literal["limit", "loop"] | None = None
    """The run's own limit that refused it: asking again ends the run."""
    exception: BaseException | None = None
    by_tool: bool = False
    """Whether a tool asked for it, and not the model."""

    @property
    def target_name(self) -> str:
        """The name of where it went, or was to go."""
        return self.edge.agent_name if self.target is None else self.target.name


class _Refused(Exception):
    """Why a transfer is not made: the model's arguments, a limit of the run (``refusal``), or the target."""

    def __init__(self, why: str, *, refusal: Literal["limit", "loop"] | None = None) -> None:
        super().__init__(why)
        self.refusal: Literal["limit", "loop"] | None = refusal


def edge_for(run: RunState, request: HandoffRequest) -> Handoff | None:
    """Return the way to what a tool asks to hand over to; None when there is nothing of that name.

    A handoff that the agent declares counts with its filter and callback, offered or not. An object is
    itself, and not another one of the same name.

    Raises:
        ConfigError: the object can answer nothing.
    """
    target = request.target
    for edge in run.agent.edges:
        end = run.graph.get(edge.target) if isinstance(edge.target, str) else edge.target
        if target == edge.agent_name if isinstance(target, str) else target is end:
            return edge
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := run.agent.equipment.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=run.graph[target]) if target in run.graph else None


async def try_transfer(run: RunState, wanted: Wanted) -> Transfer:
    """Do all that can fail about a transfer, before anything changes.

    Whatever goes wrong becomes the answer to the model's call: the source stays in charge and knows
    why (feature rows 1-26 and 1-27).
    """
    call, edge, request = wanted
    try:
        value, reason = _parse(edge, call) if request is None else _given(edge, request)
        _within_limit(run)
        target = await _find_target(run, wanted)
        handler = (
            handler_for(target, run.config, run.failed_of(target)) if isinstance(target, Agent) else target
        )
        _leads_on(run, target.name)
        message = None if request is None else request.message
        answer = _text(edge.get_transfer_message(target) if message is None else message)
        await _call_back(run, edge, value if edge.input_type is not None else reason)
    except _Refused as no:
        return _not_made(wanted, str(no), refusal=no.refusal)
    except Exception as error:
        return _not_made(wanted, clip(reason_of(error), _LONGEST_REASON), exception=error)
    return Transfer(
        call=call,
        edge=edge,
        answer=answer,
        target=target,
        handler=handler,
        input=value,
        reason=reason,
        by_tool=request is not None,
    )


def _text(message: object) -> str:
    if not isinstance(message, str):
        raise TypeError(f"get_transfer_message must return text, not {type(message).__name__}")
    return message


def _not_made(
    wanted: Wanted,
    why: str,
    *,
    refusal: Literal["limit", "loop"] | None = None,
    exception: BaseException | None = None,
) -> Transfer:
    answer = f"The transfer to {wanted.edge.agent_name!r} was not made: {why}"
    return replace(passed_over(wanted, why), answer=answer, refusal=refusal, exception=exception)


def passed_over(wanted: Wanted, why: str) -> Transfer:
    """Return a transfer that is not even tried; what a tool gave along with it is kept."""
    call, edge, request = wanted
    if request is None:
        return Transfer(call=call, edge=edge, answer=why, error=why)
    reason = request.reason or edge.reason
    given = request.input
    return Transfer(call=call, edge=edge, answer=why, error=why, input=given, reason=reason, by_tool=True)


def _arguments(wanted: Wanted) -> str:
    """Return as JSON text what the model or the tool passed along."""
    if wanted.request is None:
        return wanted.call["function"].get("arguments") or ""
    given = wanted.request.input
    return "{}" if given is None else to_json(given, fallback=str).decode()


def _given(edge: Handoff, request: HandoffRequest) -> tuple[Any, str | None]:
    """Return the input and the reason that a tool gave; what the handoff declares to take is checked."""
    value = request.input
    if edge.input_type is not None:
        try:
            value = edge.input_type.parse(to_json(value, fallback=str).decode(), strict=True)
        except ModelBehaviorError as error:
            raise _Refused(str(error)) from error
    return value, request.reason or edge.reason


def _parse(edge: Handoff, call: ToolCall) -> tuple[Any, str | None]:
    """Return the parsed input and the reason that the model gave, if any."""
    arguments = call["function"].get("arguments") or ""
    if edge.input_type is not None:
        try:
            value = edge.input_type.parse(arguments, strict=True)
        except ModelBehaviorError as error:
            raise _Refused(str(error)) from error
        return value, edge.reason
    return None, _reason(edge, arguments)


def _reason(edge: Handoff, arguments: str) -> str | None:
    """Return why the model wants the transfer, or else why the declaration does."""
    try:
        plain: object = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        raise _Refused(describe_error(error, arguments)) from error
    if plain is not None and not isinstance(plain, dict):
        raise _Refused("the arguments must be a JSON object, such as {}")
    reason = cast("dict[str, Any]", plain or {}).get("reason")
    said = str(reason) if reason else None
    return said or edge.reason or ("No reason provided" if edge.ask_reason else None)


def _within_limit(run: RunState) -> None:
    taken = sum(record.status == "taken" for record in run.handoffs)
    if run.config.max_handoffs is not None and taken >= run.config.max_handoffs:
        raise _Refused(
            f"the limit of {run.config.max_handoffs} transfers is reached; answer the user yourself",
            refusal="limit",
        )


def _leads_on(run: RunState, target: str) -> None:
    if run.config.detect_loops and run.progress.goes_round(run.in_charge, target):
        raise _Refused(
            "this transfer was already made and nothing new has come up since; "
            "answer the user yourself, or say what is missing",
            refusal="loop",
        )


async def _call_back(run: RunState, edge: Handoff, value: Any) -> None:
    if edge.on_handoff is None:
        return
    if edge.on_handoff_takes_input:
        await resolve(edge.on_handoff(run.now(), value))
    else:
        await resolve(edge.on_handoff(run.now()))


async def _find_target(run: RunState, wanted: Wanted) -> Agent[Any] | Handler:
    edge = wanted.edge
    target: object = edge.target
    if edge.on_invoke_handoff is not None:
        target = await resolve(edge.on_invoke_handoff(run.now(), _arguments(wanted)))
    if isinstance(target, str):
        target = find_agent(run.graph, target, run.agent.name)
    if target is run.agent:
        raise _Refused("an agent cannot hand off to itself")
    if not isinstance(target, Agent) and not callable(getattr(target, "stream", None)):
        raise _Refused(f"on_invoke_handoff must return an Agent or a Handler, not {type(target).__name__}")
    found = cast("Agent[Any] | Handler", target)
    if not isinstance(found, Agent) and found.name == run.handler.name:
        raise _Refused("it is in charge already; answer the user yourself")
    if not _permitted(run, edge, found):
        raise _Refused("whoever is asking may not reach it; answer the user yourself")
    if isinstance(found, Agent) and run.graph.get(found.name, found) is not found:
        raise _Refused(f"another agent of this run is named {found.name!r}, too")
    return found


def _permitted(run: RunState, edge: Handoff, target: Agent[Any] | Handler) -> bool:
    """Whether the scopes of the run open both the way and what it leads to."""
    if not permits(edge.scope or "all", run.scopes):
        return False
    return isinstance(target, Agent) or run.agent.equipment.opens(target, run.scopes)


def record(run: RunState, transfer: Transfer, status: Any = None) -> None:
    """Put a transfer on the result, taken or not."""
    by_tool = transfer.by_tool
    run.handoffs.append(
        HandoffRecord(
            id=f"h-{run.run_id}-{len(run.handoffs) + 1}",
            source=run.in_charge,
            target=transfer.target_name,
            tool_name=transfer.call["function"]["name"] if by_tool else transfer.edge.tool_name,
            call_id=transfer.call["id"],
            turn=run.turn,
            status=status or ("failed" if transfer.target is None else "taken"),
            requested_by="tool" if by_tool else "model",
            reason=transfer.reason,
            input=transfer.input,
            error=transfer.error,
        )
    )


async def take_over(run: RunState, transfer: Transfer) -> None:
    """Reshape the view for the target and make it the active agent or handler.

    Transfers that were not taken, in this turn or before, are left out of the view: what they ask for
    would lead the target astray.

    Args:
        run: the run, with every call of the turn answered.
        transfer: one that was made.

    Raises:
        HandoffFilterError: the input filter or the history mapper failed. The transcript is complete.
    """
    source, target, handler, speaker = run.agent, transfer.target, transfer.handler, run.in_charge
    assert target is not None
    assert handler is not None
    not_taken = {
        record.call_id
        for record in run.handoffs
        if record.status == "not_taken" and record.requested_by == "model"
    }
    if not_taken:
        run.view.replace(_without_calls(run.view.items, not_taken))
    try:
        await _reshape(run, transfer)
    except HandoffFilterError as error:
        run.handoffs = [
            replace(one, status="failed", error=str(error)) if one.call_id == transfer.call["id"] else one
            for one in run.handoffs
        ]
        raise
    if isinstance(target, Agent):
        run.source_prompt = await _passed_on(run) if transfer.edge.transfer_system_message else None
    run.progress.transferred(speaker, target.name)
    _log.info("%s -> %s in turn %d of run %s", speaker, target.name, run.turn, run.run_id)
    await tell(run, "on_handoff", source, target)
    if isinstance(target, Agent):
        run.graph = {**target.graph, **run.graph}
        run.switch(target, handler, given=transfer.input)
        await tell(run, None, source, agent_hook="on_handoff")
    else:
        run.switch(source, handler, given=transfer.input)


async def _passed_on(run: RunState) -> str | None:
    """Return the source's instructions as a section of the target's."""
    prompt = await instructions(run)
    return f"# Instructions of the previous agent, {run.agent.name}\n{prompt}" if prompt else None


async def _reshape(run: RunState, transfer: Transfer) -> None:
    chosen = _shaping(run, transfer.edge)
    if chosen is None:
        return
    history, before, new = partition(run.view.items, run.input_count, run.first_of_turn)
    data = HandoffInputData(
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        run_context=run.now(),
        source=run.in_charge,
        target=transfer.target_name,
        arguments=transfer.input,
        reason=transfer.reason,
        tool_call_id=transfer.call["id"],
    )
    name, apply, own = chosen
    items = await filtered(apply, data, name, own=own)
    if transfer.reason and all(item.message["role"] in ("system", "developer") for item in items):
        reason: Message = {"role": "user", "content": transfer.reason}
        items.append(RunItem(id=len(run.items) - 1, kind="filter", message=reason))
    run.view.replace(items)


def _shaping(run: RunState, edge: Handoff) -> tuple[str, HandoffInputFilter, bool] | None:
    """Choose what shapes the target's view: the edge's own wish, then the run's filter, then nesting.

    Return its name, itself, and whether it is interlock's own and so known not to edit in place.
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

    def fold(data: HandoffInputData) -> Awaitable[HandoffInputData]:
        return nest_handoff_history(
            data,
            history_mapper=run.config.handoff_history_mapper,
            keep_last_user=run.config.nest_keep_last_user,
            wrappers=run.config.history_wrappers,
        )

    return "nest_handoff_history", fold, True


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
