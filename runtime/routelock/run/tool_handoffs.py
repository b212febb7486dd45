"""Handoffs that tools ask for: each tool returned a `HandoffRequest`, which a declared handoff answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handoff_request import HandoffRequest
from routelock.handoffs.handoff import Handoff
from routelock.run.handler_selection import handlers_by_priority, load
from routelock.run.handoff_checks import begin_handoff, fail_undecided
from routelock.run.handoff_refused import HandoffRefused
from routelock.run.mistakes import failed_handoff
from routelock.run.routing import Result, RoutedCall, RoutedCalls
from routelock.run.run import Run

__all__ = [
    "handoff_to",
    "record_undecided",
    "refuse_unknown_targets",
    "take_requests",
]


def _requests(routed: RoutedCalls) -> list[tuple[RoutedCall, HandoffRequest]]:
    """Return the requests that tools returned, with their calls."""
    done = [(call, call.outcome) for call in routed.tools if call.outcome is not None]
    return [(call, outcome.handoff) for call, outcome in done if outcome.handoff is not None]


def take_requests(run: Run, routed: RoutedCalls) -> None:
    """Put the handoffs that tools asked for among the model's own, and choose again."""
    for call, request in _requests(routed):
        found = _handoff_or_problem(run, request)
        if isinstance(found, Handoff):
            call.ask_handoff(found, request)
            continue
        call.ask_handoff(Handoff(target=request.target_name), request)
        call.attempt.fail(HandoffRefused(found))
        routed.unknown_targets.append(call)
    routed.choose(run.config.multiple_handoffs)


def _handoff_or_problem(run: Run, request: HandoffRequest) -> Handoff | str:
    """Return the handoff to the target of a tool's request, or why there is none."""
    try:
        handoff = handoff_to(run.frame.agent, run.graph, request)
    except ConfigError as error:
        return str(error)
    if handoff is not None:
        return handoff
    every = {*(each.name for each in handlers_by_priority(run.frame.agent, run.config)), *run.graph}
    others = sorted(every - {run.frame.agent.name, run.frame.handler.name})
    known = f"There are: {', '.join(others)}." if others else "There is no other."
    return f"Handoff target {request.target_name!r} was not found. {known}"


def refuse_unknown_targets(run: Run, routed: RoutedCalls) -> None:
    """Answer, and put on record, the handoffs by tools to targets that the run does not have."""
    for call in routed.unknown_targets:
        begin_handoff(run, call.attempt)
        stop = failed_handoff(run, call.attempt) if "failed_handoff" in run.config.raise_on else None
        call.result = Result(call.attempt.result_text, "handoff", problem="handoff", stop=stop)
        call.attempt.put_on_record(run)


def record_undecided(run: Run, routed: RoutedCalls, error: BaseException) -> None:
    """Put on record the handoffs that were asked for and not decided when the turn ended."""
    undecided = [] if routed.handoff_call is None else [routed.handoff_call]
    for call, request in _requests(routed):
        if not call.asks_handoff:
            call.ask_handoff(Handoff(target=request.target_name), request)
        if call not in (routed.handoff_call, *routed.skipped):
            undecided.append(call)
    recorded = {one.call_id for one in run.handoffs.records}
    for call in undecided:
        if call.id not in recorded:
            fail_undecided(run, call.attempt, error)
            call.attempt.put_on_record(run)


def handoff_to(agent: Agent[Any], graph: Mapping[str, Agent[Any]], request: HandoffRequest) -> Handoff | None:
    """Return the handoff to the target of a tool's request; None if there is no such target.

    A handoff that the agent declares keeps its filter and callbacks, offered or not. A target that is given
    as an object is never another one of the same name. The options of the request are added.

    Args:
        agent: the active agent.
        graph: the agents of the run.
        request: the request that the tool returned.

    Raises:
        ConfigError: the object is neither an agent nor a handler.
    """
    by_capability = request.to_agent is None
    handoff = _to_capable(agent, request) if by_capability else _to_target(agent, graph, request.to_agent)
    if handoff is None:
        return None
    more = [name for name in request.capabilities_required if name not in handoff.capabilities_required]
    options = {
        "timeout": request.timeout,
        "payload": request.payload,
        # a tool cannot require less than the handoff declares
        "capabilities_required": (*handoff.capabilities_required, *more) if more else None,
    }
    own: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not request.preserve_context and handoff.preserve_context:
        own |= {"preserve_context": False, "input_filter": None}
    return replace(handoff, **own) if own else handoff


def _to_capable(agent: Agent[Any], request: HandoffRequest) -> Handoff:
    """Return the handoff to any agent with the capabilities: the one declared for exactly these, if any."""
    required = request.capabilities_required
    for handoff in agent.all_handoffs:
        found_later = handoff.target is None and handoff.on_invoke_handoff is None
        if found_later and set(handoff.capabilities_required) == set(required):
            return handoff
    return Handoff(capabilities_required=required)


def _to_target(agent: Agent[Any], graph: Mapping[str, Agent[Any]], target: Any) -> Handoff | None:
    def leads(end: Any, name: str) -> bool:
        if isinstance(target, str):
            return target == name
        return target is (graph.get(end) if isinstance(end, str) else end)

    for handoff in agent.all_handoffs:
        if leads(handoff.target, handoff.agent_name):
            return handoff
    for handoff in agent.all_handoffs:  # of several targets only this one is asked; its options hold
        for one in handoff.others:
            if leads(one, one if isinstance(one, str) else one.name):
                return replace(handoff, target=one, others=(), agent_name="")
    if not isinstance(target, str):
        return Handoff(target=target)
    if known := agent.registered.get(target):
        return Handoff(target=load(known), scope=known.scope)
    return Handoff(target=graph[target]) if target in graph else None
