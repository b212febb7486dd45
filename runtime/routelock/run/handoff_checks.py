"""The checks that a handoff passes before anything in the run changes."""

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
from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.checked_graph import find_agent
from routelock.context import RunContext, scoped
from routelock.errors import HandoffError
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import (
    AT_MAXIMUM,
    NONE_AVAILABLE,
    NONE_CAPABLE,
    Available,
    missing_capability,
    refusal_in,
)
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import sent_by
from routelock.run.emit import log
from routelock.run.frames import earliest_deadline
from routelock.run.handler_selection import handler_for
from routelock.run.handoff_attempt import CANCELLED, HandoffAttempt, Target
from routelock.run.handoff_refused import LONGEST_REASON, HandoffRefused
from routelock.run.run import Run
from routelock.scopes import permits
from routelock.tools.failures import reason_of

__all__ = ["begin_handoff", "check_handoff", "fail_undecided"]

_log = logging.getLogger("routelock.handoff")

T = TypeVar("T")

_NOT_PERMITTED = "the scopes of this run do not permit it; answer the user yourself"

_REPEATED = (
    "this transfer was already made and nothing new has come up since; "
    "answer the user yourself, or say what is missing"
)


def begin_handoff(run: Run, attempt: HandoffAttempt) -> None:
    """Give an attempt its id, its source and its time; the id counts the records, so record it next.

    The id is the same when the run is replayed.
    """
    handoff_id = f"h-{run.run_id}-{len(run.handoffs.records) + 1}"
    attempt.begin(handoff_id, run.active_name, run.config.clock())


async def check_handoff(run: Run, attempt: HandoffAttempt) -> None:
    """Run all checks of a handoff, find its target, and call ``on_handoff``.

    If a check or a callback fails, the reason becomes the answer to the model's call, and the source stays
    active. The attempt is on record afterwards, even if it was cancelled.
    """
    begin_handoff(run, attempt)
    try:
        attempt.read_input()
        _check_limit(run)
        if attempt.handoff.payload is not None:
            await _check_payload(run, attempt)
        target = await _choose_target(run, attempt)
        await _accept(run, attempt, target)
    except BaseException as error:
        attempt.fail(error)
    attempt.put_on_record(run)
    if attempt.exception is not None and not is_error(attempt.exception):
        raise attempt.exception
    if attempt.slot is not None and attempt.target is not None:
        run.handoffs.hold(attempt.id, attempt.slot)


def fail_undecided(run: Run, attempt: HandoffAttempt, error: BaseException) -> None:
    """Note that the turn ended before it came to the attempt."""
    begin_handoff(run, attempt)
    cancelled = not isinstance(error, Exception)
    why = CANCELLED if cancelled else f"the turn ended before: {reason_of(error)}"
    attempt.skip(clip(why, LONGEST_REASON), HandoffStatus.FAILED)


# -- the checks of the request --


def _check_limit(run: Run) -> None:
    limit = run.config.max_handoffs
    records = run.handoffs.records
    if limit is None or len(records) < limit or sum(one.taken for one in records) < limit:
        return
    raise HandoffRefused(f"the limit of {limit} transfers is reached; answer the user yourself", by="limit")


async def _check_payload(run: Run, attempt: HandoffAttempt) -> None:
    """Make the payload and check its type."""
    given: Any = attempt.handoff.payload
    if callable(given):
        given = await resolve(given(run.current_context(), attempt.own_input()))
    if given is None:
        return
    from routelock.handoffs.payload_types import HandoffTypes  # noqa: PLC0415 - for those who pass data along

    types = run.config.handoff_types or HandoffTypes()
    sent = sent_by(run.active_name, given)
    sent = replace(sent, context_data=unshared(sent.context_data))  # the app keeps its own dict
    attempt.payload, warning = types.check(sent, strict=run.config.strict_payloads)
    if warning is not None:
        run.warn(f"turn {run.turn}: {warning}")


# -- the checks of each candidate --


