"""Whether a target may take over: its declared handoffs, ``RunConfig.available``, ``on_handoff_request``."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import anyio

from routelock._callables import is_error, resolve
from routelock._copies import unshared
from routelock.agents.agent import Agent
from routelock.context import RunContext, scoped
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import CapabilityRouter
from routelock.handoffs.handoff import Handoff
from routelock.run.emit import log
from routelock.run.frames import earliest_deadline
from routelock.run.handoff_attempt import HandoffAttempt, Target
from routelock.run.handoff_refused import HandoffRefused
from routelock.run.run import Run
from routelock.scopes import permits
from routelock.tools.failures import reason_of

__all__ = [
    "NOT_PERMITTED",
    "Deadline",
    "check_availability",
    "check_consent",
    "check_declared",
]


_log = logging.getLogger("routelock.handoff")

T = TypeVar("T")


class Deadline:
    """The time by which a target has to accept; the check of its availability is within it."""

    __slots__ = ("_callers_at", "_why", "at")

    def __init__(self, run: Run, edge: Handoff, target: Target) -> None:
        self._callers_at = earliest_deadline(run.callers)
        seconds = math.inf if edge.timeout is None else edge.timeout
        self.at: float = min(self._callers_at, anyio.current_time() + seconds)
        self._why = f"{target.name!r} did not accept within {seconds:g} s"

    async def ask(self, run: Run, target: Target, failed: str, function: Callable[[], Awaitable[T]]) -> T:
        """Call a function of the app about a target.

        Args:
            run: the run.
            target: the target.
            failed: what is logged if the function raises, with ``%r`` for the name of the target.
            function: calls the function.

        Raises:
            HandoffRefused: it raised its ``cause``; or the deadline has passed, interrupted or not.
        """
        with anyio.CancelScope(deadline=self.at):
            try:
                answer = await function()
            except BaseException as error:
                if not is_error(error):
                    raise
                log(run, _log, logging.ERROR, failed, target.name, error=error)
                raise HandoffRefused(reason_of(error), cause=error) from error
            if anyio.current_time() <= self.at:
                return answer
        over = f"the caller of {run.active_name!r} timed out"
        raise HandoffRefused(self._why if self.at < self._callers_at else over, status=HandoffStatus.EXPIRED)


async def check_availability(run: Run, target: Target, deadline: Deadline) -> None:
    """Ask ``RunConfig.available``; if it raises, the target counts as not available."""
    if run.config.available is None:
        return
    router = CapabilityRouter((target,), cast(Any, run.config.available))
    why = await deadline.ask(run, target, "available raised, asked about %r", lambda: router.check(target))
    if why is not None:
        raise HandoffRefused(why)


async def check_consent(run: Run, attempt: HandoffAttempt, target: Target, deadline: Deadline) -> None:
    """Ask the target's own ``on_handoff_request``, and keep its response."""
    if not isinstance(target, Agent) or target.on_handoff_request is None:
        return
    call = partial(_call_on_handoff_request, run, attempt.edge, target, attempt.request_for(target.name))
    try:
        answer = await deadline.ask(run, target, "on_handoff_request of agent %r raised", call)
    except HandoffRefused as refused:
        if refused.cause is not None:
            attempt.response = HandoffResponse(from_agent=target.name)
        raise
    if not isinstance(answer, HandoffResponse | None):
        raise HandoffRefused(f"on_handoff_request must return a HandoffResponse or None, not {answer!r:.80}")
    given = answer or HandoffResponse.accept()
    response = replace(given, from_agent=target.name, metadata=unshared(dict(given.metadata)))
    attempt.response = response
    if not response.accepted:
        status = response.status if response.status is HandoffStatus.EXPIRED else HandoffStatus.REJECTED
        raise HandoffRefused(str(response.rejection_reason or f"{target.name!r} declined"), status=status)


async def _call_on_handoff_request(
    run: Run, edge: Handoff, target: Agent[Any], request: HandoffRequest
) -> object:
    hook: Any = target.on_handoff_request
    if "on_handoff_request" not in target.hooks_with_context:
        return cast(object, await resolve(hook(request)))
    return cast(object, await resolve(hook(request, _context_for_target(run, edge))))


def _context_for_target(run: Run, edge: Handoff) -> RunContext[Any]:
    """Return the context with as much of the shared memory as the target would see, see ``Handoff.share``."""
    now = run.now()
    if edge.share is None:
        return now
    return replace(now, shared_memory=scoped(now.shared_memory, edge.share).inner)


NOT_PERMITTED = "the scopes of this run do not permit it; answer the user yourself"


def check_declared(run: Run, edge: Handoff, target: Target) -> None:
    """Check that a target found by capability does not bypass the handoffs that are declared to it.

    Raises:
        HandoffRefused: none of them is open to the run, or each of them needs an approval.
    """
    declared = [each for each in run.frame.agent.edges if _leads_to(each, target)]
    if declared and not any(permits(each.scope or "all", run.scopes) for each in declared):
        raise HandoffRefused(NOT_PERMITTED)
    if declared and edge.needs_approval is False and all(e.needs_approval is not False for e in declared):
        gate = declared[0].tool_name
        raise HandoffRefused(f"it needs an approval: call {gate}, which can wait for one")


def _leads_to(edge: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (edge.target, *edge.others))
