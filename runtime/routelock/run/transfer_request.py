"""Asking for a transfer: everything that can fail about one, before anything changes."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import anyio

from routelock._callables import is_error, resolve
from routelock._json import unshared
from routelock._text import clip
from routelock.agents.agent import Agent, find_agent
from routelock.context import RunContext, scoped
from routelock.errors import ModelBehaviorError
from routelock.handlers.port import Handler
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import (
    AT_MAXIMUM,
    NONE_AVAILABLE,
    NONE_CAPABLE,
    CapabilityRouter,
    Slot,
    missing_capability,
)
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload, sent_by
from routelock.history.messages import ToolCall
from routelock.run.emit import log
from routelock.run.frames import earliest_deadline
from routelock.run.handler_selection import handler_for, load
from routelock.run.routing import Wanted
from routelock.run.run import Run
from routelock.scopes import permits
from routelock.tools.invoke import reason_of
from routelock.tools.schema import describe_error

__all__ = [
    "LONGEST_REASON",
    "Agreed",
    "Refused",
    "RefusedBy",
    "Target",
    "Transfer",
    "arguments_of",
    "ask",
    "cut_short",
    "data_of",
    "edge_for",
    "passed_over",
    "refused",
    "try_transfer",
]

GOES_ROUND = (
    "this transfer was already made and nothing new has come up since; "
    "answer the user yourself, or say what is missing"
)

LONGEST_REASON = 700  # characters of an error: it stays in the history and is paid for again

_log = logging.getLogger("routelock.handoff")

Target = Agent[Any] | Handler

RefusedBy = Literal["arguments", "limit", "loop"]
"""What refused a transfer that no target declined: the model's arguments, or a limit of the run."""


class Refused(Exception):
    """Why a transfer is not made: the model's arguments, a limit of the run, or the target."""

    def __init__(
        self,
        why: str,
        *,
        refusal: RefusedBy | None = None,
        status: HandoffStatus = HandoffStatus.REJECTED,
        passed_over: Sequence[tuple[str, str]] = (),
        cause: BaseException | None = None,
        response: HandoffResponse | None = None,
    ) -> None:
        super().__init__(clip(why, LONGEST_REASON))
        self.refusal: RefusedBy | None = refusal
        self.status = status
        self.passed_over = tuple(passed_over)
        self.cause = cause
        self.response = response


@dataclass(slots=True)
class Agreed:
    """A target that said yes, with the place it holds."""

    target: Target
    place: Slot | None = None
    passed_over: list[tuple[str, str]] = field(default_factory=lambda: [])
    response: HandoffResponse | None = None
    """What it said, if it was asked."""


class _Late:
    """How long a target has to accept; the look-up whether it is available is within that time."""

    def __init__(self, run: Run, target: Target, request: HandoffRequest) -> None:
        self._patience = earliest_deadline(run.callers)
        own = math.inf if request.timeout is None else anyio.current_time() + request.timeout
        self.deadline = min(self._patience, own)
        self._why = f"{target.name!r} did not accept within {request.timeout:g} s" if own < math.inf else ""
        self._caller = run.active_name

    def check(self, scope: anyio.CancelScope) -> None:
        """Raise if the time was over within ``scope``, also for what could not be interrupted."""
        if scope.cancelled_caught or anyio.current_time() > self.deadline:
            over = f"the caller of {self._caller!r} timed out"
            raise Refused(self._why if self.deadline < self._patience else over, status=HandoffStatus.EXPIRED)


