"""Finding who takes over: the targets of a handoff are asked in order until one agrees.

What a target can do, whether it is available and has a place, and whether it wants to: in this order, and at
the time of the transfer.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal, cast

import anyio

from routelock._callables import is_failure, resolve
from routelock._json import unshared
from routelock._records import NEW_LIST, dataclass
from routelock.agents.agent import Agent, find_agent
from routelock.callers import patience
from routelock.context import RunContext, narrowed
from routelock.handlers.port import Handler
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import (
    AT_MAXIMUM,
    NONE_AVAILABLE,
    NONE_CAPABLE,
    CapabilityRouter,
    Place,
    missing_capability,
)
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload
from routelock.logs import log
from routelock.routing import Wanted
from routelock.run import Run
from routelock.scopes import permits
from routelock.tools.invoke import reason_of
from routelock.tools.schema import clip

__all__ = ["LONGEST_REASON", "Agreed", "Refused", "RefusedBy", "Target", "arguments_of", "ask", "data_of"]

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
    place: Place | None = None
    passed_over: list[tuple[str, str]] = field(default_factory=NEW_LIST)
    response: HandoffResponse | None = None
    """What it said, if it was asked."""


async def ask(run: Run, wanted: Wanted, request: HandoffRequest) -> Agreed:
    """Ask the targets of a handoff in order, and return the first that agrees.

    Raises:
        Refused: none does. With a single target the reason is its own.
    """
    edge = wanted.edge
    if edge.target is None and edge.on_invoke_handoff is None:
        nearest_first = {**run.agent.graph, **run.graph}  # wherever the run has been before
        candidates: list[object] = [each for each in nearest_first.values() if each is not run.agent]
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
        target = find_agent(run.graph, target, run.agent.name)
    if target is run.agent:
        raise Refused("an agent cannot hand off to itself")
    if not isinstance(target, Agent) and not callable(getattr(target, "stream", None)):
        raise TypeError(f"on_invoke_handoff must return an Agent or a Handler, not {type(target).__name__}")
    found = cast("Target", target)
    if not isinstance(found, Agent) and found.name == run.handler.name:
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
        return run.agent.equipment.opens(target, run.scopes)
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
    return [way for way in run.agent.edges if _leads_to(way, target)]


def _leads_to(way: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (way.target, *way.others))


async def _agreed(
    run: Run, edge: Handoff, target: Target, request: HandoffRequest
) -> tuple[Place | None, HandoffResponse | None]:
    """Ask one target: what it can do, whether it is available, and whether it wants to.

    It is not asked for what the run would not let happen anyway.
    """
    if run.config.detect_loops and run.progress.goes_round(run.in_charge, target.name, data_of(request)):
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


class _Late:
    """How long a target has to accept; the look-up whether it is available is within that time."""

    def __init__(self, run: Run, target: Target, request: HandoffRequest) -> None:
        self._patience = patience(run.callers)
        own = math.inf if request.timeout is None else anyio.current_time() + request.timeout
        self.deadline = min(self._patience, own)
        self._why = f"{target.name!r} did not accept within {request.timeout:g} s" if own < math.inf else ""
        self._caller = run.in_charge

    def check(self, scope: anyio.CancelScope) -> None:
        """Raise if the time was over within ``scope``, also for what could not be interrupted."""
        if scope.cancelled_caught or anyio.current_time() > self.deadline:
            over = f"the caller of {self._caller!r} timed out"
            raise Refused(self._why if self.deadline < self._patience else over, status=HandoffStatus.EXPIRED)


async def _check_available(run: Run, target: Target, late: _Late) -> None:
    """See whether the target is available. What raises, and so cannot say yes, has said no."""
    router = CapabilityRouter((target,), cast(Any, run.config.available))
    why: str | None = None
    with anyio.CancelScope(deadline=late.deadline) as scope:
        try:
            why = await router.check(target)
        except BaseException as error:
            if not is_failure(error):
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
    if "on_handoff_request" not in target.told_context:
        return cast(object, await resolve(hook(request)))
    return cast(object, await resolve(hook(request, _seen_by_target(run, edge))))


def _seen_by_target(run: Run, edge: Handoff) -> RunContext[Any]:
    """Return the context with as much of the shared memory as the target would see, see ``Handoff.share``."""
    now = run.now()
    return (
        now
        if edge.share is None
        else replace(now, shared_memory=narrowed(now.shared_memory, edge.share).inner)
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
            if not is_failure(error):
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
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.schema`

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
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.schema`

    return to_json(given, fallback=str).decode()
