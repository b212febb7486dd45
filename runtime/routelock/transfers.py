"""Asking for a transfer: everything that can fail about one, before anything changes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from routelock._callables import is_failure, resolve
from routelock._json import unshared
from routelock._records import maker, record
from routelock.acceptance import LONGEST_REASON, Agreed, Refused, RefusedBy, Target, arguments_of, ask
from routelock.agents.agent import Agent
from routelock.errors import ModelBehaviorError
from routelock.handlers.port import Handler
from routelock.handoff_request import REMADE_REQUEST, REQUEST, HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import Place
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload, sent_by
from routelock.history.messages import ToolCall
from routelock.models import handler_for, load
from routelock.routing import Wanted
from routelock.run import Run
from routelock.tools.invoke import reason_of
from routelock.tools.schema import clip, describe_error

__all__ = ["Transfer", "cut_short", "edge_for", "passed_over", "refused", "try_transfer"]

CANCELLED = "it was cancelled before it was decided"


@record(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What became of one transfer call. Without a ``target`` it was not made, and ``error`` says why."""

    call: ToolCall
    edge: Handoff
    request: HandoffRequest
    """As the target was asked."""
    answer: str
    status: HandoffStatus
    target: Target | None = None
    handler: Handler | None = None
    """What answers from then on."""
    place: Place | None = None
    """The target's place, see ``RunConfig.capacity``."""
    error: str | None = None
    refusal: RefusedBy | None = None
    """The model's arguments, or the run's own limit: asking again beyond a limit ends the run."""
    exception: BaseException | None = None
    by_tool: bool = False
    """Whether a tool asked for it, and not the model."""
    tried: bool = True
    passed_over: tuple[tuple[str, str], ...] = ()
    """Who else was asked, and why each did not take over."""
    said: HandoffResponse | None = None
    """The answer of the target, if it was asked."""
    started: float = 0.0

    @property
    def returns(self) -> bool:
        """Whether the source waits for the target's output, as the answer to its call."""
        return self.target is not None and self.edge.return_to_caller

    @property
    def waits(self) -> bool:
        """Whether the source may go on later: it waits for the output, or in case the target is too slow."""
        seconds = self.edge.run_timeout
        return self.returns or (self.target is not None and seconds is not None and seconds < math.inf)

    @property
    def input(self) -> Any:
        """What was passed along."""
        return self.request.input

    @property
    def payload(self) -> HandoffPayload | None:
        """The data that rides along."""
        return cast("HandoffPayload | None", self.request.payload)

    @property
    def reason(self) -> str | None:
        """Why."""
        return self.request.reason

    @property
    def target_name(self) -> str:
        """The name of where it went, or was to go."""
        return self.edge.agent_name if self.target is None else self.target.name


_TRANSFER = maker(Transfer)


def edge_for(run: Run, request: HandoffRequest) -> Handoff | None:
    """Return the way to what a tool asks to hand over to; None when there is nothing of that name.

    A handoff that the agent declares counts with its filter and callback, offered or not. An object is
    itself, and not another one of the same name. What the request says of its own is added.

    Raises:
        ConfigError: the object can answer nothing.
    """
    edge = _way_to_capable(run, request) if request.to_agent is None else _way_to(run, request.to_agent)
    if edge is None:
        return None
    own: dict[str, Any] = {
        name: value
        for name, value in (
            ("timeout", request.timeout),
            ("payload", request.payload),
            ("capabilities_required", _both(edge, request)),
        )
        if value is not None
    }
    if not request.preserve_context and edge.preserve_context:
        own |= {"preserve_context": False, "input_filter": None}
    return replace(edge, **own) if own else edge


def _both(edge: Handoff, request: HandoffRequest) -> Sequence[str] | None:
    """Return what the way and the request require together: a tool cannot ask for less than was declared."""
    more = [name for name in request.capabilities_required if name not in edge.capabilities_required]
    return (*edge.capabilities_required, *more) if more else None


def _way_to_capable(run: Run, request: HandoffRequest) -> Handoff:
    """Return the way to an agent that can do what is required: the declared one for just that, if any."""
    required = request.capabilities_required
    for edge in run.agent.edges:
        found_later = edge.target is None and edge.on_invoke_handoff is None
        if found_later and set(edge.capabilities_required) == set(required):
            return edge
    return Handoff(capabilities_required=required)