CANCELLED = "it was cancelled before it was decided"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    place: Slot | None = None
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
    return Transfer(
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
    return request if request.to_agent == name else replace(request, to_agent=name)


def _not_made(wanted: Wanted, request: HandoffRequest, error: BaseException) -> Transfer:
    name, said = wanted.edge.agent_name, None
    if isinstance(error, Refused):
        said = error.response
        why, status, exception = str(error), error.status, error.cause
        others = "; ".join(f"{agent}: {reason}" for agent, reason in error.passed_over)
        told = clip(f"{why} ({others})", LONGEST_REASON) if others else why
        refusal, passed = error.refusal, error.passed_over
    else:
        cancelled = not is_error(error)
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
    return HandoffRequest(
        to_agent=edge.agent_name,
        input=None if given is None else given.input,
        reason=edge.reason if given is None else given.reason or edge.reason,
        message=None if given is None else given.message,
        from_agent=run.active_name,
        request_id=run.handoffs.next_id(),
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
        return replace(request, input=value)
    if wanted.request is not None:
        return request
    reason = _reason(edge, wanted.call["function"].get("arguments") or "")
    return request if reason == request.reason else replace(request, reason=reason)


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
    records = run.handoffs.records
    if most is None or len(records) < most or sum(one.taken for one in records) < most:
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
    sent = sent_by(run.active_name, given)
    sent = replace(sent, context_data=unshared(sent.context_data))  # the run may change its own, not theirs
    payload, warning = types.check(sent, strict=run.config.strict_payloads)
    if warning is not None:
        run.warn(f"turn {run.turn}: {warning}")
    return payload


async def ask(run: Run, wanted: Wanted, request: HandoffRequest) -> Agreed:
    """Ask the targets of a handoff in order, and return the first that agrees.

    Raises:
        Refused: none does. With a single target the reason is its own.
    """
    edge = wanted.edge
    if edge.target is None and edge.on_invoke_handoff is None:
        nearest_first = {**run.frame.agent.graph, **run.graph}  # wherever the run has been before
        candidates: list[object] = [each for each in nearest_first.values() if each is not run.frame.agent]
        none_left = NONE_CAPABLE
    else:
        candidates = [edge.target, *edge.others]
        none_left = NONE_AVAILABLE
    passed: list[tuple[str, str]] = []
    for each in candidates:
        try:
            target = await _target(run, each, wanted)
            place, response = await _agreed(run, edge, target, request)
        except Refused as no:
            if len(candidates) == 1 and none_left is NONE_AVAILABLE:
                raise
            passed.append((str(getattr(each, "name", each)), str(no)))
        else:
            return Agreed(target, place, passed, response)
    raise Refused(none_left, passed_over=passed)


async def _target(run: Run, target: object, wanted: Wanted) -> Target:
    edge = wanted.edge
    if edge.on_invoke_handoff is not None:
        target = await resolve(edge.on_invoke_handoff(run.now(), arguments_of(wanted)))
    if isinstance(target, str):
        target = find_agent(run.graph, target, run.frame.agent.name)
    if target is run.frame.agent:
        raise Refused("an agent cannot hand off to itself")
    if not isinstance(target, Agent) and not callable(getattr(target, "stream", None)):
        raise TypeError(f"on_invoke_handoff must return an Agent or a Handler, not {type(target).__name__}")
    found = cast("Target", target)
    if not isinstance(found, Agent) and found.name == run.frame.handler.name:
        raise Refused("it is in charge already; answer the user yourself")
    if why := _barred(run, edge, found):
        raise Refused(why)
    if isinstance(found, Agent) and run.graph.get(found.name, found) is not found:
        raise Refused(f"another agent of this run is named {found.name!r}, too")
    return found


def _barred(run: Run, edge: Handoff, target: Target) -> str | None:
    """Say why this way does not lead to the target, if it does not."""
    if not _permitted(run, edge, target):
        return "whoever is asking may not reach it; answer the user yourself"
    gate = _gate(run, edge, target)
    return f"it needs somebody's approval: call {gate}, which can wait for it" if gate else None


def _permitted(run: Run, edge: Handoff, target: Target) -> bool:
    """Whether the scopes of the run open both the way and what it leads to."""
    if not permits(edge.scope or "all", run.scopes):
        return False
    if not isinstance(target, Agent):
        return run.frame.agent.registered.opens(target, run.scopes)
    if edge.target is not None or edge.on_invoke_handoff is not None:
        return True
    # found by what it can do: that must not get round the scope of the way that is declared
    ways = _ways(run, target)
    return not ways or any(permits(way.scope or "all", run.scopes) for way in ways)


def _gate(run: Run, edge: Handoff, target: Target) -> str | None:
    """Return the tool for a target that was found by what it can do, if each declared way needs approval."""
    if edge.target is not None or edge.on_invoke_handoff is not None or edge.needs_approval is not False:
        return None
    ways = _ways(run, target)
    return ways[0].tool_name if ways and all(way.needs_approval is not False for way in ways) else None


def _ways(run: Run, target: Target) -> list[Handoff]:
    """Return the declared ways to a target."""
    return [way for way in run.frame.agent.edges if _leads_to(way, target)]


def _leads_to(way: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (way.target, *way.others))


async def _agreed(
    run: Run, edge: Handoff, target: Target, request: HandoffRequest
) -> tuple[Slot | None, HandoffResponse | None]:
    """Ask one target: what it can do, whether it is available, and whether it wants to.

    It is not asked for what the run would not let happen anyway.
    """
    if run.config.detect_loops and run.progress.is_repeated(run.active_name, target.name, data_of(request)):
        raise Refused(GOES_ROUND, refusal="loop")
    if why := missing_capability(target, request.capabilities_required):
        raise Refused(why)
    consents = isinstance(target, Agent) and target.on_handoff_request is not None
    late = _Late(run, target, request) if consents or run.config.available is not None else None
    if run.config.available is not None and late is not None:
        await _check_available(run, target, late)
    place = None
    if run.config.capacity is not None and (place := run.config.capacity.take(target)) is None:
        raise Refused(AT_MAXIMUM)
    response: HandoffResponse | None = None
    try:
        if isinstance(target, Agent) and consents and late is not None:
            response = await _consent(run, edge, target, _copy(request, target.name), late)
    except BaseException:
        if place is not None:
            place.release()
        raise
    return place, response


async def _check_available(run: Run, target: Target, late: _Late) -> None:
    """See whether the target is available. What raises, and so cannot say yes, has said no."""
    router = CapabilityRouter((target,), cast(Any, run.config.available))
    why: str | None = None
    with anyio.CancelScope(deadline=late.deadline) as scope:
        try:
            why = await router.check(target)
        except BaseException as error:
            if not is_error(error):
                raise
            log(run, _log, logging.ERROR, "available raised, asked about %r", target.name, error=error)
            raise Refused(reason_of(error), cause=error) from error
    late.check(scope)
    if why is not None:
        raise Refused(why)


def _copy(request: HandoffRequest, target: str) -> HandoffRequest:
    """Return the request as one target is shown it: what that one changes in it is its own."""
    sent = cast("HandoffPayload | None", request.payload)
    return replace(
        request,
        to_agent=target,
        input=unshared(request.input),
        metadata=unshared(request.metadata),
        payload=None if sent is None else replace(sent, context_data=unshared(sent.context_data)),
    )


async def _asked(run: Run, edge: Handoff, target: Agent[Any], request: HandoffRequest) -> object:
    hook: Any = target.on_handoff_request
    if "on_handoff_request" not in target.hooks_with_context:
        return cast(object, await resolve(hook(request)))
    return cast(object, await resolve(hook(request, _seen_by_target(run, edge))))


def _seen_by_target(run: Run, edge: Handoff) -> RunContext[Any]:
    """Return the context with as much of the shared memory as the target would see, see ``Handoff.share``."""
    now = run.now()
    return (
        now if edge.share is None else replace(now, shared_memory=scoped(now.shared_memory, edge.share).inner)
    )


async def _consent(
    run: Run, edge: Handoff, target: Agent[Any], request: HandoffRequest, late: _Late
) -> HandoffResponse:
    """Return the target's response, which accepts the request."""
    answer: object = None
    with anyio.CancelScope(deadline=late.deadline) as scope:
        try:
            answer = await _asked(run, edge, target, request)
        except BaseException as error:
            if not is_error(error):
                raise
            log(run, _log, logging.ERROR, "on_handoff_request of agent %r raised", target.name, error=error)
            said = HandoffResponse(from_agent=target.name)
            raise Refused(reason_of(error), cause=error, response=said) from error
    late.check(scope)
    if not isinstance(answer, HandoffResponse | None):
        raise Refused(f"on_handoff_request must return a HandoffResponse or None, not {answer!r:.80}")
    given = answer or HandoffResponse.accept()
    response = replace(given, from_agent=target.name, metadata=unshared(dict(given.metadata)))
    if not response.accepted:
        status = response.status if response.status is HandoffStatus.EXPIRED else HandoffStatus.REJECTED
        why = str(response.rejection_reason or f"{target.name!r} declined")
        raise Refused(why, status=status, response=response)
    return response


def data_of(request: HandoffRequest) -> str:
    """Return the data that is passed along as JSON text; empty when there is none, or it has no such form."""
    if request.input is None:
        return ""
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        return to_json(request.input).decode()
    except ValueError:
        return ""


def arguments_of(wanted: Wanted) -> str:
    """Return as JSON text what the model or the tool passed along."""
    if wanted.request is None:
        return wanted.call["function"].get("arguments") or ""
    if (given := wanted.request.input) is None:
        return "{}"
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    return to_json(given, fallback=str).decode()


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
    for edge in run.frame.agent.edges:
        found_later = edge.target is None and edge.on_invoke_handoff is None
        if found_later and set(edge.capabilities_required) == set(required):
            return edge
    return Handoff(capabilities_required=required)


def _way_to(run: Run, target: Any) -> Handoff | None:
    for edge in run.frame.agent.edges:
        end = run.graph.get(edge.target) if isinstance(edge.target, str) else edge.target
        if target == edge.agent_name if isinstance(target, str) else target is end:
            return edge
    for edge in run.frame.agent.edges:  # one of several: what is declared holds, and nobody else is asked
        for one in edge.others:
            name = one if isinstance(one, str) else one.name
            end = run.graph.get(one) if isinstance(one, str) else one
            if target == name if isinstance(target, str) else target is end:
                return replace(edge, target=one, others=(), agent_name="")
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := run.frame.agent.registered.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=run.graph[target]) if target in run.graph else None
