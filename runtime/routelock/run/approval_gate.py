"""Holds calls back that need an approval, until the run is resumed with a decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from routelock._callables import MaybeAwaitable
from routelock._concurrency import Question, ask_all
from routelock._text import clip
from routelock.context import ToolContext
from routelock.history.messages import ToolCall
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.routing import MOST_CALLS, OfferedTools, RoutedCalls, enabled_of, route
from routelock.run.run import Run
from routelock.tools.agent_tool import AgentCall
from routelock.tools.approvals import Decision, Interruption, NeedsApproval, declined_text
from routelock.tools.tool import Tool

__all__ = ["all_waiting", "hold_tools", "hold_transfer", "plan_turn"]


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


def plan_turn(run: Run, calls: Sequence[ToolCall], offered: OfferedTools, decline: _Decline) -> RoutedCalls:
    """Route the calls of a reply, as far as what was said of them, or was not, lets them be made.

    Args:
        run: the run.
        calls: what the model calls.
        offered: what it was offered.
        decline: answers a call that is not made.
    """
    said, multiple = run.calls.decisions, run.config.multiple_handoffs
    if len(calls) > MOST_CALLS:
        calls = _without_surplus(run, calls, decline)
    if run.sub_runs.to_resume:
        calls = _without_lost(run, calls, offered, decline)
    planned = _plan_others(run, calls, offered) if said.asked else route(calls, offered, multiple)
    if said.by_call or said.by_tool:
        _decline_others(run, planned, decline)
    return planned


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
    """Return the calls but for those with which an agent had begun that is no tool any more."""
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


def _plan_others(run: Run, calls: Sequence[ToolCall], offered: OfferedTools) -> RoutedCalls:
    """Route the calls of a resumed run; those that waited wait on until somebody says a word on them.

    So nothing is done by going on without a word, whatever a ``needs_approval`` says by now.
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
    """Answer what was declined though its tool is the caller's by now, which must not make it, or gone."""
    for calls in (planned.external, planned.unknown):
        for call in [*calls]:
            said = _decision(run, _interruption(run, call, call["function"].get("name") or ""))
            if said is not None and not said.approved:
                calls.remove(call)
                decline(call, declined_text(said))


async def hold_tools(
    run: Run, planned: RoutedCalls, decline: _Decline, not_available: _NotAvailable
) -> Sequence[tuple[ToolCall, Tool]]:
    """Return the tool calls that are carried out: those that need no approval, or have it.

    Args:
        run: the run.
        planned: what the calls lead to; those that wait are noted in ``planned.waiting``.
        decline: answers a call that was not approved.
        not_available: answers a call of a tool that is disabled by now.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised. Nothing is carried out then.
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
        said = _decision(run, _interruption(run, call, tool.name))
        if said is None or said.approved:
            left.append((call, tool))
        else:
            decline(call, declined_text(said))
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
    """Do not make the chosen transfer if it is disabled by now, waits for approval, or was declined.

    Raises:
        CallbackError: its ``is_enabled`` or ``needs_approval`` function raised.
    """
    wanted = planned.handoff
    if wanted is None or await _is_disabled(run, planned, wanted):
        return
    needs, said_of = wanted.edge.needs_approval, run.calls.decisions
    if needs is False and (wanted.by_tool or not (said_of.by_call or said_of.by_tool)):
        return
    name = wanted.edge.tool_name
    if wanted.by_tool:
        planned.skip_handoff(_BY_A_TOOL.format(name=name))
        return
    said = await _said(run, planned, wanted.call, name, needs)
    if said is None:
        planned.handoff = None
    elif not said.approved:
        wanted.skip(declined_text(said))
        planned.handoff = None
        planned.declined.append(wanted)


async def _is_disabled(run: Run, planned: RoutedCalls, wanted: HandoffAttempt) -> bool:
    """Set a transfer aside that the model was offered and that is disabled by now. Code may make it."""
    if wanted.by_tool or wanted.edge.is_enabled is True or _is_declined(run, wanted):
        return False
    (enabled,) = await enabled_of([wanted.edge], run.frame.agent, run.now())
    if not enabled:
        wanted.skip(_NO_TRANSFER.format(name=wanted.edge.agent_name))
        planned.handoff = None
        planned.unavailable.append(wanted)
    return not enabled


def _is_declined(run: Run, wanted: HandoffAttempt) -> bool:
    said = _decision(run, _interruption(run, wanted.call, wanted.edge.tool_name))
    return said is not None and not said.approved


def all_waiting(run: Run, planned: RoutedCalls) -> tuple[Interruption, ...]:
    """Return what waits after a turn: here, in the runs within, and in those to which nobody came."""
    within = [one for inner in run.sub_runs.waiting.values() for one in inner.calls.interruptions]
    found = [*planned.waiting, *within]
    depth, to_resume = len(run.sub_runs.path), run.sub_runs.to_resume
    earlier = [one for one in run.calls.interruptions if len(one.path) > depth]
    left = [one for one in earlier if one.path[depth] in to_resume]
    return (*found, *(one for one in left if one not in found))


async def _said(
    run: Run, planned: RoutedCalls, call: ToolCall, name: str, needs: NeedsApproval
) -> Decision | None:
    """Return what was said of a call; None, once it is noted, if it waits for somebody to say it."""
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
