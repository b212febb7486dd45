"""Runs the tools of one reply as steps of the app's executor, and agents as tools beside them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio.lowlevel

from routelock._concurrency import run_all
from routelock._isolation import isolated
from routelock.errors import RoutelockError, ToolError, ToolGuardrailTripped, ToolTimeout
from routelock.guardrails import GuardrailRecord, records_as_json, records_from_json
from routelock.run.emit import ToolEnds, emit_now
from routelock.run.executor import Call, Executor, Outcome
from routelock.run.routing import RoutedCall
from routelock.run.subrun import step_key
from routelock.tools.outcome import ToolOutcome

if TYPE_CHECKING:
    from routelock.run.tool_batch import ToolBatch

__all__ = ["run_by_executor"]


async def run_by_executor(
    batch: ToolBatch, executor: Executor, tools: Sequence[RoutedCall], agents: Sequence[RoutedCall]
) -> None:
    """Run tools as steps of the executor, and agents beside them.

    A step that is replayed takes no time. So which agents start may not depend on when a tool ends: all
    of them are admitted before, or after the tools if only so many calls may run at once.
    """
    if batch.slots is not None:
        await _run_steps(batch, executor, tools)
        await run_all([partial(_carry_out_in_turn, batch, call) for call in agents])
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
        await isolated(_carry_out_in_turn(batch, call))
        assert call.outcome is not None
        stops = call.result is not None and call.result.stop is not None  # no result: the tool asks a person
        records = {"guardrails": records_as_json(call.guardrails)} if call.guardrails else {}
        return {**call.outcome.envelope(), "stop": stops, **records}

    steps: list[Call] = []
    for key, call in by_key.items():
        args = {"name": call.name, "call_id": call.id, "arguments": call.arguments}
        steps.append(Call(run.run_id, key, "tool", args, call.tool.timeout))
    for call, recorded in zip(calls, await executor.gather(steps, body), strict=True):
        if call.outcome is None:  # the executor replayed this step
            outcome = ToolOutcome.from_envelope(recorded)
            call.guardrails = records_from_json(recorded.get("guardrails", ()))
            stop = _replayed_stop(outcome, call.guardrails) if recorded.get("stop") else None
            batch.take(call, outcome, stop)
            if outcome.question is not None:
                continue
            emit_now(run, ToolEnds(call.call, call.tool, None, outcome))


async def _carry_out_in_turn(batch: ToolBatch, call: RoutedCall) -> None:
    """Admit a call and carry it out.

    Calls that may start together are all admitted before any of them does something. So the calls that
    are skipped do not depend on the order in which the event loop starts tasks.
    """
    await batch.wait_turn(call)  # or it could hold the slot that the other one needs
    await batch.admit(call)
    if not batch.is_single and batch.slots is None:
        await anyio.lowlevel.checkpoint()
    await batch.carry_out(call)


def _replayed_stop(outcome: ToolOutcome, records: Sequence[GuardrailRecord]) -> RoutelockError:
    """Return the error with which a tool ended the run, made anew from its recorded outcome."""
    if outcome.error == "guardrail":
        for one in records:
            if one.tripwire_triggered:
                return ToolGuardrailTripped(outcome.output, guardrail=one.name, info=one.output_info)
        return ToolGuardrailTripped(outcome.output)
    return (ToolTimeout if outcome.error == "timeout" else ToolError)(outcome.output)
