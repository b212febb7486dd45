"""Running the tools of a reply: at the same time where nobody watches, agents live where somebody does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio

from interlock.agent_tools import AgentCall
from interlock.concurrency import isolated, run_all
from interlock.context import ToolContext
from interlock.errors import (
    CallbackError,
    ConfigError,
    GuardrailTripped,
    InterlockError,
    ToolError,
    ToolTimeout,
)
from interlock.executor import Call, Outcome
from interlock.messages import ToolCall
from interlock.nested import Consultation, Events, consultations, step_key
from interlock.outcomes import ToolErrorKind, ToolOutcome
from interlock.results import Problem
from interlock.run import Run
from interlock.tell import heard, tell
from interlock.tools import Tool

__all__ = ["Slots", "Take", "run_tools"]

Take = Callable[[ToolCall, ToolOutcome, bool], None]
"""Is given each outcome as soon as it is there, and whether the run is to end with it."""

Slots = anyio.Semaphore | None
"""Gives one of so many places; None if there is one for everybody."""

_Calls = Sequence[tuple[ToolCall, Tool]]
_Job = Callable[[], Coroutine[Any, Any, object]]


async def run_tools(run: Run, calls: _Calls, take: Take, events: Events) -> None:
    """Run the tools that a reply calls; show what happens in nested runs if the run is streamed.

    A streamed run answers the calls of agents one after the other, once the other tools are done: what
    several of them do at the same time could only be shown by way of a queue, which reads ahead of its
    reader. The outcomes are the same.
    """
    most = run.config.tools_at_once
    slots = None if most is None else anyio.Semaphore(most)
    asked = [(call, tool, how) for call, tool in calls if isinstance(how := tool.on_invoke_tool, AgentCall)]
    noted = len(run.errors)
    try:
        if asked:
            plain = [(call, tool) for call, tool in calls if not isinstance(tool.on_invoke_tool, AgentCall)]
            await _run_with_agents(run, plain, consultations(run, asked), take, events, slots)
        else:
            await _run_plain(run, calls, take, slots)
    finally:
        if asked:
            run.absorb()
        if len(run.errors) > noted:
            run.errors = (*run.errors[:noted], *_in_call_order(run.errors[noted:], calls))


def _in_call_order(errors: Sequence[Problem], calls: _Calls) -> Sequence[Problem]:
    """Return what the hooks of tools raised, which is noted as it happens, in the order of the calls."""
    places = {call["id"]: place for place, (call, _) in enumerate(calls)}
    return sorted(errors, key=lambda each: places.get(each.call_id or "", -1))


async def _run_with_agents(
    run: Run, plain: _Calls, made: Sequence[Consultation], take: Take, events: Events, slots: Slots
) -> None:
    if run.stream:
        if plain:
            await _run_plain(run, plain, take, slots)
        for one in made:
            await isolated(_consulted(run, one, take, events))
        return
    if run.config.executor is None:
        tools = [functools.partial(_invoked, run, call, tool, take) for call, tool in plain]
        asked = [functools.partial(_consulted, run, one, take, events) for one in made]
        jobs: list[_Job] = [*tools, *asked]
        await run_all(jobs, slots)
        return
    jobs = [functools.partial(_consult, run, one, take, events, slots) for one in made]
    if plain:
        jobs.insert(0, functools.partial(_run_plain, run, plain, take, slots))
    await run_all(jobs)


async def _run_plain(run: Run, calls: _Calls, take: Take, slots: Slots) -> None:
    """Run ordinary tools: through the app's executor if there is one."""
    if (executor := run.config.executor) is None and len(calls) == 1:
        await isolated(_invoked(run, *calls[0], take))
        return
    if executor is None:
        await run_all([functools.partial(_invoked, run, call, tool, take) for call, tool in calls], slots)
        return
    by_key = {step_key(run, tool, call): (call, tool) for call, tool in calls}
    ran: set[str] = set()

    async def body(step: Call) -> Outcome:
        call, tool = by_key[step.key]
        ran.add(call["id"])
        outcome, stop = await isolated(_invoke(run, call, tool, take, slots))
        return {**outcome.envelope(), "stop": stop}

    steps = [
        Call(
            run.run_id,
            key,
            "tool",
            {"name": tool.name, "call_id": call["id"], "arguments": call["function"].get("arguments") or ""},
            tool.timeout,
        )
        for key, (call, tool) in by_key.items()
    ]
    outcomes = await executor.gather(steps, body)
    for (call, _), outcome in zip(calls, outcomes, strict=True):
        if call["id"] not in ran:  # an engine replayed this step instead of running it
            _took(run, take, call, ToolOutcome.from_envelope(outcome), bool(outcome.get("stop")))


