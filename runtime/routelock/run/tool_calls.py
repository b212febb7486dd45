"""Answers every tool call of a reply exactly once, in call order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from math import inf
from typing import Any, Self

import anyio

from routelock._concurrency import run_all
from routelock._isolation import isolated, isolated_events
from routelock.agents.agent_tool import AgentCall
from routelock.errors import (
    CallbackError,
    ConfigError,
    GuardrailTripped,
    RoutelockError,
    ToolError,
    ToolGuardrailTripped,
    ToolTimeout,
)
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
from routelock.run.emit import ToolBegins, ToolEnds, emit
from routelock.run.events import RunEvent
from routelock.run.handoff_checks import begin_handoff, check_handoff
from routelock.run.mistakes import answer_lost, answer_too_many, answer_unknown, mistake_error
from routelock.run.routing import MOST_CALLS, Result, RoutedCall, RoutedCalls
from routelock.run.run import Run
from routelock.run.steps import run_by_executor
from routelock.run.sub_run_accounts import absorb_sub_runs
from routelock.run.subrun import Events, GraceOver, SubRun, order_by_session, prepare_sub_runs
from routelock.run.tool_handoffs import record_undecided, refuse_unknown_targets, take_requests
from routelock.run.transfer import take_over
from routelock.tools.approvals import NO_APPROVALS
from routelock.tools.failures import text_for_app
from routelock.tools.invoke import invoke
from routelock.tools.outcome import CUT_OFF, NOT_RUN, ToolErrorKind, ToolOutcome

__all__ = [
    "ToolBatch",
    "answer_calls",
    "take_outcome",
]


_RUN_ENDS = "A call beside it stops the agent, so nothing was handed over."

_CALLER_FIRST = "The caller's tools come first, so nothing was handed over. Ask again if it is still needed."

_APPROVAL_FIRST = (
    "A call beside it waits for approval, so nothing was handed over. Ask again if it is still needed."
)


async def answer_calls(run: Run, routed: RoutedCalls, events: Events) -> AsyncGenerator[RunEvent]:
    """Answer a reply's calls: tools first and at the same time, then the first handoff. Yield the events.

    Args:
        run: the run.
        routed: the calls of the reply; their results are filled in.
        events: carries out the runs of agents that are called as tools.

    Raises:
        HandoffFilterError: an input filter or a history mapper failed.
        RoutelockError: a call ends the run; all are answered.
    """
    _answer_at_once(run, routed)
    try:
        if routed.tools and (free := await _free_tools(run, routed)):
            for call in free if run.is_streamed else ():
                yield called_event(run, call)
            with ToolBatch(run, free, events) as batch:
                await batch.run_together()
                for one in batch.streamed:
                    async with aclosing(batch.stream(one)) as happening:
                        async for event in happening:
                            yield event
            _hold_unanswered(run, routed, free)
        await _choose_handoff(run, routed)
        for each in decided_events(run, routed) if run.is_streamed else ():
            yield each
        if routed.handoff_call is not None or routed.unknown_targets:
            await _decide_handoffs(run, routed)
    except BaseException as error:
        record_undecided(run, routed, error)
        raise
    finally:
        _record(run, routed)
    if routed.waiting or run.open_calls.interruptions or run.sub_runs.waiting:
        note_waiting(run, routed)
    for each in later_events(run, routed) if run.is_streamed else ():
        yield each
    if (stop := _stop_of(routed)) is not None:
        raise stop
    if routed.handoff_call is not None:
        await _make_handoff(run, routed.handoff_call)


def _stop_of(routed: RoutedCalls) -> RoutelockError | None:
    """Return the first error, in call order, with which a call ends the run."""
    for call in routed.calls:
        if call.result is not None and call.result.stop is not None:
            return call.result.stop
    return None


def _answer_at_once(run: Run, routed: RoutedCalls) -> None:
    """Answer the calls that are certain not to be made; hold those of a resumed run without a decision."""
    if len(routed.calls) > MOST_CALLS:
        answer_too_many(run, routed)
    if run.sub_runs.to_resume:
        answer_lost(run, routed)
    if run.open_calls.decisions is not NO_APPROVALS:
        apply_decisions(run, routed)
    if routed.handoffs:
        routed.choose(run.config.multiple_handoffs)
    if routed.unknown:
        answer_unknown(run, routed)


def _record(run: Run, routed: RoutedCalls) -> None:
    """Append the results to the transcript; a missing one is filled in when the transcript is read.

    Problems are noted here and not when they happen: the run's result must not depend on the scheduler.
    """
    if routed.skipped or routed.refused:
        _answer_skipped(run, routed)
    for call in routed.calls:
        if call.guardrails:
            run.report.guardrails.extend(call.guardrails)
        if (result := call.result) is not None:
            content = with_media(result.text, result.media) if result.media else result.text
            message: Message = {"role": "tool", "tool_call_id": call.id, "content": content}
            run.add_message("handoff" if call.kind == "handoff" else "tool", message)
            if result.problem is not None:
                text = text_for_app(result.text, result.exception)
                run.add_problem(result.problem, text, call_id=call.id, error=result.exception)


# Tools


async def _free_tools(run: Run, routed: RoutedCalls) -> Sequence[RoutedCall]:
    """Return the tool calls that need no approval or have it; none in a turn that ends the run anyway.

    Raises:
        CallbackError: an ``is_enabled`` or ``needs_approval`` function raised; no call is carried out then.
        BudgetExceeded: ``RunConfig.limits`` does not allow all of these calls; none is carried out then.
    """
    free: Sequence[RoutedCall] = [call for call in routed.tools if call.result is None and not call.is_held]
    if _stop_of(routed) is not None:
        for call in free:
            if call.id not in run.sub_runs.to_resume:  # else it began before, and goes on with the run
                take_outcome(run, call, NOT_RUN)
        return ()
    if [each for each in free if each.tool.is_enabled is not True or each.tool.needs_approval is not False]:
        free = await gate_tools(run, routed, free)
    if free:
        run.budget.check(run.frame.agent.name, len(free))
        run.budget.tool_calls += len(free)
    return free


def _hold_unanswered(run: Run, routed: RoutedCalls, made: Sequence[RoutedCall]) -> None:
    """Hold the calls whose tools asked a person something, and so have no result."""
    if unanswered := [call for call in made if call.result is None]:
        hold_questions(run, routed, unanswered)


def _note_results(run: Run, routed: RoutedCalls) -> None:
    """Note what the tools returned, for the loop guard."""
    outputs: list[tuple[str, str, str]] = []
    requests: list[tuple[str, str, str]] = []
    for call in routed.tools:
        if call.result is not None:  # else it waits for approval
            is_request = call.outcome is not None and call.outcome.handoff is not None
            (requests if is_request else outputs).append((call.name, call.arguments, call.result.text))
    run.progress.tool_results(outputs, requests)


# The handoff


async def _choose_handoff(run: Run, routed: RoutedCalls) -> None:
    """Choose the handoff that the turn tries, among those of the model and of tools."""
    if routed.tools:
        if run.config.detect_loops and _stop_of(routed) is None:
            _note_results(run, routed)
        if [call for call in routed.tools if call.outcome is not None and call.outcome.handoff is not None]:
            take_requests(run, routed)
    if (chosen := routed.handoff_call) is None:
        return
    if why := _why_not_tried(run, routed):
        routed.skip_handoff(chosen, why)
        return
    handoff = chosen.attempt.handoff
    is_always_open = handoff.is_enabled is True and handoff.needs_approval is False
    if not is_always_open or run.open_calls.decisions is not NO_APPROVALS:
        await gate_handoff(run, routed, chosen)
    if routed.refused and not routed.tools and run.config.detect_loops:  # the turn brings nothing else
        refused = chosen.attempt.handoff.tool_name, chosen.arguments, chosen.attempt.result_text
        run.progress.tool_results([refused])


def _why_not_tried(run: Run, routed: RoutedCalls) -> str | None:
    """Return why no target is asked in a turn that ends or pauses the run: it would not go on."""
    if _stop_of(routed) is not None or (routed.unknown_targets and "failed_handoff" in run.config.raise_on):
        return _RUN_ENDS
    if routed.external:
        return _CALLER_FIRST
    return _APPROVAL_FIRST if routed.waiting or run.sub_runs.waiting else None


async def _decide_handoffs(run: Run, routed: RoutedCalls) -> None:
    """Refuse the handoffs by tools to unknown targets, and check the chosen one."""
    if routed.unknown_targets:
        refuse_unknown_targets(run, routed)
    if routed.handoff_call is not None:
        await _check_and_answer(run, routed.handoff_call)


async def _check_and_answer(run: Run, call: RoutedCall) -> None:
    """Run the checks of the chosen handoff, and answer its call, unless the target's output will do so."""
    attempt = call.attempt
    run.open_calls.begun.add(call.id)
    await check_handoff(run, attempt)
    if attempt.returns:
        call.result = None  # the target's output will answer it
        return
    call.result = Result(attempt.result_text, attempt.error, exception=attempt.exception)
    if attempt.error is not None:
        call.result.is_mistake, call.result.problem = not attempt.by_tool, "handoff"


