"""Holds the calls that wait for an approval, and answers those that were denied or are disabled now."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from routelock._callables import MaybeAwaitable
from routelock._concurrency import Question, ask_all
from routelock.agents.offer import enabled_of
from routelock.run.routing import Result, RoutedCall, RoutedCalls
from routelock.run.run import Run
from routelock.tools.approvals import Decision, Interruption, NeedsApproval, declined_text
from routelock.tools.questions import ToolQuestion

__all__ = ["apply_decisions", "gate_handoff", "gate_tools", "hold_questions", "note_waiting"]

_NOT_AVAILABLE = "Tool {name!r} is not available now, so this call was not made."

_NO_TRANSFER = "The transfer to {name!r} is not available now, so it was not made."

_BY_A_TOOL = (
    "The transfer needs an approval, and a tool cannot wait for one: call {name} instead, which can wait."
)


def apply_decisions(run: Run, routed: RoutedCalls) -> None:
    """Hold the calls that have no decision yet, and answer those that were denied.

    A call without a decision stays held, even if ``needs_approval`` has changed meanwhile. A denial stands
    even if approval is no longer required.
    """
    for call in routed.calls:
        if not call.is_open:
            continue
        decision = _decision(run, call)
        if decision is None:
            if (*run.sub_runs.path, call.id) in run.open_calls.decisions.asked:
                _hold(run, routed, call)
        elif decision.answer is not None:  # the tool gets a declined answer too, because it has begun
            call.answer = decision.answer
        elif not decision.approved and call.kind != "handoff":
            call.refuse(declined_text(decision))
    routed.external = [call for call in routed.external if call.is_open]


async def gate_tools(run: Run, routed: RoutedCalls, calls: Sequence[RoutedCall]) -> Sequence[RoutedCall]:
    """Return the calls of tools that may be made now; hold or answer the others.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised; no call is carried out then.
    """
    enabled = await enabled_of([call.tool for call in calls], run.frame.agent, run.current_context())
    for call, is_enabled in zip(calls, enabled, strict=True):
        if not is_enabled:  # a resumed run may be days old
            text = _NOT_AVAILABLE.format(name=call.name)
            call.result = Result(text, "not_available", problem="tool")
    gated = [call for call in calls if call.is_open and call.tool.needs_approval is not False]
    asked = [call for call in gated if call.tool.fits(call.arguments) and _decision(run, call) is None]
    needed = await ask_all([_needs(run, call, call.tool.needs_approval) for call in asked])
    for call, needs in zip(asked, needed, strict=True):
        if needs:
            _hold(run, routed, call)
    return [call for call in calls if call.is_open]


async def gate_handoff(run: Run, routed: RoutedCalls, call: RoutedCall) -> None:
    """Remove the chosen handoff if it is disabled now, waits for an approval, or was denied.

    Raises:
        CallbackError: its ``is_enabled`` or ``needs_approval`` function raised.
    """
    handoff, decisions, context = call.attempt.handoff, run.open_calls.decisions, run.current_context()
    if call.attempt.by_tool:  # it may ask for a disabled one
        if handoff.needs_approval is not False:
            routed.skip_handoff(call, _BY_A_TOOL.format(name=handoff.tool_name))
        return
    decision = _decision(run, call) if decisions.by_call or decisions.by_tool else None
    if decision is not None and not decision.approved:
        routed.refuse_handoff(call, declined_text(decision), "declined")
    elif handoff.is_enabled is not True and not all(await enabled_of([handoff], run.frame.agent, context)):
        routed.refuse_handoff(call, _NO_TRANSFER.format(name=handoff.agent_name), "not_available")
    elif decision is None and handoff.needs_approval is not False:
        (needed,) = await ask_all([_needs(run, call, handoff.needs_approval)])
        if needed:
            _hold(run, routed, call)
            routed.handoff_call = None


def hold_questions(run: Run, routed: RoutedCalls, calls: Sequence[RoutedCall]) -> None:
    """Hold the calls whose tools asked a person a question."""
    for call in calls:
        if call.outcome is not None and call.outcome.question is not None:
            number = 1 if call.answer is None else call.answer.number + 1
            _hold(run, routed, call, call.outcome.question, number)


def note_waiting(run: Run, routed: RoutedCalls) -> None:
    """Note the calls that wait after the turn: in this run, its sub-runs, and stored sub-runs."""
    inner_runs = run.sub_runs.waiting.values()
    found = [*routed.waiting, *(one for inner in inner_runs for one in inner.open_calls.interruptions)]
    depth, to_resume = len(run.sub_runs.path), run.sub_runs.to_resume
    earlier = run.open_calls.interruptions
    left = [one for one in earlier if len(one.path) > depth and one.path[depth] in to_resume]
    run.open_calls.interruptions = (*found, *(one for one in left if one not in found))


def _hold(
    run: Run, routed: RoutedCalls, call: RoutedCall, question: ToolQuestion | None = None, number: int = 0
) -> None:
    """Hold a call until it is approved, or until the question of its tool is answered."""
    call.is_held, call.asks_handoff = True, False
    one = _interruption(run, call)
    routed.waiting.append(one if question is None else replace(one, question=question, number=number))


def _decision(run: Run, call: RoutedCall) -> Decision | None:
    """Return the decision on a call of this run. It no longer counts once the call was begun."""
    return run.open_calls.decisions.of(_interruption(run, call), spent=call.id in run.open_calls.begun)


def _interruption(run: Run, call: RoutedCall) -> Interruption:
    question, number = _last_question(run, call)
    return Interruption(
        agent=run.frame.agent.name,
        name=call.name,
        arguments=call.arguments,
        call_id=call.id,
        path=run.sub_runs.path,
        run_id=run.sub_runs.outermost_id or run.run_id,
        question=question,
        number=number,
    )


def _last_question(run: Run, call: RoutedCall) -> tuple[ToolQuestion | None, int]:
    """Return the last question that the tool asked in this call, and its number; 0 if it asked none."""
    key = (*run.sub_runs.path, call.id)
    for one in run.open_calls.interruptions:
        if (*one.path, one.call_id) == key:
            return one.question, one.number
    made = run.open_calls.decisions.by_call.get(key)
    if made is None or made.answer is None:
        return None, 0
    return made.answer.question, made.answer.number


def _needs(run: Run, call: RoutedCall, needs: NeedsApproval) -> Question[bool]:
    """Return a question to the app: does this call need an approval? Without an answer it does."""

    def ask() -> MaybeAwaitable[bool]:
        if isinstance(needs, bool):
            return needs
        try:
            given: object = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            return True
        if not isinstance(given, dict):  # a tool without parameters is called with any JSON
            return True
        return needs(call.context(run.current_context()), cast("dict[str, Any]", given))

    return Question(f"needs_approval of {call.name!r}", ask, bool)
