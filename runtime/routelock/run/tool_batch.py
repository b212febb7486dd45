"""Runs the tools of one reply: at the same time or in turn, agents among them, each with one outcome."""

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
from routelock.run.subrun import Consultation, Events, GraceOver, consultations, step_key
from routelock.tools.agent_tool import AgentCall
from routelock.tools.tool import CUT_OFF, NOT_RUN, Tool, ToolErrorKind, ToolOutcome

__all__ = ["Take", "run_tools"]


Take = Callable[[ToolCall, ToolOutcome, bool], bool]
"""Is given each outcome as soon as it is there, and whether its tool says that the run is to end with it.

It returns whether the run does."""


_Calls = Sequence[tuple[ToolCall, Tool]]


_Work = Callable[[], Coroutine[Any, Any, None]]


class _Batch:
    """The calls of one reply while they are carried out.

    As many as may be at work at a time; and once one of them ends the run, none is begun any more, and those
    that were begun have a grace.
    """

    def __init__(self, run: Run, take: Take, calls: _Calls) -> None:
        most = run.config.tools_at_once
        self.run = run
        self.outcomes: dict[str, tuple[ToolOutcome, bool]] = {}
        """By call id, each with whether it ended the run."""
        self._take = take
        self._alone = len(calls) == 1
        self._slots = None if most is None or self._alone else anyio.Semaphore(most)
        self._doomed = False
        """Whether a call has ended the run."""
        self._until = inf
        """When the grace of the others is over."""
        self._going_on: dict[str, anyio.CancelScope] = {}
        self._left: set[str] = set()

    async def admit(self, call: ToolCall) -> None:
        """Wait for a place, and see whether the call is still to be begun. Then it has to be carried out."""
        if self._slots is not None:
            await self._slots.acquire()
        if self._doomed:
            self._left.add(call["id"])

    async def carry_out(self, call: ToolCall, tool: Tool, work: _Work) -> None:
        """Do the work of a call that was admitted, within the grace if another one ends the run."""
        if self._alone:
            await work()
            return
        try:
            if call["id"] in self._left:
                self._leave(call)
                return
            with anyio.CancelScope(deadline=self._until) as scope:
                self._going_on[call["id"]] = scope
                await work()
        finally:
            self._going_on.pop(call["id"], None)
            if self._slots is not None:
                self._slots.release()
        if scope.cancelled_caught and call["id"] not in self.outcomes:
            await self._cut_off(call, tool)

    async def carry_out_in_turn(self, call: ToolCall, tool: Tool, work: _Work) -> None:
        """Wait until it is the turn of a call, and carry it out.

        Calls that may be begun together see whether the run has ended before any of them does something, so
        what is left does not depend on the order in which the event loop begins tasks.
        """
        await self.admit(call)
        if not self._alone and self._slots is None:
            await anyio.lowlevel.checkpoint()
        await self.carry_out(call, tool, work)

    async def stream(self, one: Consultation, events: Events) -> AsyncGenerator[RunEvent]:
        """Carry out the call of an agent and yield what happens: nothing goes on beside it.

        A plain run would have begun it with the others, so it has the same grace if one of them ends the run.
        """
        if self._doomed and self._slots is not None:
            self._leave(one.call)
            return
        one.seconds = self.run.calls.grace if self._doomed else None
        try:
            async with aclosing(isolated_events(_consulted(self.run, one, self.take, events))) as happening:
                async for event in happening:
                    yield event
        except GraceOver:
            await self._cut_off(one.call, one.tool)

    def take(self, call: ToolCall, outcome: ToolOutcome, stop: bool) -> bool:
        """Take an outcome; if the run ends with it, see that the other calls end soon."""
        ends = self._take(call, outcome, stop)
        self.outcomes[call["id"]] = outcome, ends
        if ends and not self._doomed:
            self._doomed = True
            self._until = anyio.current_time() + self.run.calls.grace
            for scope in self._going_on.values():
                scope.deadline = self._until
        return ends

    async def _cut_off(self, call: ToolCall, tool: Tool) -> None:
        if call["id"] not in self.run.calls.begun:  # a hook was told that it is about to
            self._leave(call)
            return
        self.take(call, CUT_OFF, False)
        await emit(self.run, ToolEnds(call, tool, _context(self.run, call, tool), CUT_OFF))

    def _leave(self, call: ToolCall) -> None:
        self.run.budget.tool_calls -= 1
        if call["id"] not in self.run.sub_runs.to_resume:  # else it began before, and goes on with the run
            self.take(call, NOT_RUN, False)


