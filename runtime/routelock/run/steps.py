"""Model calls and tool calls as steps of the app's executor: their keys, arguments and outcomes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from routelock._concurrency import run_all
from routelock._isolation import isolated
from routelock._json import recordable
from routelock.errors import CallbackError, RoutelockError, ToolError, ToolGuardrailTripped, ToolTimeout
from routelock.guardrails import GuardrailRecord, records_as_json, records_from_json
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.handlers.port import Request
from routelock.run.emit import ToolEnds, emit_now
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.frames import earliest_deadline
from routelock.run.routing import RoutedCall
from routelock.run.run import Run
from routelock.run.subrun import step_key
from routelock.tools.outcome import ToolOutcome

if TYPE_CHECKING:
    from routelock.run.tool_calls import ToolBatch

__all__ = [
    "run_by_executor",
    "step_events",
]


async def run_by_executor(
    batch: ToolBatch, executor: Executor, tools: Sequence[RoutedCall], agents: Sequence[RoutedCall]
) -> None:
    """Run tools as steps of the executor, and agents beside them.

    A step that is replayed takes no time. So which agents start may not depend on when a tool ends: all
    of them are admitted before the tools start, or after the tools if ``tools_at_once`` limits the calls.
    """
    if batch.slots is not None:
        await _run_steps(batch, executor, tools)
        await run_all([partial(_admit_and_carry_out, batch, call) for call in agents])
        return
    for call in agents:
        await batch.admit(call)

    async def later(call: RoutedCall) -> None:
        await anyio.lowlevel.checkpoint()  # the tools are admitted first, too
        await batch.carry_out(call)

    await run_all([partial(_run_steps, batch, executor, tools), *(partial(later, call) for call in agents)])


async def _run_steps(batch: ToolBatch, executor: Executor, calls: Sequence[RoutedCall]) -> None:
    """Run tools that are not agents, as steps of the app's executor."""
    if not calls:
        return
    run = batch.run
    by_key = {step_key(run, call): call for call in calls}

    async def body(step: Call) -> Outcome:
        call = by_key[step.key]
        await isolated(_admit_and_carry_out(batch, call))
        assert call.outcome is not None
        stop = None if call.result is None else call.result.stop  # no result: the tool asks a person
        more: dict[str, Any] = {"stop": stop is not None}
        if isinstance(stop, CallbackError):
            more["of_callback"] = True
        if call.guardrails:
            more["guardrails"] = records_as_json(call.guardrails)
        return {**call.outcome.envelope(), **more}

    steps: list[Call] = []
    for key, call in by_key.items():
        args = {"name": call.name, "call_id": call.id, "arguments": call.arguments}
        steps.append(Call(run.run_id, key, "tool", args, call.tool.timeout))
    for call, recorded in zip(calls, await executor.gather(steps, body), strict=True):
        if call.outcome is None:  # the executor replayed this step
            outcome = ToolOutcome.from_envelope(recorded)
            call.guardrails = records_from_json(recorded.get("guardrails", ()))
            stop = _replayed_stop(outcome, recorded, call.guardrails) if recorded.get("stop") else None
            batch.take(call, outcome, stop)
            if outcome.question is not None:
                continue
            emit_now(run, ToolEnds(call.tool_call, call.tool, None, outcome))


async def _admit_and_carry_out(batch: ToolBatch, call: RoutedCall) -> None:
    """Admit a call and carry it out.

    Calls that may start together are all admitted before any of them does something. So the calls that
    are skipped do not depend on the order in which the event loop starts tasks.
    """
    await batch.wait_for_session(call)  # or it could hold the slot that the other one needs
    await batch.admit(call)
    if not batch.is_single and batch.slots is None:
        await anyio.lowlevel.checkpoint()
    await batch.carry_out(call)


def _replayed_stop(
    outcome: ToolOutcome, recorded: Outcome, records: Sequence[GuardrailRecord]
) -> RoutelockError:
    """Return the error with which a tool ended the run, made anew from its recorded outcome.

    Its class has to be the same: the model of a caller is told its name.
    """
    if recorded.get("of_callback"):
        return CallbackError(outcome.output)
    if outcome.error == "guardrail":
        for one in records:
            if one.tripwire_triggered:
                return ToolGuardrailTripped(outcome.output, guardrail=one.name, info=one.output_info)
        return ToolGuardrailTripped(outcome.output)
    return (ToolTimeout if outcome.error == "timeout" else ToolError)(outcome.output)


async def step_events(
    run: Run, executor: Executor, request: Request, make: Callable[[], AsyncGenerator[HandlerEvent]]
) -> AsyncGenerator[HandlerEvent]:
    """Make the model call as a step; a replayed step begins its further attempts, as a new one does.

    Args:
        run: the run.
        executor: records the step, or replays it.
        request: the request of the call.
        make: makes the call, and returns its events.
    """
    step = Call(run.run_id, _step_key(run), "model", _step_arguments(run, request))
    is_replayed = True

    def body(_: Call) -> AsyncGenerator[HandlerEvent]:
        nonlocal is_replayed
        is_replayed = False
        return make()

    async with aclosing(executor.stream(step, body)) as events:
        async for event in events:
            yield event
            if is_replayed and isinstance(event, AttemptFailed):
                run.budget.begin_attempt()


def _step_key(run: Run) -> str:
    key = f"t{run.turn}.model.{run.frame.agent.name}"
    if earliest_deadline(run.callers) < inf:  # a step that times out is no turn: the next needs another key
        key = f"{key}~{len(run.callers)}"
    if run.model_call.compacted_turn == run.turn:  # the call that was too long is another step
        key = f"{key}.again"
    return f"{key}.{run.frame.handler.name}" if run.failed_handlers else key


def _step_arguments(run: Run, request: Request) -> dict[str, Any]:
    output = request.output_schema
    args: dict[str, Any] = {
        "agent": request.agent,
        "handler": run.frame.handler.name,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "settings": request.settings,
        "output_schema": None if output is None else asdict(output),
    }
    if request.handoff_input is not None:
        args["handoff_input"] = recordable(request.handoff_input)
    return args
