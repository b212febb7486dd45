"""Runs the tools of one reply, agents as tools included: each call gets one outcome."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from math import inf
from typing import Any

import anyio
import anyio.lowlevel

from routelock._concurrency import isolated, isolated_events, run_all
from routelock.context import ToolContext
from routelock.errors import (
    CallbackError,
    ConfigError,
    GuardrailTripped,
    RoutelockError,
    ToolError,
    ToolTimeout,
)
from routelock.history.messages import ToolCall
from routelock.run.emit import ToolBegins, ToolEnds, emit, emit_now, has_hooks
from routelock.run.events import RunEvent
from routelock.run.executor import Call, Outcome
from routelock.run.result import Problem
from routelock.run.run import Run
from routelock.run.subrun import Events, GraceOver, SubRun, prepare_sub_runs, step_key
from routelock.tools.agent_tool import AgentCall
from routelock.tools.tool import CUT_OFF, NOT_RUN, Tool, ToolErrorKind, ToolOutcome

__all__ = ["Take", "run_tools"]


Take = Callable[[ToolCall, ToolOutcome, bool], bool]
"""Takes each outcome as soon as there is one.

The flag says whether the tool raised an error that stops the run. It returns whether the run ends."""


_Calls = Sequence[tuple[ToolCall, Tool]]


_Work = Callable[[], Coroutine[Any, Any, None]]


class _Batch:
    """The calls of one reply while they are carried out.

    At most ``tools_at_once`` run at the same time. Once one of them ends the run, no other call starts, and
    those that have started are cancelled after a grace period.
    """

    def __init__(self, run: Run, take: Take, calls: _Calls) -> None:
        most = run.config.tools_at_once
        self.run = run
        self.outcomes: dict[str, tuple[ToolOutcome, bool]] = {}
        """By call id, each with whether it ended the run."""
        self._take = take
        self._is_single = len(calls) == 1
        self._slots = None if most is None or self._is_single else anyio.Semaphore(most)
        self._is_ending = False
        """Whether a call has ended the run."""
        self._deadline = inf
        """When the grace period of the other calls is over, on the event loop's clock."""
        self._running: dict[str, anyio.CancelScope] = {}
        self._skipped: set[str] = set()

    @property
    def is_limited(self) -> bool:
        """Whether calls wait for one another, see ``RunConfig.tools_at_once``."""
        return self._slots is not None

    async def admit(self, call: ToolCall) -> None:
        """Wait for a slot, and mark the call as skipped if the run is ending. `carry_out` has to follow."""
        if self._slots is not None:
            await self._slots.acquire()
        if self._is_ending:
            self._skipped.add(call["id"])

    async def carry_out(self, call: ToolCall, tool: Tool, work: _Work) -> None:
        """Do the work of an admitted call, within the grace period if another one ends the run."""
        if self._is_single:
            await work()
            return
        try:
            if call["id"] in self._skipped:
                self._skip(call)
                return
            with anyio.CancelScope(deadline=self._deadline) as scope:
                self._running[call["id"]] = scope
                await work()
        finally:
            self._running.pop(call["id"], None)
            if self._slots is not None:
                self._slots.release()
        if scope.cancelled_caught and call["id"] not in self.outcomes:
            await self._cut_off(call, tool)

    async def carry_out_in_turn(self, call: ToolCall, tool: Tool, work: _Work) -> None:
        """Admit a call and carry it out.

        Calls that may start together are all admitted before any of them does something. So the calls that
        are skipped do not depend on the order in which the event loop starts tasks.
        """
        await self.admit(call)
        if not self._is_single and self._slots is None:
            await anyio.lowlevel.checkpoint()
        await self.carry_out(call, tool, work)

    async def stream(self, one: SubRun, events: Events) -> AsyncGenerator[RunEvent]:
        """Carry out the call of an agent and yield its events; no other call runs meanwhile.

        A plain run would have started it together with the others. So it has the same grace period if one of
        them ended the run.
        """
        if self._is_ending and self._slots is not None:
            self._skip(one.call)
            return
        one.seconds = self.run.calls.grace if self._is_ending else None
        try:
            async with aclosing(isolated_events(_run_sub(self.run, one, self.take, events))) as happening:
                async for event in happening:
                    yield event
        except GraceOver:
            await self._cut_off(one.call, one.tool)

    def take(self, call: ToolCall, outcome: ToolOutcome, stop: bool) -> bool:
        """Take an outcome; if it ends the run, start the grace period of the other calls."""
        ends = self._take(call, outcome, stop)
        self.outcomes[call["id"]] = outcome, ends
        if ends and not self._is_ending:
            self._is_ending = True
            self._deadline = anyio.current_time() + self.run.calls.grace
            for scope in self._running.values():
                scope.deadline = self._deadline
        return ends

    async def _cut_off(self, call: ToolCall, tool: Tool) -> None:
        if call["id"] not in self.run.calls.begun:  # only its start hook was called
            self._skip(call)
            return
        self.take(call, CUT_OFF, False)
        await emit(self.run, ToolEnds(call, tool, _context(self.run, call, tool), CUT_OFF))

    def _skip(self, call: ToolCall) -> None:
        self.run.budget.tool_calls -= 1
        if call["id"] not in self.run.sub_runs.to_resume:  # a stored sub-run can still be resumed
            self.take(call, NOT_RUN, False)