def _answer_skipped(run: Run, routed: RoutedCalls) -> None:
    """Answer, and put on record, the handoffs that are not tried."""
    for call in routed.skipped:
        is_mistake = routed.handoff_call is None and call.kind == "handoff"
        call.result = Result(call.attempt.result_text, call.attempt.error, is_mistake)
    for call in (*routed.skipped, *routed.refused):
        begin_handoff(run, call.attempt)
        call.attempt.put_on_record(run)
    if routed.skipped:
        run.warn(f"turn {run.turn}: {len(routed.skipped)} of the reply's transfers were not taken")


async def _make_handoff(run: Run, call: RoutedCall) -> None:
    """Carry out the handoff if its target has accepted."""
    if call.attempt.target is not None:
        await take_over(run, call.attempt)
    if run.is_streamed:
        run.handoffs.events.append(handoff_event(call))


# The tools of a reply, agents as tools included: each call gets one outcome

_UNDECIDED = "It asked for a transfer to {target!r}, and the run ended before that was made."


class ToolBatch:
    """Runs the tools that one reply calls; close it with ``with``.

    At most ``tools_at_once`` run at the same time. Once one of them ends the run, no other call starts, and
    those that have started are cancelled after a grace period.

    A streamed run answers the calls of agents one after the other, after the other tools. To stream several
    at the same time would need a queue, which reads ahead of the stream's reader. The outcomes are the same,
    unless a call ends the run while others wait for a slot (``RunConfig.tools_at_once``), or an agent ends it
    while a tool takes longer than the grace period.

    Args:
        run: the run.
        calls: the calls, which are free to run.
        events: carries out sub-runs.
    """

    def __init__(self, run: Run, calls: Sequence[RoutedCall], events: Events) -> None:
        self.run = run
        self.calls = calls
        self.events = events
        self.streamed: Sequence[SubRun] = ()
        """Sub-runs that `run_together` leaves to `stream`."""
        self.is_single: bool = len(calls) == 1
        limit = None if self.is_single else run.config.tools_at_once
        self.slots: anyio.Semaphore | None = None if limit is None else anyio.Semaphore(limit)
        self._sub_runs: dict[str, SubRun] = {}
        """All sub-runs, by call id."""
        self._noted = len(run.report.errors)
        self._is_ending = False
        """Whether a call has ended the run."""
        self._deadline = inf
        """When the grace period of the other calls is over, on the event loop's clock."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        """Count what the sub-runs consumed, and put the problems of the calls in call order."""
        errors, noted = self.run.report.errors, self._noted
        if self._sub_runs:
            absorb_sub_runs(self.run)
        if len(errors) > noted:
            places = {call.id: place for place, call in enumerate(self.calls)}
            of_batch = sorted(errors[noted:], key=lambda each: places.get(each.call_id or "", -1))
            self.run.report.errors = (*errors[:noted], *of_batch)

    async def run_together(self) -> None:
        """Run tools and agents at the same time, except those whose events are streamed."""
        run, tools = self.run, self.calls
        agents = [call for call in tools if isinstance(call.tool.on_invoke_tool, AgentCall)]
        if agents:
            self._sub_runs = sub_runs = prepare_sub_runs(run, agents)
            if any(one.agent_call.session is not None for one in sub_runs.values()):
                await self._find_sessions()
            self.streamed = [one for one in sub_runs.values() if run.is_streamed and one.inner is not None]
            tools = [call for call in tools if call.id not in sub_runs]
            agents = [one.call for one in sub_runs.values() if one not in self.streamed]
        if run.config.executor is not None:
            await run_by_executor(self, run.config.executor, tools, agents)
            return
        together = [*tools, *agents]
        if self.is_single:
            for call in together:
                await isolated(self._work(call))
            return
        jobs = [partial(self.carry_out, call) for call in together]
        await run_all(jobs, lambda place: self.admit(together[place]))

    async def _find_sessions(self) -> None:
        for one in self._sub_runs.values():
            await isolated(one.find_session(one.call.context(self.run.current_context())))
        order_by_session(self._sub_runs.values())

    async def admit(self, call: RoutedCall) -> None:
        """Wait for a slot, and mark the call as skipped if the run is ending. `carry_out` has to follow."""
        if self.slots is not None:
            await self.slots.acquire()
        call.is_skipped = self._is_ending

    async def carry_out(self, call: RoutedCall) -> None:
        """Do the work of an admitted call, within the grace period if another one ends the run."""
        try:
            if call.is_skipped:
                self._skip(call)
                self._release_session(call)
                return
            with anyio.CancelScope(deadline=self._deadline) as call.scope:
                await self._work(call)
        finally:
            scope, call.scope = call.scope, None
            if self.slots is not None:
                self.slots.release()
        if scope is not None and scope.cancelled_caught and call.outcome is None:
            await self._cut_off(call)
        self._release_session(call)

    async def _work(self, call: RoutedCall) -> None:
        if call.id not in self._sub_runs:
            await self._invoke(call)
            return
        async for _ in self._run_sub(self._sub_runs[call.id]):
            pass

    async def stream(self, one: SubRun) -> AsyncGenerator[RunEvent]:
        """Carry out the call of an agent and yield its events; no other call runs meanwhile.

        A plain run would have started it together with the others. So it has the same grace period if one of
        them ended the run.
        """
        if self._is_ending and self.slots is not None:
            self._skip(one.call)
            return
        one.seconds = self.run.open_calls.grace if self._is_ending else None
        try:
            async with aclosing(isolated_events(self._run_sub(one))) as happening:
                async for event in happening:
                    yield event
        except GraceOver:
            await self._cut_off(one.call)
        one.release_session()

    def _release_session(self, call: RoutedCall) -> None:
        if call.id in self._sub_runs:
            self._sub_runs[call.id].release_session()

    async def wait_for_session(self, call: RoutedCall) -> None:
        """Wait for the sub-run before a call, if it is one of an agent and both have the same session."""
        if call.id in self._sub_runs:
            await self._sub_runs[call.id].wait_for_session()

    def take(self, call: RoutedCall, outcome: ToolOutcome, stop: RoutelockError | None = None) -> None:
        """Take an outcome; if it ends the run, start the grace period of the other calls."""
        if take_outcome(self.run, call, outcome, stop) and not self._is_ending:
            self._is_ending = True
            self._deadline = anyio.current_time() + self.run.open_calls.grace
            for each in self.calls:
                if each.scope is not None:
                    each.scope.deadline = self._deadline

    async def _cut_off(self, call: RoutedCall) -> None:
        run = self.run
        if call.id not in run.open_calls.begun:  # only its start hook was called
            self._skip(call)
            return
        self.take(call, CUT_OFF)
        await emit(run, ToolEnds(call.tool_call, call.tool, call.context(run.current_context()), CUT_OFF))

    def _skip(self, call: RoutedCall) -> None:
        self.run.budget.tool_calls -= 1
        if call.id not in self.run.sub_runs.to_resume:  # a stored sub-run can still be resumed
            self.take(call, NOT_RUN)

    async def _invoke(self, call: RoutedCall) -> None:
        """Call a tool and take its outcome."""
        run, tool = self.run, call.tool
        context: Any = call.context(run.current_context()) if tool.wants_context or run.is_observed else None
        if run.is_observed:
            await emit(run, ToolBegins(call.tool_call, tool, context))
        run.open_calls.begun.add(call.id)
        stop: RoutelockError | None = None
        try:
            with nullcontext() if run.recorder is None else run.recorder.inside(call.id):
                outcome = await invoke(tool, context, call.arguments, call.guardrails)
        except (ToolError, ConfigError, GuardrailTripped, CallbackError) as raised:
            outcome, stop = _outcome_of_stop(raised), raised
        self.take(call, outcome, stop)  # before the hooks: if one is cancelled, it is not lost
        if run.is_observed and outcome.question is None:
            await emit(run, ToolEnds(call.tool_call, tool, context, outcome))

    async def _run_sub(self, one: SubRun) -> AsyncGenerator[RunEvent]:
        """Carry out a sub-run and take its outcome; there is none if it waits for an approval."""
        run, call = self.run, one.call
        if not await one.wait_for_session():
            run.budget.tool_calls -= 1  # it is counted when the run is resumed
            return
        context = call.context(run.current_context())
        nested = None if one.inner is None else one.inner.run_id
        await emit(run, ToolBegins(call.tool_call, call.tool, context, nested))
        run.open_calls.begun.add(call.id)
        run.sub_runs.to_resume.pop(call.id, None)  # not before: the run may end before this call starts
        stop: RoutelockError | None = None
        try:
            async with aclosing(one.carry_out(context, self.events)) as happening:
                async for event in happening:
                    yield event
            outcome = one.outcome
        except (ToolError, ToolGuardrailTripped, CallbackError) as raised:
            outcome, stop = _outcome_of_stop(raised), raised
        if outcome is None:
            run.open_calls.begun.discard(call.id)
            run.budget.tool_calls -= 1  # it is counted when the run is resumed
            return
        self.take(call, outcome, stop)
        await emit(run, ToolEnds(call.tool_call, call.tool, context, outcome))


def take_outcome(
    run: Run, call: RoutedCall, outcome: ToolOutcome, stop: RoutelockError | None = None
) -> bool:
    """Answer a call with the outcome of its tool; return whether the run ends with it.

    Args:
        run: the run.
        call: the call.
        outcome: the outcome.
        stop: the error that the tool raised to stop the run.
    """
    call.outcome = outcome
    if outcome.usage is not None:
        run.add_usage(outcome.usage)
    if outcome.question is not None:  # the call goes on when a person has answered
        run.open_calls.begun.discard(call.id)
        run.budget.tool_calls -= 1
        return False
    result = Result(outcome.output, outcome.error, exception=outcome.exception, media=outcome.media)
    call.result = result
    if outcome.handoff is not None:
        result.text = _UNDECIDED.format(target=outcome.handoff.target_name)
    if outcome.error == "arguments":
        result.is_mistake, result.problem = True, "bad_arguments"
        if "bad_arguments" in run.config.raise_on:
            result.stop = mistake_error(run, outcome.output)
    elif outcome.error is not None:
        result.problem, result.stop = "tool", stop
    return result.stop is not None


def _outcome_of_stop(raised: RoutelockError) -> ToolOutcome:
    kind: ToolErrorKind = "timeout" if isinstance(raised, ToolTimeout) else "raised"
    kind = "guardrail" if isinstance(raised, GuardrailTripped) else kind
    return ToolOutcome(str(raised), error=kind, exception=raised)