async def run_tools(run: Run, calls: _Calls, take: Take, events: Events) -> AsyncGenerator[RunEvent]:
    """Run the tools that a reply calls; yield what happens in nested runs if the run is streamed.

    A streamed run answers the calls of agents one after the other, once the other tools are done: what
    several of them do at the same time could only be shown by way of a queue, which reads ahead of its
    reader. The outcomes are the same, unless one of them ends the run while others wait for their slot
    (``RunConfig.tools_at_once``).

    Args:
        run: the run.
        calls: each with its tool.
        take: is given the outcomes.
        events: carries out nested runs.
    """
    asked = [(call, tool, how) for call, tool in calls if isinstance(how := tool.on_invoke_tool, AgentCall)]
    plain = [each for each in calls if not isinstance(each[1].on_invoke_tool, AgentCall)] if asked else calls
    batch, noted = _Batch(run, take, calls), len(run.report.errors)
    try:
        made = consultations(run, asked)
        if made and not run.stream:
            await _run_with_agents(batch, plain, made, events)
            return
        if plain:
            await _run_plain(batch, plain)
        for one in made:
            async with aclosing(batch.stream(one, events)) as happening:
                async for event in happening:
                    yield event
    finally:
        if asked:
            run.absorb_sub_runs()
        if len(run.report.errors) > noted:
            errors = run.report.errors
            run.report.errors = (*errors[:noted], *_in_call_order(errors[noted:], calls))


def _in_call_order(errors: Sequence[Problem], calls: _Calls) -> Sequence[Problem]:
    """Return what the hooks of tools raised, which is noted as it happens, in the order of the calls."""
    places = {call["id"]: place for place, (call, _) in enumerate(calls)}
    return sorted(errors, key=lambda each: places.get(each.call_id or "", -1))


async def _run_with_agents(
    batch: _Batch, plain: _Calls, made: Sequence[Consultation], events: Events
) -> None:
    """Run tools and agents at the same time; what happens in the agents' runs is not shown."""
    run = batch.run

    async def answer(one: Consultation) -> None:
        async for _ in _consulted(run, one, batch.take, events):
            pass

    works = [(one.call, one.tool, partial(answer, one)) for one in made]
    if run.config.executor is None:
        await _run_here(batch, [*_works(batch, plain), *works])
        return
    jobs: list[Callable[[], Coroutine[Any, Any, None]]] = [
        partial(batch.carry_out_in_turn, *each) for each in works
    ]
    if plain:
        jobs.insert(0, partial(_run_plain, batch, plain))
    await run_all(jobs)


def _works(batch: _Batch, calls: _Calls) -> list[tuple[ToolCall, Tool, _Work]]:
    return [(call, tool, partial(_invoked, batch.run, call, tool, batch.take)) for call, tool in calls]


async def _run_here(batch: _Batch, works: Sequence[tuple[ToolCall, Tool, _Work]]) -> None:
    async def before(place: int) -> None:
        await batch.admit(works[place][0])

    await run_all([partial(batch.carry_out, *each) for each in works], before)


async def _run_plain(batch: _Batch, calls: _Calls) -> None:
    """Run ordinary tools: through the app's executor if there is one."""
    run = batch.run
    if (executor := run.config.executor) is None:
        await _run_here(batch, _works(batch, calls))
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
        if call["id"] not in batch.outcomes:  # an engine replayed this step instead of running it
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


async def _consulted(run: Run, one: Consultation, take: Take, events: Events) -> AsyncGenerator[RunEvent]:
    """Let an agent answer one call and take the outcome, unless a call of its own waits for an approval."""
    context = _context(run, one.call, one.tool)
    nested = None if one.inner is None else one.inner.run_id
    await emit(run, ToolBegins(one.call, one.tool, context, nested))
    run.calls.begun.add(one.call["id"])
    run.sub_runs.to_resume.pop(one.call["id"], None)  # not before: a run may end without coming to it
    stop = False
    try:
        async with aclosing(one.answered(context, events)) as happening:
            async for event in happening:
                yield event
        outcome = one.outcome
    except ToolError as raised:
        outcome, stop = _stopped(raised), True
    if outcome is None:
        run.calls.begun.discard(one.call["id"])
        run.budget.tool_calls -= 1  # it is counted when it goes on
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
