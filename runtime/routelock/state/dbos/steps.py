"""The executor of a durable run: each model call and each tool is a step of a DBOS workflow.

Steps are found by their key, as in a journal, and not by their position as DBOS does: tools and sub-runs of
one turn run at the same time, in no fixed order. So the records are read once, when a worker takes over a
run; new steps get the positions after them.
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
"""The first step of each worker that takes over a run."""

_INTERRUPTED: Outcome = {
    "err": {
        "type": "raised",
        "message": "The run was cancelled during this call. Whether it had an effect is not known.",
        "retryable": False,
    },
    "stop": True,
}


class DurableSteps(ReplayedSteps):
    """The `routelock.run.Executor` of one workflow.

    Args:
        entries: the records by key.
        attempt: how many workers have begun the run, this one included.
        show: whether events are recorded for `RunClient.events`.
    """

    def __init__(self, entries: Mapping[str, str], *, attempt: int, show: bool) -> None:
        super().__init__(entries, _EngineSteps(attempt, show=show))


class _EngineSteps:
    """Runs each step as a step of DBOS, which records it."""

    def __init__(self, attempt: int, *, show: bool) -> None:
        self._attempt = attempt
        self._show = show
        self._tools = InProcess()

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Run a model step to its end, and yield the reply; deltas go to `RunClient.events` only."""
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
        """Run tool steps at the same time; each is recorded as soon as it completes."""

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
        """Run a function as a step of DBOS, and raise its error here: DBOS could not raise it again.

        Raises:
            RunLost: DBOS could not record the step.
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
        except Exception as error:  # not of the body, whose errors are in `failed`
            raise RunLost(f"Step {key!r} could not be recorded.") from error
        if failed:
            raise failed[0]


async def taken_over(
    recorded: Sequence[Mapping[str, Any]], *, show: bool, before: Mapping[str, str] | None = None
) -> DurableSteps:
    """Take over a run, within its workflow.

    Args:
        recorded: the steps of the workflow that DBOS has recorded.
        show: whether events are recorded for `RunClient.events`.
        before: recorded outcomes of the workflow before this one, by key.
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
    """Return the recorded outcomes of a run, by the key of the step."""
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
        return [_INTERRUPTED] * len(calls)