async def run_tools(run: Run, calls: _Calls, take: Take, events: Events) -> AsyncGenerator[RunEvent]:
    """Run the tools that a reply calls; yield the events of sub-runs if the run is streamed.

    A streamed run answers the calls of agents one after the other, after the other tools. To stream several
    at the same time would need a queue, which reads ahead of the stream's reader. The outcomes are the same,
    unless a call ends the run while others wait for a slot (``RunConfig.tools_at_once``).

    Args:
        run: the run.
        calls: each call with its tool.
        take: takes the outcomes.
        events: carries out sub-runs.
    """
    of_agents = [
        (call, tool, how) for call, tool in calls if isinstance(how := tool.on_invoke_tool, AgentCall)
    ]
    plain = (
        [each for each in calls if not isinstance(each[1].on_invoke_tool, AgentCall)] if of_agents else calls
    )
    batch, noted = _Batch(run, take, calls), len(run.report.errors)
    try:
        sub_runs = prepare_sub_runs(run, of_agents)
        streamed = [one for one in sub_runs if run.stream and one.inner is not None]
        await _run_together(batch, plain, [one for one in sub_runs if one not in streamed], events)
        for one in streamed:
            async with aclosing(batch.stream(one, events)) as happening:
                async for event in happening:
                    yield event
    finally:
        if of_agents:
            run.absorb_sub_runs()
        if len(run.report.errors) > noted:
            errors = run.report.errors
            run.report.errors = (*errors[:noted], *_in_call_order(errors[noted:], calls))


def _in_call_order(errors: Sequence[Problem], calls: _Calls) -> Sequence[Problem]:
    """Return the problems of this batch, noted when they occurred, in the order of the calls."""
    places = {call["id"]: place for place, (call, _) in enumerate(calls)}
    return sorted(errors, key=lambda each: places.get(each.call_id or "", -1))


async def _run_together(batch: _Batch, plain: _Calls, sub_runs: Sequence[SubRun], events: Events) -> None:
    """Run tools and agents at the same time, without the events of the sub-runs."""
    run = batch.run

    async def answer(one: SubRun) -> None:
        async for _ in _run_sub(run, one, batch.take, events):
            pass

    works = [(one.call, one.tool, partial(answer, one)) for one in sub_runs]
    if run.config.executor is None:
        await _run_here(batch, [*_works(batch, plain), *works])
    else:
        await _run_by_executor(batch, plain, works)


async def _run_by_executor(
    batch: _Batch, plain: _Calls, agents: Sequence[tuple[ToolCall, Tool, _Work]]
) -> None:
    """Run tools as steps of the executor, and agents beside them.

    A step that is replayed takes no time. So which agents start may not depend on when a tool ends: all of
    them are admitted before, or after the tools if only so many calls may run at once.
    """
    if batch.is_limited:
        await _run_plain(batch, plain)
        await run_all([partial(batch.carry_out_in_turn, *each) for each in agents])
        return
    for call, *_ in agents:
        await batch.admit(call)

    async def later(call: ToolCall, tool: Tool, work: _Work) -> None:
        await anyio.lowlevel.checkpoint()  # the tools are admitted first, too
        await batch.carry_out(call, tool, work)

    await run_all([partial(_run_plain, batch, plain), *(partial(later, *each) for each in agents)])