async def _invoke(run: Run, call: ToolCall, tool: Tool, take: Take, slots: Slots) -> tuple[ToolOutcome, bool]:
    """Run one tool, take its outcome and return it, and whether the run is to end with it."""
    if slots is None:
        return await _invoked(run, call, tool, take)
    async with slots:
        return await _invoked(run, call, tool, take)


async def _invoked(run: Run, call: ToolCall, tool: Tool, take: Take) -> tuple[ToolOutcome, bool]:
    watched = heard(run)
    context: Any = _context(run, call, tool) if watched or tool.wants_context else None
    if watched:
        await _tell_start(run, tool, context)
    run.begun.add(call["id"])
    stop = False
    if run.tracing is not None:
        run.tracing.tool_started(call)
    try:
        arguments = call["function"].get("arguments") or ""
        if run.tracing is None:
            outcome = await tool.invoke(context, arguments)
        else:
            with run.tracing.inside(call["id"]):
                outcome = await tool.invoke(context, arguments)
    except (ToolError, ConfigError, GuardrailTripped, CallbackError) as raised:
        outcome, stop = _stopped(raised), True
    _took(run, take, call, outcome, stop)  # a hook that is cancelled must not lose it
    if watched:
        await _tell_end(run, tool, outcome, context)
    return outcome, stop


def _took(run: Run, take: Take, call: ToolCall, outcome: ToolOutcome, stop: bool) -> None:
    take(call, outcome, stop)
    if run.tracing is not None:
        run.tracing.tool_ended(call, outcome)


async def _consult(run: Run, one: Consultation, take: Take, events: Events, slots: Slots) -> None:
    """Let an agent answer one call and take the outcome, unless a call of its own waits for an approval."""
    if slots is None:
        await _consulted(run, one, take, events)
        return
    async with slots:
        await _consulted(run, one, take, events)


async def _consulted(run: Run, one: Consultation, take: Take, events: Events) -> None:
    context = _context(run, one.call, one.tool)
    await _tell_start(run, one.tool, context)
    run.begun.add(one.call["id"])
    run.to_resume.pop(one.call["id"], None)  # not before: a run may end without coming to it
    stop = False
    if run.tracing is not None:
        run.tracing.tool_started(one.call, None if one.inner is None else one.inner.run_id)
    try:
        outcome = await one.answered(context, events)
        if outcome is None:
            run.begun.discard(one.call["id"])
            run.tool_calls -= 1  # it is counted when it goes on
            return
    except ToolError as raised:
        outcome, stop = _stopped(raised), True
    _took(run, take, one.call, outcome, stop)
    await _tell_end(run, one.tool, outcome, context)


def _stopped(raised: InterlockError) -> ToolOutcome:
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


async def _tell_start(run: Run, tool: Tool, context: ToolContext[Any]) -> None:
    await tell(run, "on_tool_start", "on_tool_start", tool, context=context)


async def _tell_end(run: Run, tool: Tool, outcome: ToolOutcome, context: ToolContext[Any]) -> None:
    await tell(run, "on_tool_end", "on_tool_end", tool, outcome.output, context=context)
