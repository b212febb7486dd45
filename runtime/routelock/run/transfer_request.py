"""The checks that a handoff passes before anything in the run changes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any, TypeVar, cast

from routelock._callables import resolve
from routelock._json import unshared
from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.checked_graph import find_agent
from routelock.errors import ModelBehaviorError
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.capabilities import (
    AT_MAXIMUM,
    NONE_AVAILABLE,
    NONE_CAPABLE,
    missing_capability,
)
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import sent_by
from routelock.run.consent import Deadline, check_availability, check_consent
from routelock.run.handler_selection import handler_for
from routelock.run.handoff_attempt import CANCELLED, LONGEST_REASON, HandoffAttempt, HandoffRefused, Target
from routelock.run.run import Run
from routelock.scopes import permits
from routelock.tools.failure_text import reason_of
from routelock.tools.schema import describe_error

__all__ = ["begin_attempt", "cut_short", "try_handoff"]

_REPEATED = (
    "this transfer was already made and nothing new has come up since; "
    "answer the user yourself, or say what is missing"
)

_log = logging.getLogger("routelock.handoff")

T = TypeVar("T")


def begin_attempt(run: Run, attempt: HandoffAttempt) -> None:
    """Give an attempt its id, its source and its time; the id counts the records, so record it next."""
    attempt.begin(run.handoffs.next_id(), run.active_name, run.config.clock())


async def try_handoff(run: Run, attempt: HandoffAttempt) -> None:
    """Run all checks of a handoff, find its target, and call ``on_handoff``.

    If a check or a callback fails, the reason becomes the answer to the model's call, and the source stays
    active. A cancellation is kept as ``attempt.exception``, for the caller to raise once the attempt is on
    record.
    """
    begin_attempt(run, attempt)
    try:
        _check_arguments(attempt)
        _check_limit(run)
        await _check_payload(run, attempt)
        target = await _choose_target(run, attempt)
        await _accept(run, attempt, target)
    except BaseException as error:
        attempt.fail(error)


def cut_short(run: Run, attempt: HandoffAttempt, error: BaseException) -> None:
    """Note that the turn ended before it came to the attempt."""
    begin_attempt(run, attempt)
    cancelled = not isinstance(error, Exception)
    why = CANCELLED if cancelled else f"the turn ended before: {reason_of(error)}"
    attempt.skip(clip(why, LONGEST_REASON), HandoffStatus.FAILED)


# -- the checks of the request --


def _check_arguments(attempt: HandoffAttempt) -> None:
    """Read what the model or the tool passes along."""
    edge = attempt.edge
    if edge.input_type is not None:
        try:
            attempt.input = edge.input_type.parse(attempt.raw_arguments(), strict=True)
        except ModelBehaviorError as error:
            raise HandoffRefused(str(error), by=None if attempt.by_tool else "arguments") from error
    elif not attempt.by_tool:
        arguments = attempt.raw_arguments()
        reason = None if arguments in ("", "{}") else _reason_in(arguments)
        attempt.reason = reason or edge.reason or ("No reason provided" if edge.ask_reason else None)


def _reason_in(arguments: str) -> str | None:
    try:
        plain: object = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        raise HandoffRefused(describe_error(error, arguments), by="arguments") from error
    if plain is not None and not isinstance(plain, dict):
        raise HandoffRefused("the arguments must be a JSON object, such as {}", by="arguments")
    reason = cast("dict[str, Any]", plain or {}).get("reason")
    return str(reason) if reason else None


def _check_limit(run: Run) -> None:
    most = run.config.max_handoffs
    records = run.handoffs.records
    if most is None or len(records) < most or sum(one.taken for one in records) < most:
        return
    raise HandoffRefused(f"the limit of {most} transfers is reached; answer the user yourself", by="limit")


async def _check_payload(run: Run, attempt: HandoffAttempt) -> None:
    """Make the payload and check its type."""
    given: Any = attempt.edge.payload
    if callable(given):
        given = await resolve(given(run.now(), attempt.input))
    if given is None:
        return
    from routelock.handoffs.payload_types import HandoffTypes  # noqa: PLC0415 - for those who pass data along

    types = run.config.handoff_types or HandoffTypes()
    sent = sent_by(run.active_name, given)
    sent = replace(sent, context_data=unshared(sent.context_data))  # the run may change its own, not theirs
    attempt.payload, warning = types.check(sent, strict=run.config.strict_payloads)
    if warning is not None:
        run.warn(f"turn {run.turn}: {warning}")


# -- the checks of each candidate --


async def _choose_target(run: Run, attempt: HandoffAttempt) -> Target:
    """Return the first candidate that passes all checks.

    Raises:
        HandoffRefused: none does. If the handoff declares a single target, the reason is its own.
    """
    edge = attempt.edge
    if _is_found_by_capability(edge):
        nearest_first = {**run.frame.agent.graph, **run.graph}  # wherever the run has been before
        candidates: list[object] = [each for each in nearest_first.values() if each is not run.frame.agent]
        none_left, single = NONE_CAPABLE, False
    else:
        candidates = [edge.target, *edge.others]
        none_left, single = NONE_AVAILABLE, not edge.others
    for each in candidates:
        try:
            return await _check_candidate(run, attempt, each)
        except HandoffRefused as refusal:
            if single:
                raise
            attempt.pass_over(each, str(refusal))
    raise HandoffRefused(none_left)


def _is_found_by_capability(edge: Handoff) -> bool:
    return edge.target is None and edge.on_invoke_handoff is None


async def _check_candidate(run: Run, attempt: HandoffAttempt, candidate: object) -> Target:
    """Return the candidate as a target, once it has passed all checks.

    Consent comes last: a target is not asked for what the run would not let happen anyway.
    """
    target = await _resolve_target(run, attempt, candidate)
    _check_scope(run, attempt.edge, target)
    _check_name(run, target)
    _check_loop(run, attempt, target)
    _check_capabilities(attempt.edge, target)
    decides = isinstance(target, Agent) and target.on_handoff_request is not None
    is_asked = decides or run.config.available is not None
    deadline = Deadline(run, attempt.edge, target) if is_asked else None
    if deadline is not None:
        await check_availability(run, target, deadline)
    _check_capacity(run, attempt, target)
    if deadline is not None:
        await check_consent(run, attempt, target, deadline)
    return target


async def _resolve_target(run: Run, attempt: HandoffAttempt, candidate: object) -> Target:
    """Return the agent or handler that a candidate stands for.

    Raises:
        HandoffRefused: it is active already.
        TypeError: ``on_invoke_handoff`` returned something else.
    """
    edge = attempt.edge
    if edge.on_invoke_handoff is not None:
        candidate = await resolve(edge.on_invoke_handoff(run.now(), attempt.raw_arguments()))
    if isinstance(candidate, str):
        candidate = find_agent(run.graph, candidate, run.frame.agent.name)
    if candidate is run.frame.agent:
        raise HandoffRefused("an agent cannot hand off to itself")
    if not isinstance(candidate, Agent) and not callable(getattr(candidate, "stream", None)):
        kind = type(candidate).__name__
        raise TypeError(f"on_invoke_handoff must return an Agent or a Handler, not {kind}")
    target = cast("Target", candidate)
    if not isinstance(target, Agent) and target.name == run.frame.handler.name:
        raise HandoffRefused("it is in charge already; answer the user yourself")
    return target


def _check_scope(run: Run, edge: Handoff, target: Target) -> None:
    """Refuse a target that the scopes of the run, or an approval that is needed, close to this handoff."""
    if not _is_permitted(run, edge, target):
        raise HandoffRefused("the scopes of this run do not permit it; answer the user yourself")
    if (gate := _approval_tool(run, edge, target)) is not None:
        raise HandoffRefused(f"it needs an approval: call {gate}, which can wait for one")


def _is_permitted(run: Run, edge: Handoff, target: Target) -> bool:
    """Whether the scopes of the run permit both the handoff and its target."""
    scope = edge.scope or "all"
    if scope != "all" and not permits(scope, run.scopes):
        return False
    if not isinstance(target, Agent):
        return run.frame.agent.registered.opens(target, run.scopes)
    if not _is_found_by_capability(edge):
        return True
    # a target found by capability must not bypass the scope of the handoff that declares it
    declared = _declared_to(run, target)
    return not declared or any(permits(each.scope or "all", run.scopes) for each in declared)


def _approval_tool(run: Run, edge: Handoff, target: Target) -> str | None:
    """Return the transfer tool of a target found by capability, if each declared handoff needs approval."""
    if not _is_found_by_capability(edge) or edge.needs_approval is not False:
        return None
    declared = _declared_to(run, target)
    needed = declared and all(each.needs_approval is not False for each in declared)
    return declared[0].tool_name if needed else None


def _declared_to(run: Run, target: Target) -> list[Handoff]:
    """Return the handoffs to a target that the active agent declares."""
    return [edge for edge in run.frame.agent.edges if _leads_to(edge, target)]


def _leads_to(edge: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (edge.target, *edge.others))


def _check_name(run: Run, target: Target) -> None:
    if isinstance(target, Agent) and run.graph.get(target.name, target) is not target:
        raise HandoffRefused(f"another agent of this run is named {target.name!r}, too")


def _check_loop(run: Run, attempt: HandoffAttempt, target: Target) -> None:
    if not run.config.detect_loops:
        return
    if run.progress.is_repeated(run.active_name, target.name, attempt.input_json()):
        raise HandoffRefused(_REPEATED, by="loop")


def _check_capabilities(edge: Handoff, target: Target) -> None:
    if edge.capabilities_required and (why := missing_capability(target, edge.capabilities_required)):
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
    edge, given = attempt.edge, attempt.tool_request
    if isinstance(target, Agent):
        handler = handler_for(target, run.config, run.failed_of(target))
    else:
        handler = target
    own = None if given is None else given.message
    answer = edge.get_transfer_message(target) if own is None else own
    if not isinstance(cast(object, answer), str):
        raise TypeError(f"get_transfer_message must return text, not {type(answer).__name__}")
    if edge.on_handoff is not None:
        value = attempt.input if edge.input_type is not None else attempt.reason
        arguments = (run.now(), value) if edge.on_handoff_takes_input else (run.now(),)
        await resolve(edge.on_handoff(*arguments))
    attempt.accept(target, handler, answer)
