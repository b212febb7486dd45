"""The executor of a durable run: each model call and each tool is a step of a DBOS workflow.

Steps are found by their key, as in a journal. DBOS finds them by their position, but tools and sub-runs of
one turn run at the same time, in no fixed order. So the records are read once, when a worker takes over a
run; new steps get the positions after them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.run.executor import Call, Outcome
from routelock.state.dbos.client import StepStream
from routelock.state.dbos.database import engine
from routelock.state.steps import ReplayedSteps, StepExecutor, StepLost

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


class _EngineSteps(StepExecutor):
    """Runs each step as a step of DBOS, which records it; its events go to `RunClient.events`."""

    def __init__(self, attempt: int, *, show: bool) -> None:
        super().__init__(self._recorded, self._show_event if show else None)
        self._attempt = attempt
        self._shows = show
        self._streams: dict[str, StepStream] = {}

    def _show_event(self, call: Call, event: HandlerEvent) -> None:
        self._streams[call.key].show(event)

    async def _recorded(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        """Run a function as a step of DBOS, and raise its error here: DBOS could not raise it again.

        Raises:
            StepLost: DBOS could not record the step.
        """
        failed: list[Exception] = []

        async def body() -> str | None:
            try:
                return await self._shown(call, work)
            except Exception as error:
                failed.append(error)
                return None

        place = engine().DBOS.reserve_step()
        try:
            entry: str = await place.run_async({"name": call.key, "preemptible": True}, body)
        except Exception as error:  # an error of DBOS: those of the body are in `failed`
            raise StepLost(f"Step {call.key!r} of the run {call.run_id!r:.80} was not recorded.") from error
        if failed:
            raise failed[0]
        return entry

    async def _shown(self, call: Call, work: Callable[[], Awaitable[str]]) -> str:
        """Do the work of a step, while its events are written."""
        async with StepStream(call.key, self._attempt, open=self._shows) as out:
            self._streams[call.key] = out
            try:
                entry = await work()
            finally:
                del self._streams[call.key]
            if call.op == "tool":
                out.show_outcome(call, json.loads(entry))
            return entry


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

    A tool without a record gets a note as its result, because it may have started.

    Args:
        entries: the records by key.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        super().__init__(entries, _NoSteps())


class _NoSteps:
    """Refuses each step, because the run was cancelled."""

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        raise RoutelockError("The run was cancelled.")
        yield

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        return [_INTERRUPTED] * len(calls)