async def _choose_target(run: Run, attempt: HandoffAttempt) -> Target:
    """Return the first candidate that passes all checks.

    Raises:
        HandoffRefused: none does. If the handoff declares a single target, the reason is its own.
    """
    handoff = attempt.handoff
    if _is_found_by_capability(handoff):
        nearest_first = {**run.frame.agent.graph, **run.graph}  # wherever the run has been before
        candidates: list[object] = [each for each in nearest_first.values() if each is not run.frame.agent]
        none_left, is_single = NONE_CAPABLE, False
    else:
        candidates = [handoff.target, *handoff.others]
        none_left, is_single = NONE_AVAILABLE, not handoff.others
    for each in candidates:
        try:
            return await _check_candidate(run, attempt, each)
        except HandoffRefused as refusal:
            if is_single:
                raise
            attempt.pass_over(each, str(refusal))
    raise HandoffRefused(none_left)


def _is_found_by_capability(handoff: Handoff) -> bool:
    return handoff.target is None and handoff.on_invoke_handoff is None


async def _check_candidate(run: Run, attempt: HandoffAttempt, candidate: object) -> Target:
    """Return the candidate as a target, once it has passed all checks.

    Consent comes last: a target is not asked for what the run would not let happen anyway.
    """
    target = await _resolve_target(run, attempt, candidate)
    _check_scope(run, attempt.handoff, target)
    _check_name(run, target)
    _check_loop(run, attempt, target)
    _check_capabilities(attempt.handoff, target)
    decides = isinstance(target, Agent) and target.on_handoff_request is not None
    is_asked = decides or run.config.available is not None
    deadline = _Deadline(run, attempt.handoff, target) if is_asked else None
    if deadline is not None:
        await _check_availability(run, target, deadline)
    _check_capacity(run, attempt, target)
    if deadline is not None:
        await _check_consent(run, attempt, target, deadline)
    return target


async def _resolve_target(run: Run, attempt: HandoffAttempt, candidate: object) -> Target:
    """Return the agent or handler that a candidate stands for.

    Raises:
        HandoffRefused: it is active already.
        HandoffError: ``on_invoke_handoff`` returned something else.
    """
    handoff = attempt.handoff
    if handoff.on_invoke_handoff is not None:
        candidate = await resolve(handoff.on_invoke_handoff(run.current_context(), attempt.raw_arguments()))
    if isinstance(candidate, str):
        candidate = find_agent(run.graph, candidate, run.frame.agent.name)
    if candidate is run.frame.agent:
        raise HandoffRefused("an agent cannot hand off to itself")
    if not isinstance(candidate, Agent) and not callable(getattr(candidate, "stream", None)):
        kind = type(candidate).__name__
        raise HandoffError(f"on_invoke_handoff must return an Agent or a Handler, not {kind}")
    target = cast("Target", candidate)
    if not isinstance(target, Agent) and target.name == run.frame.handler.name:
        raise HandoffRefused("it is active already; answer the user yourself")
    return target


def _check_scope(run: Run, handoff: Handoff, target: Target) -> None:
    """Refuse a target that the scopes of the run, or an approval that is needed, close to this handoff."""
    is_permitted = handoff.scope in (None, "all") or permits(handoff.scope, run.scopes)
    if is_permitted and not isinstance(target, Agent):
        is_permitted = run.frame.agent.registered.opens(target, run.scopes)
    if not is_permitted:
        raise HandoffRefused(_NOT_PERMITTED)
    if _is_found_by_capability(handoff):
        _check_declared(run, handoff, target)


def _check_name(run: Run, target: Target) -> None:
    if isinstance(target, Agent) and run.graph.get(target.name, target) is not target:
        raise HandoffRefused(f"another agent of this run is named {target.name!r}, too")


def _check_loop(run: Run, attempt: HandoffAttempt, target: Target) -> None:
    if not run.config.detect_loops:
        return
    if run.progress.is_repeated(attempt.source, target.name, attempt.input_text):
        raise HandoffRefused(_REPEATED, by="loop")


