"""Answers every tool call of a reply exactly once, in call order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from routelock.errors import RoutelockError
from routelock.history.content import with_media
from routelock.history.messages import Message
from routelock.run.approval_gate import (
    apply_decisions,
    gate_handoff,
    gate_tools,
    hold_questions,
    note_waiting,
)
from routelock.run.call_events import called_event, decided_events, handoff_event, later_events
from routelock.run.events import RunEvent
from routelock.run.mistakes import answer_lost, answer_too_many, answer_unknown
from routelock.run.routing import MOST_CALLS, Result, RoutedCall, RoutedCalls
from routelock.run.run import Run
from routelock.run.subrun import Events
from routelock.run.tool_batch import ToolBatch, take_outcome
from routelock.run.tool_handoffs import note_cut_short, refuse_unknown_targets, take_requests
from routelock.run.transfer import take_over
from routelock.run.transfer_request import begin_attempt, try_handoff
from routelock.tools.approvals import NO_APPROVALS
from routelock.tools.outcome import NOT_RUN

__all__ = ["answer_calls"]

_DOOMED = "A call beside it stops the agent, so nothing was handed over."

_WAITS = "The caller's tools come first, so nothing was handed over. Ask again if it is still needed."

_WAITS_FOR_APPROVAL = (
    "A call beside it waits for approval, so nothing was handed over. Ask again if it is still needed."
)


async def answer_calls(run: Run, reply: RoutedCalls, events: Events) -> AsyncGenerator[RunEvent]:
    """Answer a reply's calls: tools first and at the same time, then the first handoff. Yield the events.

    Args:
        run: the run.
        reply: the calls of the reply; their results are filled in.
        events: runs the agents that are called as tools.

    Raises:
        HandoffFilterError: an input filter or a history mapper failed.
        RoutelockError: a call ends the run; all are answered.
    """
    _answer_at_once(run, reply)
    try:
        if reply.tools and (free := await _free_tools(run, reply)):
            for call in free if run.stream else ():
                yield called_event(run, call)
            with ToolBatch(run, free, events) as batch:
                await batch.run_together()
                for one in batch.streamed:
                    async with aclosing(batch.stream(one)) as happening:
                        async for event in happening:
                            yield event
            _hold_unanswered(run, reply, free)
        await _choose_handoff(run, reply)
        for each in decided_events(run, reply) if run.stream else ():
            yield each
        if reply.handoff is not None or reply.unknown_targets:
            await _decide_handoffs(run, reply)
    except BaseException as error:
        note_cut_short(run, reply, error)
        raise
    finally:
        _record(run, reply)
    if reply.waiting or run.calls.interruptions or run.sub_runs.waiting:
        note_waiting(run, reply)
    for each in later_events(run, reply) if run.stream else ():
        yield each
    if (stop := _stop_of(reply)) is not None:
        raise stop
    if reply.handoff is not None:
        await _make_handoff(run, reply.handoff)


def _stop_of(reply: RoutedCalls) -> RoutelockError | None:
    """Return the first error, in call order, with which a call ends the run."""
    for call in reply.calls:
        if call.result is not None and call.result.stop is not None:
            return call.result.stop
    return None


def _answer_at_once(run: Run, reply: RoutedCalls) -> None:
    """Answer the calls that are not made in any case, hold those of a resumed run without a decision."""
    if len(reply.calls) > MOST_CALLS:
        answer_too_many(run, reply)
    if run.sub_runs.to_resume:
        answer_lost(run, reply)
    if run.calls.decisions is not NO_APPROVALS:
        apply_decisions(run, reply)
    if reply.handoffs:
        reply.choose(run.config.multiple_handoffs)
    if reply.unknown:
        answer_unknown(run, reply)


def _record(run: Run, reply: RoutedCalls) -> None:
    """Append the results to the transcript; a missing one is filled in when the transcript is read.

    Problems are noted here and not when they happen: the run's result must not depend on the scheduler.
    """
    if reply.skipped or reply.refused:
        _answer_skipped(run, reply)
    for call in reply.calls:
        if call.guardrails:
            run.report.guardrails.extend(call.guardrails)
        if (result := call.result) is not None:
            content = with_media(result.text, result.media) if result.media else result.text
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": content}
            run.add("handoff" if call.kind == "handoff" else "tool", message)
            if result.problem is not None:
                run.problem(result.problem, result.text, call_id=call.id, error=result.exception)


# Tools


async def _free_tools(run: Run, reply: RoutedCalls) -> Sequence[RoutedCall]:
    """Return the tool calls that need no approval or have it; none in a turn that ends the run anyway.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised; no call is carried out then.
        BudgetExceeded: ``RunConfig.limits`` does not allow so many calls.
    """
    free: Sequence[RoutedCall] = [call for call in reply.tools if call.is_open]
    if _stop_of(reply) is not None:
        for call in free:
            if call.id not in run.sub_runs.to_resume:  # else it began before, and goes on with the run
                take_outcome(run, call, NOT_RUN)
        return ()
    if [each for each in free if each.tool.is_enabled is not True or each.tool.needs_approval is not False]:
        free = await gate_tools(run, reply, free)
    if free:
        run.budget.check(run.frame.agent.name, len(free))
        run.budget.tool_calls += len(free)
    return free


def _hold_unanswered(run: Run, reply: RoutedCalls, made: Sequence[RoutedCall]) -> None:
    """Hold the calls whose tools asked a person something, and so have no result."""
    if unanswered := [call for call in made if call.result is None]:
        hold_questions(run, reply, unanswered)


def _note_results(run: Run, reply: RoutedCalls) -> None:
    """Note what the tools returned, for the loop guard."""
    outputs: list[tuple[str, str, str]] = []
    requests: list[tuple[str, str, str]] = []
    for call in reply.tools:
        if call.result is not None:  # else it waits for approval
            asks = call.outcome is not None and call.outcome.handoff is not None
            (requests if asks else outputs).append((call.name, call.arguments, call.result.text))
    run.progress.tool_results(outputs, requests)


# The handoff


async def _choose_handoff(run: Run, reply: RoutedCalls) -> None:
    """Choose the handoff that the turn tries, among those of the model and of tools."""
    if reply.tools:
        if run.config.detect_loops and _stop_of(reply) is None:
            _note_results(run, reply)
        if [call for call in reply.tools if call.outcome is not None and call.outcome.handoff is not None]:
            take_requests(run, reply)
    if (chosen := reply.handoff) is None:
        return
    if why := _why_not_tried(run, reply):
        reply.skip_handoff(chosen, why)
        return
    edge = chosen.attempt.edge
    is_free = edge.is_enabled is True and edge.needs_approval is False
    if not is_free or run.calls.decisions is not NO_APPROVALS:
        await gate_handoff(run, reply, chosen)
    if reply.refused and not reply.tools and run.config.detect_loops:  # the turn brings nothing else
        refused = chosen.attempt.edge.tool_name, chosen.arguments, chosen.attempt.answer
        run.progress.tool_results([refused])


def _why_not_tried(run: Run, reply: RoutedCalls) -> str | None:
    """Return why no target is asked in a turn that ends or pauses the run: it would not go on."""
    if _stop_of(reply) is not None or (reply.unknown_targets and "failed_handoff" in run.config.raise_on):
        return _DOOMED
    if reply.external:
        return _WAITS
    return _WAITS_FOR_APPROVAL if reply.waiting or run.sub_runs.waiting else None


async def _decide_handoffs(run: Run, reply: RoutedCalls) -> None:
    """Refuse the handoffs by tools to unknown targets, and try the chosen one."""
    if reply.unknown_targets:
        refuse_unknown_targets(run, reply)
    if reply.handoff is not None:
        await _try_handoff(run, reply.handoff)


async def _try_handoff(run: Run, call: RoutedCall) -> None:
    """Run the checks of the chosen handoff, and answer its call."""
    attempt = call.attempt
    run.calls.begun.add(call.id)
    await try_handoff(run, attempt)
    call.result = Result(attempt.answer, attempt.error, exception=attempt.exception)
    if attempt.returns:
        call.result = None  # the target's output will answer it
    elif attempt.error is not None:
        call.result.is_mistake, call.result.problem = not attempt.by_tool, "handoff"


def _answer_skipped(run: Run, reply: RoutedCalls) -> None:
    """Answer, and put on record, the handoffs that are not tried."""
    for call in reply.skipped:
        is_mistake = reply.handoff is None and call.kind == "handoff"
        call.result = Result(call.attempt.answer, call.attempt.error, is_mistake)
    for call in (*reply.skipped, *reply.refused):
        begin_attempt(run, call.attempt)
        call.attempt.put_on_record(run)
    if reply.skipped:
        run.warn(f"turn {run.turn}: {len(reply.skipped)} of the reply's transfers were not taken")


async def _make_handoff(run: Run, call: RoutedCall) -> None:
    """Carry out the handoff if its target has accepted."""
    if call.attempt.target is not None:
        await take_over(run, call.attempt)
    if run.stream:
        run.handoffs.events.append(handoff_event(call))