def _way_to(run: Run, target: Any) -> Handoff | None:
    for edge in run.agent.edges:
        end = run.graph.get(edge.target) if isinstance(edge.target, str) else edge.target
        if target == edge.agent_name if isinstance(target, str) else target is end:
            return edge
    for edge in run.agent.edges:  # one of several: what is declared holds, and nobody else is asked
        for one in edge.others:
            name = one if isinstance(one, str) else one.name
            end = run.graph.get(one) if isinstance(one, str) else one
            if target == name if isinstance(target, str) else target is end:
                return replace(edge, target=one, others=(), agent_name="")
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := run.agent.equipment.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=run.graph[target]) if target in run.graph else None


async def try_transfer(run: Run, wanted: Wanted) -> Transfer:
    """Do all that can fail about a transfer, before anything changes.

    Whatever goes wrong becomes the answer to the model's call: the source stays in charge and knows
    why. Also a cancellation does: it is the ``exception`` then, for the
    caller to raise when the transfer is on record.
    """
    started = run.config.clock()
    request = _request(run, wanted)
    asked: Agreed | None = None
    try:
        request = _with_input(wanted, request)
        _within_limit(run)
        if wanted.edge.payload is not None:
            request = replace(request, payload=await _payload(run, wanted.edge, request))
        asked = await ask(run, wanted, request)
        return await _prepared(run, wanted, request, asked, started)
    except BaseException as error:
        if asked is not None and asked.place is not None:
            asked.place.release()
        return replace(_not_made(wanted, request, error), started=started)


async def _prepared(
    run: Run, wanted: Wanted, request: HandoffRequest, asked: Agreed, started: float
) -> Transfer:
    """Do what is left once the target has agreed."""
    edge, target = wanted.edge, asked.target
    if isinstance(target, Agent):
        handler = handler_for(target, run.config, run.failed_of(target))
    else:
        handler = target
    message = edge.get_transfer_message(target) if request.message is None else request.message
    if not isinstance(cast(object, message), str):
        raise TypeError(f"get_transfer_message must return text, not {type(message).__name__}")
    if edge.on_handoff is not None:
        value = request.input if edge.input_type is not None else request.reason
        given = (run.now(), value) if edge.on_handoff_takes_input else (run.now(),)
        await resolve(edge.on_handoff(*given))
    return _TRANSFER(
        call=wanted.call,
        edge=edge,
        request=_asked_of(target.name, request),
        answer=message,
        status=HandoffStatus.PENDING.to(HandoffStatus.ACCEPTED, request.request_id),
        target=target,
        handler=handler,
        place=asked.place,
        by_tool=wanted.request is not None,
        passed_over=tuple(asked.passed_over),
        said=asked.response,
        started=started,
    )


def _asked_of(name: str, request: HandoffRequest) -> HandoffRequest:
    return request if request.to_agent == name else REMADE_REQUEST(request, to_agent=name)


def _not_made(wanted: Wanted, request: HandoffRequest, error: BaseException) -> Transfer:
    name, said = wanted.edge.agent_name, None
    if isinstance(error, Refused):
        said = error.response
        why, status, exception = str(error), error.status, error.cause
        others = "; ".join(f"{agent}: {reason}" for agent, reason in error.passed_over)
        told = clip(f"{why} ({others})", LONGEST_REASON) if others else why
        refusal, passed = error.refusal, error.passed_over
    else:
        cancelled = not is_failure(error)
        why = told = CANCELLED if cancelled else clip(reason_of(error), LONGEST_REASON)
        status, exception, refusal, passed = HandoffStatus.FAILED, error, None, ()
    return Transfer(
        call=wanted.call,
        edge=wanted.edge,
        request=request,
        answer=f"The transfer to {name!r} was not made: {told}",
        status=HandoffStatus.PENDING.to(status, request.request_id),
        error=why,
        refusal=refusal,
        exception=exception,
        by_tool=wanted.request is not None,
        passed_over=passed,
        said=said,
    )


