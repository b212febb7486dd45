"""The executor of a durable run: each model call and each tool is a step of a DBOS workflow.

Steps are found by their key, as in a journal, and not by their place as DBOS does: tools and sub-runs of one
turn go on at the same time, in no fixed order. So the records are read once, when a worker takes a run over;
new steps get the places after them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.run.executor import Call, InProcess, Outcome
from routelock.state.dbos.client import StepStream
from routelock.state.dbos.database import RunLost, engine
from routelock.state.steps import ModelStep, ReplayedSteps, recorded_error

__all__ = ["BEGINS", "DurableSteps", "RecordedSteps", "recorded_entries", "taken_over"]


BEGINS = "begins"
"""The step with which each worker begins that takes a run over."""

_CUT_OFF: Outcome = {
    "err": {
        "type": "raised",
        "message": "The run was cancelled while this was going on. Whether it had an effect is not known.",
        "retryable": False,
    },
    "stop": True,
}


class DurableSteps(ReplayedSteps):
    """The `routelock.run.Executor` of one workflow.

    Args:
        entries: the records by key.
        attempt: how many workers have started with the run, this one included.
        show: whether events are written down for readers elsewhere.
    """

    def __init__(self, entries: Mapping[str, str], *, attempt: int, show: bool) -> None:
        super().__init__(entries, _EngineSteps(attempt, show=show))


class _EngineSteps:
    """Carries out each step as a step of the engine, which records it."""

    def __init__(self, attempt: int, *, show: bool) -> None:
        self._attempt = attempt
        self._show = show
        self._tools = InProcess()

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Run a model step to its end, and yield the reply; deltas go to readers elsewhere."""
        step = ModelStep()

        async def ask(out: StepStream) -> str:
            try:
                async with aclosing(body(call)) as events:
                    async for event in events:
                        out.show(event)
                        step.note(event)
            except Exception as error:
                step.error = recorded_error(error, call)
                if step.error is None:
                    raise
            return step.to_json()

        await self._step(call.key, ask)
        for event in step.events():
            yield event
        if step.error is not None:
            raise step.error

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run tool steps at the same time; each is recorded as soon as it is done."""

        async def recorded(call: Call) -> Outcome:
            return await self._outcome(call, body)

        return await self._tools.gather(calls, recorded)

    async def _outcome(self, call: Call, body: Callable[[Call], Awaitable[Outcome]]) -> Outcome:
        made: list[Outcome] = []

        async def run(out: StepStream) -> str:
            made.append(await body(call))
            out.show_outcome(call, made[0])
            return json.dumps(made[0])

        await self._step(call.key, run)
        return made[0]

    async def _step(self, key: str, work: Callable[[StepStream], Awaitable[str]]) -> None:
        """Do it within a step of the engine, and raise here what it raises: the engine could not do so again.

        Raises:
            RunLost: the engine could not record it.
        """
        failed: list[Exception] = []

        async def body() -> str | None:
            try:
                async with StepStream(key, self._attempt, open=self._show) as out:
                    return await work(out)
            except Exception as error:
                failed.append(error)
                return None

        place = engine().DBOS.reserve_step()
        try:
            await place.run_async({"name": key, "preemptible": True}, body)
        except Exception as error:  # what the body raises is in `failed`
            raise RunLost(f"Step {key!r} could not be recorded.") from error
        if failed:
            raise failed[0]


async def taken_over(
    recorded: Sequence[Mapping[str, Any]], *, show: bool, before: Mapping[str, str] | None = None
) -> DurableSteps:
    """Begin to carry on with a run, within its workflow.

    Args:
        recorded: the steps that the engine knows of it.
        show: whether events are written down for others.
        before: recorded steps of the workflow before it, by key.
    """
    dbos = engine().DBOS
    last = max((step["function_id"] for step in recorded), default=0)
    place = dbos.reserve_step()
    while place.step_id <= last:
        place = dbos.reserve_step()

    async def begin() -> None: ...

    await place.run_async({"name": BEGINS}, begin)
    attempt = 1 + sum(step["function_name"] == BEGINS for step in recorded)
    entries = {**(before or {}), **recorded_entries(recorded)}
    return DurableSteps(entries, attempt=attempt, show=show)


def recorded_entries(recorded: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return what is recorded of a run, by the key of the step."""
    return {step["function_name"]: step["output"] for step in recorded if isinstance(step["output"], str)}


class RecordedSteps(ReplayedSteps):
    """The `routelock.run.Executor` that replays the records of a run and then ends it.

    A tool without a record gets a note as its result, as one that was cut off: it may have started.

    Args:
        entries: the records by key.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__(entries, _NoSteps())


class _NoSteps:
    """Carries out nothing: the run was cancelled."""

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        raise RoutelockError("The run was cancelled.")
        yield

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        return [_CUT_OFF] * len(calls)
