"""Holds calls back that need an approval, until the run is resumed with a decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from routelock._callables import MaybeAwaitable
from routelock._concurrency import Question, ask_all
from routelock._text import clip
from routelock.agents.offer import OfferedTools, enabled_of
from routelock.context import ToolContext
from routelock.history.messages import ToolCall
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.routing import MOST_CALLS, RoutedCalls, route
from routelock.run.run import Run
from routelock.tools.agent_tool import AgentCall
from routelock.tools.approvals import Decision, Interruption, NeedsApproval, declined_text
from routelock.tools.tool import Tool

__all__ = ["all_waiting", "hold_tools", "hold_transfer", "route_turn"]


class _Decline(Protocol):
    """Answers a call that is not made, with a text and a kind of error."""

    def __call__(self, call: ToolCall, text: str, error: str = "declined") -> None: ...


_NotAvailable = Callable[[ToolCall, str], None]
"""Answers a call of a tool that was offered and is disabled now."""

_FREE: Final = Decision(True)
"""The decision on a call that needs no approval."""

_BY_A_TOOL = (
    "The transfer needs an approval, and a tool cannot wait for one: call {name} instead, which can wait."
)

_TOO_MANY = (
    "This call was not made: the reply made {count:,} calls at once, and only the first {most:,} were "
    "considered. Make fewer calls at a time."
)

_NOT_AVAILABLE = "Tool {name!r} is not available now, so this call was not made."

_NO_TRANSFER = "The transfer to {name!r} is not available now, so it was not made."

_LOST = (
    "The agent behind {name!r} had started this call and is not available any more. Its finished work is "
    "kept, and the rest was not done. Check what was done before you go on."
)


def route_turn(run: Run, calls: Sequence[ToolCall], offered: OfferedTools, decline: _Decline) -> RoutedCalls:
    """Route the calls of a reply, except those that wait for a decision or were denied.

    Args:
        run: the run.
        calls: the calls of the model.
        offered: the tools and handoffs that it was offered.
        decline: answers a call that is not made.
    """
    decisions, multiple = run.calls.decisions, run.config.multiple_handoffs
    if len(calls) > MOST_CALLS:
        calls = _without_surplus(run, calls, decline)
    if run.sub_runs.to_resume:
        calls = _without_lost(run, calls, offered, decline)
    routed = _route_decided(run, calls, offered) if decisions.asked else route(calls, offered, multiple)
    if decisions.by_call or decisions.by_tool:
        _decline_others(run, routed, decline)
    return routed


def _without_surplus(run: Run, calls: Sequence[ToolCall], decline: _Decline) -> Sequence[ToolCall]:
    """Return the calls up to the limit of one reply, and decline the others."""
    text = _TOO_MANY.format(count=len(calls), most=MOST_CALLS)
    for call in calls[MOST_CALLS:]:
        decline(call, text, "too_many_calls")
    run.warn(f"turn {run.turn}: the reply made {len(calls):,} calls, and {MOST_CALLS:,} were considered")
    return calls[:MOST_CALLS]


def _without_lost(
    run: Run, calls: Sequence[ToolCall], offered: OfferedTools, decline: _Decline
) -> Sequence[ToolCall]:
    """Decline calls of stored sub-runs whose agent is gone, and return the others."""
    left: list[ToolCall] = []
    for call in calls:
        name = call["function"].get("name") or ""
        route = offered.routes.get(name)
        there = isinstance(route, Tool) and name not in offered.disabled
        asks = there and isinstance(cast(Tool, route).on_invoke_tool, AgentCall)
        if asks or run.sub_runs.to_resume.pop(call["id"], None) is None:
            left.append(call)
            continue
        text = _LOST.format(name=clip(name, 80))
        run.problem("tool", text, call_id=call["id"])
        decline(call, text)
    return left


def _route_decided(run: Run, calls: Sequence[ToolCall], offered: OfferedTools) -> RoutedCalls:
    """Route the calls of a resumed run; those without a decision still wait for one.

    To resume a run without decisions does nothing, even if ``needs_approval`` has changed meanwhile.
    """
    held: dict[str, Interruption] = {}
    for call in calls:
        one = _interruption(run, call, call["function"].get("name") or "")
        if (*run.sub_runs.path, call["id"]) in run.calls.decisions.asked and _decision(run, one) is None:
            held[call["id"]] = one
    planned = route([call for call in calls if call["id"] not in held], offered, run.config.multiple_handoffs)
    planned.waiting += held.values()
    return planned


def _decline_others(run: Run, planned: RoutedCalls, decline: _Decline) -> None:
    """Decline denied calls whose tool is an external one or unknown by now."""
    for calls in (planned.external, planned.unknown):
        for call in [*calls]:
            decision = _decision(run, _interruption(run, call, call["function"].get("name") or ""))
            if decision is not None and not decision.approved:
                calls.remove(call)
                decline(call, declined_text(decision))


async def hold_tools(
    run: Run, planned: RoutedCalls, decline: _Decline, not_available: _NotAvailable
) -> Sequence[tuple[ToolCall, Tool]]:
    """Return the tool calls to carry out: those that need no approval, or have one.

    Args:
        run: the run.
        planned: the routed calls; the waiting ones are added to ``planned.waiting``.
        decline: answers a call that was denied.
        not_available: answers a call of a tool that is disabled now.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised; no call is carried out then.
    """
    left = planned.tools
    if run.calls.decisions.by_call or run.calls.decisions.by_tool:
        left = _without_declined(run, left, decline)
    if not all(tool.is_enabled is True for _, tool in left):
        left = await _without_disabled(run, left, not_available)
    if all(tool.needs_approval is False for _, tool in left):
        return left
    waits = await _waiting(run, left)
    planned.waiting += waits.values()
    return [(call, tool) for call, tool in left if call["id"] not in waits]


_Calls = list[tuple[ToolCall, Tool]]


def _without_declined(run: Run, calls: _Calls, decline: _Decline) -> _Calls:
    """Answer denied calls. A denial stands even if approval is no longer required."""
    left: _Calls = []
    for call, tool in calls:
        decision = _decision(run, _interruption(run, call, tool.name))
        if decision is None or decision.approved:
            left.append((call, tool))
        else:
            decline(call, declined_text(decision))
    return left


async def _without_disabled(run: Run, calls: _Calls, not_available: _NotAvailable) -> _Calls:
    """Answer the calls of tools that are disabled now; a resumed run may be days old."""
    enabled = await enabled_of([tool for _, tool in calls], run.frame.agent, run.now())
    for (call, tool), is_enabled in zip(calls, enabled, strict=True):
        if not is_enabled:
            not_available(call, _NOT_AVAILABLE.format(name=tool.name))
    return [each for each, is_enabled in zip(calls, enabled, strict=True) if is_enabled]


async def _waiting(run: Run, calls: _Calls) -> dict[str, Interruption]:
    """Return the calls that need an approval and have no decision, by id."""
    asked: list[tuple[Interruption, NeedsApproval]] = []
    for call, tool in calls:
        if tool.needs_approval is not False and _is_made(call, tool):
            one = _interruption(run, call, tool.name)
            if _decision(run, one) is None:
                asked.append((one, tool.needs_approval))
    if not asked:
        return {}
    needed = await ask_all([_needs(run, one, needs) for one, needs in asked])
    return {one.call_id: one for (one, _), needs in zip(asked, needed, strict=True) if needs}


def _is_made(call: ToolCall, tool: Tool) -> bool:
    """Whether the arguments are valid; a call with invalid ones is not made and needs no approval.

    The arguments are read as they are when the call is made, so that no call can avoid the approval.
    """
    arguments = call["function"].get("arguments") or ""
    if not isinstance(tool.on_invoke_tool, AgentCall):
        return tool.fits(arguments)
    try:
        tool.on_invoke_tool.read(arguments)
    except Exception:
        return False
    return True


async def hold_transfer(run: Run, planned: RoutedCalls) -> None:
    """Remove the chosen handoff if it is disabled now, waits for an approval, or was denied.

    Raises:
        CallbackError: its ``is_enabled`` or ``needs_approval`` function raised.
    """
    wanted = planned.handoff
    if wanted is None or await _is_disabled(run, planned, wanted):
        return
    needs, decisions = wanted.edge.needs_approval, run.calls.decisions
    if needs is False and (wanted.by_tool or not (decisions.by_call or decisions.by_tool)):
        return
    name = wanted.edge.tool_name
    if wanted.by_tool:
        planned.skip_handoff(_BY_A_TOOL.format(name=name))
        return
    decision = await _decide(run, planned, wanted.call, name, needs)
    if decision is None:
        planned.handoff = None
    elif not decision.approved:
        wanted.skip(declined_text(decision))
        planned.handoff = None
        planned.declined.append(wanted)


async def _is_disabled(run: Run, planned: RoutedCalls, wanted: HandoffAttempt) -> bool:
    """Skip a handoff that is disabled since the offer; a tool may still request it."""
    if wanted.by_tool or wanted.edge.is_enabled is True or _is_declined(run, wanted):
        return False
    (enabled,) = await enabled_of([wanted.edge], run.frame.agent, run.now())
    if not enabled:
        wanted.skip(_NO_TRANSFER.format(name=wanted.edge.agent_name))
        planned.handoff = None
        planned.unavailable.append(wanted)
    return not enabled


def _is_declined(run: Run, wanted: HandoffAttempt) -> bool:
    decision = _decision(run, _interruption(run, wanted.call, wanted.edge.tool_name))
    return decision is not None and not decision.approved


def all_waiting(run: Run, planned: RoutedCalls) -> tuple[Interruption, ...]:
    """Return the calls that wait after a turn: in this run, its sub-runs, and stored sub-runs."""
    in_sub_runs = [one for inner in run.sub_runs.waiting.values() for one in inner.calls.interruptions]
    found = [*planned.waiting, *in_sub_runs]
    depth, to_resume = len(run.sub_runs.path), run.sub_runs.to_resume
    earlier = [one for one in run.calls.interruptions if len(one.path) > depth]
    left = [one for one in earlier if one.path[depth] in to_resume]
    return (*found, *(one for one in left if one not in found))


async def _decide(
    run: Run, planned: RoutedCalls, call: ToolCall, name: str, needs: NeedsApproval
) -> Decision | None:
    """Return the decision on a call; None if it has to wait, which is noted in ``planned.waiting``."""
    one = _interruption(run, call, name)
    if (made := _decision(run, one)) is not None:
        return made
    (needed,) = await ask_all([_needs(run, one, needs)])
    if not needed:
        return _FREE
    planned.waiting.append(one)
    return None


def _decision(run: Run, one: Interruption) -> Decision | None:
    """Return the decision on a call of this run. It no longer counts once the call was begun."""
    return run.calls.decisions.of(one, spent=one.call_id in run.calls.begun)


def _interruption(run: Run, call: ToolCall, name: str) -> Interruption:
    return Interruption(
        agent=run.frame.agent.name,
        name=name,
        arguments=call["function"].get("arguments") or "",
        call_id=call["id"],
        path=run.sub_runs.path,
        run_id=run.sub_runs.outermost_id or run.run_id,
    )


def _needs(run: Run, one: Interruption, needs: NeedsApproval) -> Question[bool]:
    """Return the question whether a call needs an approval; it does if the question has no answer."""
    return Question(f"needs_approval of {one.name!r}", partial(_asked, run, one, needs), bool)


def _asked(run: Run, one: Interruption, needs: NeedsApproval) -> MaybeAwaitable[bool]:
    if isinstance(needs, bool):
        return needs
    try:
        given: object = json.loads(one.arguments or "{}")
    except (ValueError, RecursionError):
        return True
    if not isinstance(given, dict):  # a tool without parameters is called with any JSON
        return True
    context = ToolContext[Any].of(
        run.now(), tool_name=one.name, tool_call_id=one.call_id, tool_arguments=one.arguments
    )
    return needs(context, cast("dict[str, Any]", given))