def _works(batch: _Batch, calls: _Calls) -> list[tuple[ToolCall, Tool, _Work]]:
    return [(call, tool, partial(_invoked, batch.run, call, tool, batch.take)) for call, tool in calls]


async def _run_here(batch: _Batch, works: Sequence[tuple[ToolCall, Tool, _Work]]) -> None:
    async def before(place: int) -> None:
        await batch.admit(works[place][0])

    await run_all([partial(batch.carry_out, *each) for each in works], before)


async def _run_plain(batch: _Batch, calls: _Calls) -> None:
    """Run tools that are not agents, as steps of the app's executor."""
    run, executor = batch.run, batch.run.config.executor
    if executor is None or not calls:
        return
    by_key = {step_key(run, each[1], each[0]): each for each in _works(batch, calls)}

    async def body(step: Call) -> Outcome:
        call, tool, work = by_key[step.key]
        await isolated(batch.carry_out_in_turn(call, tool, work))
        outcome, stop = batch.outcomes[call["id"]]
        return {**outcome.envelope(), "stop": stop}

    steps = [
        Call(
            run.run_id,
            key,
            "tool",
            {"name": tool.name, "call_id": call["id"], "arguments": call["function"].get("arguments") or ""},
            tool.timeout,
        )
        for key, (call, tool, _) in by_key.items()
    ]
    outcomes = await executor.gather(steps, body)
    for (call, tool), recorded in zip(calls, outcomes, strict=True):
        if call["id"] not in batch.outcomes:  # the executor replayed this step
            outcome = ToolOutcome.from_envelope(recorded)
            batch.take(call, outcome, bool(recorded.get("stop")))
            emit_now(run, ToolEnds(call, tool, None, outcome))


async def _invoked(run: Run, call: ToolCall, tool: Tool, take: Take) -> None:
    """Call a tool and take its outcome."""
    needs_context = tool.wants_context or has_hooks(run)
    context: Any = _context(run, call, tool) if needs_context else None
    await emit(run, ToolBegins(call, tool, context))
    run.calls.begun.add(call["id"])
    stop = False
    try:
        with nullcontext() if run.recorder is None else run.recorder.inside(call["id"]):
            outcome = await tool.invoke(context, call["function"].get("arguments") or "")
    except (ToolError, ConfigError, GuardrailTripped, CallbackError) as raised:
        outcome, stop = _stopped(raised), True
    take(call, outcome, stop)  # before the hooks: if one is cancelled, the outcome is not lost
    await emit(run, ToolEnds(call, tool, context, outcome))


async def _run_sub(run: Run, one: SubRun, take: Take, events: Events) -> AsyncGenerator[RunEvent]:
    """Carry out a sub-run and take its outcome; there is none if it waits for an approval."""
    context = _context(run, one.call, one.tool)
    nested = None if one.inner is None else one.inner.run_id
    await emit(run, ToolBegins(one.call, one.tool, context, nested))
    run.calls.begun.add(one.call["id"])
    run.sub_runs.to_resume.pop(one.call["id"], None)  # not before: the run may end before this call starts
    stop = False
    try:
        async with aclosing(one.carry_out(context, events)) as happening:
            async for event in happening:
                yield event
        outcome = one.outcome
    except ToolError as raised:
        outcome, stop = _stopped(raised), True
    if outcome is None:
        run.calls.begun.discard(one.call["id"])
        run.budget.tool_calls -= 1  # it is counted when the run is resumed
        return
    take(one.call, outcome, stop)
    await emit(run, ToolEnds(one.call, one.tool, context, outcome))


def _stopped(raised: RoutelockError) -> ToolOutcome:
    kind: ToolErrorKind = "timeout" if isinstance(raised, ToolTimeout) else "raised"
    if isinstance(raised, GuardrailTripped):
        kind = "guardrail"
    return ToolOutcome(str(raised), error=kind, exception=raised)


def _context(run: Run, call: ToolCall, tool: Tool) -> ToolContext[Any]:
    return ToolContext.of(
        run.now(),
        tool_name=tool.name,
        tool_call_id=call["id"],
        tool_arguments=call["function"].get("arguments") or "",
    )