def refused(run: Run, wanted: Wanted, why: str) -> Transfer:
    """Return a transfer that cannot be made."""
    transfer = _not_made(wanted, _request(run, wanted), Refused(why))
    return replace(transfer, started=run.config.clock())


def cut_short(run: Run, wanted: Wanted, error: BaseException) -> Transfer:
    """Return a transfer to which the run did not come any more."""
    ended = f"the turn ended before: {reason_of(error)}" if isinstance(error, Exception) else CANCELLED
    why = clip(ended, LONGEST_REASON)
    return replace(passed_over(run, wanted, why), status=HandoffStatus.FAILED)


def passed_over(run: Run, wanted: Wanted, why: str) -> Transfer:
    """Return a transfer that is not even tried; what a tool gave along with it is kept."""
    now = run.config.clock()
    return Transfer(
        call=wanted.call,
        edge=wanted.edge,
        request=_request(run, wanted),
        answer=why,
        status=HandoffStatus.REJECTED,
        error=why,
        by_tool=wanted.request is not None,
        tried=False,
        started=now,
    )


# -- the request --


def _request(run: Run, wanted: Wanted) -> HandoffRequest:
    """Return what is asked of the target, as far as it is known before the arguments are read."""
    edge, given = wanted.edge, wanted.request
    return REQUEST(
        to_agent=edge.agent_name,
        input=None if given is None else given.input,
        reason=edge.reason if given is None else given.reason or edge.reason,
        message=None if given is None else given.message,
        from_agent=run.in_charge,
        request_id=run.next_handoff_id(),
        preserve_context=edge.preserve_context,
        capabilities_required=tuple(edge.capabilities_required),
        timeout=None if edge.timeout == math.inf else edge.timeout,  # a record is JSON, which has no infinity
        context_snapshot=None if given is None else given.context_snapshot,
        priority=edge.priority if given is None else given.priority or edge.priority,
        metadata={**edge.metadata, **({} if given is None else given.metadata)},
    )


def _with_input(wanted: Wanted, request: HandoffRequest) -> HandoffRequest:
    """Return the request with what the model or the tool passed along, checked."""
    edge = wanted.edge
    if edge.input_type is not None:
        try:
            value = edge.input_type.parse(arguments_of(wanted), strict=True)
        except ModelBehaviorError as error:
            by_model = wanted.request is None
            raise Refused(str(error), refusal="arguments" if by_model else None) from error
        return REMADE_REQUEST(request, input=value)
    if wanted.request is not None:
        return request
    reason = _reason(edge, wanted.call["function"].get("arguments") or "")
    return request if reason == request.reason else REMADE_REQUEST(request, reason=reason)


def _reason(edge: Handoff, arguments: str) -> str | None:
    """Return why the model wants the transfer, or else why the declaration does."""
    reason = None if arguments in ("", "{}") else _said(arguments)
    return reason or edge.reason or ("No reason provided" if edge.ask_reason else None)


def _said(arguments: str) -> str | None:
    try:
        plain: object = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        raise Refused(describe_error(error, arguments), refusal="arguments") from error
    if plain is not None and not isinstance(plain, dict):
        raise Refused("the arguments must be a JSON object, such as {}", refusal="arguments")
    reason = cast("dict[str, Any]", plain or {}).get("reason")
    return str(reason) if reason else None


def _within_limit(run: Run) -> None:
    most = run.config.max_handoffs
    if most is None or len(run.handoffs) < most or sum(record.taken for record in run.handoffs) < most:
        return
    raise Refused(f"the limit of {most} transfers is reached; answer the user yourself", refusal="limit")


async def _payload(run: Run, edge: Handoff, request: HandoffRequest) -> HandoffPayload | None:
    given: Any = edge.payload
    if callable(given):
        given = await resolve(given(run.now(), request.input))
    if given is None:
        return None
    from routelock.handoffs.payload_types import HandoffTypes  # noqa: PLC0415 - for those who pass data along

    types = run.config.handoff_types or HandoffTypes()
    sent = sent_by(run.in_charge, given)
    sent = replace(sent, context_data=unshared(sent.context_data))  # the run may change its own, not theirs
    payload, warning = types.check(sent, strict=run.config.strict_payloads)
    if warning is not None:
        run.warn(f"turn {run.turn}: {warning}")
    return payload