def _check_capabilities(handoff: Handoff, target: Target) -> None:
    if handoff.capabilities_required and (why := missing_capability(target, handoff.capabilities_required)):
        raise HandoffRefused(why)


def _check_capacity(run: Run, attempt: HandoffAttempt, target: Target) -> None:
    """Take a capacity slot of the target."""
    if run.config.capacity is None:
        return
    attempt.slot = run.config.capacity.take(target)
    if attempt.slot is None:
        raise HandoffRefused(AT_MAXIMUM)


# -- acceptance --


async def _accept(run: Run, attempt: HandoffAttempt, target: Target) -> None:
    """Find the handler and the answer to the call, and call ``on_handoff``; the target has accepted."""
    handoff, request = attempt.handoff, attempt.tool_request
    if isinstance(target, Agent):
        handler = handler_for(target, run.config, run.failed_of(target) if run.failed_handlers else ())
    else:
        handler = target
    message = None if request is None else request.message
    answer = handoff.get_transfer_message(target) if message is None else message
    if not isinstance(cast(object, answer), str):
        raise TypeError(f"get_transfer_message must return text, not {type(answer).__name__}")
    if handoff.on_handoff is not None:
        value = attempt.own_input() if handoff.input_type is not None else attempt.reason
        arguments = (run.current_context(), value)[: 2 if handoff.on_handoff_takes_input else 1]
        await resolve(handoff.on_handoff(*arguments))
    attempt.accept(target, handler, answer)


class _Deadline:
    """The time by which a target has to accept; the check of its availability is within it."""

    __slots__ = ("_callers_at", "_why", "at")

    def __init__(self, run: Run, handoff: Handoff, target: Target) -> None:
        self._callers_at = earliest_deadline(run.callers)
        seconds = math.inf if handoff.timeout is None else handoff.timeout
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


async def _check_availability(run: Run, target: Target, deadline: _Deadline) -> None:
    """Ask ``RunConfig.available``; if it raises, the target counts as not available."""
    available = cast("Available[Target] | None", run.config.available)
    if available is None:
        return
    failed = "available raised, asked about %r"
    answer: bool | str = await deadline.ask(run, target, failed, lambda: resolve(available(target)))
    if (why := refusal_in(answer, target.name)) is not None:
        raise HandoffRefused(why)


async def _check_consent(run: Run, attempt: HandoffAttempt, target: Target, deadline: _Deadline) -> None:
    """Ask the target's own ``on_handoff_request``, and keep its response."""
    if not isinstance(target, Agent) or target.on_handoff_request is None:
        return
    call = partial(_call_on_handoff_request, run, attempt.handoff, target, attempt.request_for(target.name))
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
    run: Run, handoff: Handoff, target: Agent[Any], request: HandoffRequest
) -> object:
    hook: Any = target.on_handoff_request
    if "on_handoff_request" not in target.hooks_with_context:
        return cast(object, await resolve(hook(request)))
    return cast(object, await resolve(hook(request, _context_for_target(run, handoff))))


def _context_for_target(run: Run, handoff: Handoff) -> RunContext[Any]:
    """Return the context with as much of the shared memory as the target would see, see ``Handoff.share``."""
    now = run.current_context()
    if handoff.share is None:
        return now
    return replace(now, shared_memory=scoped(now.shared_memory, handoff.share).inner)


def _check_declared(run: Run, handoff: Handoff, target: Target) -> None:
    """Check that a target found by capability does not bypass the handoffs that are declared to it.

    Raises:
        HandoffRefused: none of them is open to the run, or each of them needs an approval.
    """
    declared = [each for each in run.frame.agent.all_handoffs if _leads_to(each, target)]
    if declared and not any(permits(each.scope or "all", run.scopes) for each in declared):
        raise HandoffRefused(_NOT_PERMITTED)
    if declared and handoff.needs_approval is False and all(e.needs_approval is not False for e in declared):
        gate = declared[0].tool_name
        raise HandoffRefused(f"it needs an approval: call {gate}, which can wait for one")


def _leads_to(handoff: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (handoff.target, *handoff.others))
