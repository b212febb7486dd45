"""The client of durable runs: starts them, streams their events, and returns their results."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypedDict, cast

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.history.input import to_messages
from routelock.history.messages import Message, RunInput
from routelock.run.executor import Call, Outcome
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.state.dbos.database import EVENTS, engine, queued_as, running_client
from routelock.state.document import parse_document
from routelock.state.run_state import RunState, is_behind

if TYPE_CHECKING:
    from dbos import DBOSClient, WorkflowHandleAsync

__all__ = [
    "EndDocument",
    "EndStatus",
    "EndedRun",
    "JobDocument",
    "RunClient",
    "StepPart",
    "StepStream",
    "check_run_id",
    "next_id",
    "segment_id",
    "segment_of",
]


EndStatus = Literal["done", "waiting", "failed", "cancelled"]
"""How a segment of a run ended. ``done``: there is a final output. ``waiting``: the run waits for answers or
approvals. ``failed``: an error or a limit ended the run. ``cancelled``: `RunClient.cancel` ended the run."""


class JobDocument(TypedDict):
    """A segment of a run, as it is put into the queue of a worker."""

    agent: str
    run_id: str
    input: list[Message] | None
    state: str | None
    """The `RunState` from which the run is resumed, as JSON."""
    context: Any
    """The argument of the worker's ``context`` function."""
    max_turns: int | None
    until: float | None
    """The deadline of the run, in seconds since 1970."""
    show: bool
    """Whether its events are recorded for `RunClient.events`."""
    follows: NotRequired[int]
    """How many segments before this one belong to the same stream of `RunClient.events`."""
    closes: NotRequired[str]
    """The workflow id of a cancelled segment. The worker makes a state of its recorded steps, and runs
    nothing."""
    steps: NotRequired[dict[str, str]]
    """Recorded steps, by key, that the segment before this one did not reach."""


class EndDocument(TypedDict):
    """The end of a segment."""

    status: Literal["done", "waiting", "failed", "cancelled", "moved"]
    """How the segment ended, see `EndStatus`; ``moved``: another worker runs the next segment."""
    state: str | None
    error: str | None
    steps: NotRequired[dict[str, str]]
    """Recorded steps, by key, that the run did not reach. The next segment needs them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """The end of a run, or the state in which it waits."""

    run_id: str
    segment: int
    """The number of the run's last segment, from 1. A run that waited, was cancelled or moved to another
    worker continues in a new segment."""
    agent: str
    """The name of the agent in whose queue the run was last."""
    status: EndStatus
    state_json: str | None = None
    """The state as JSON; None if the run could not begin."""
    error: str | None = None
    """The text of the error that ended the run; None if none did."""

    def state(self, *, agents: Sequence[Agent[Any]]) -> RunState:
        """Return the state of the run, with its items, its usage, and the calls that wait.

        Args:
            agents: see `RunState.from_json`.

        Raises:
            ConfigError: the run has no state.
        """
        if self.state_json is None:
            raise ConfigError(
                f"The run {self.run_id!r:.80} has no state: it was {self.status}. {self.error or ''}".strip()
            )
        return RunState.from_json(self.state_json, agents=agents)


def check_run_id(run_id: str) -> None:
    """Check an id of a run.

    Raises:
        ConfigError: the id is empty, too long, or has the ``#`` of segment ids.
    """
    if not re.fullmatch(r"[^#\s][^#]{0,199}", run_id):
        raise ConfigError(f"A run_id has 1 to 200 characters and no '#', not {run_id!r:.80}.")


def segment_id(run_id: str, segment: int) -> str:
    """Return the workflow id of a segment of a run."""
    return run_id if segment == 1 else f"{run_id}#{segment}"


def segment_of(workflow_id: str) -> int:
    """Return the number of the segment that a workflow id names."""
    number = workflow_id.partition("#")[2]
    return int(number) if number else 1


def next_id(workflow_id: str) -> str:
    """Return the workflow id of the next segment."""
    return segment_id(workflow_id.partition("#")[0], segment_of(workflow_id) + 1)


_WRITE_SECONDS = 0.05
"""Seconds between two writes. Each write is a transaction: one for each token would slow down the model."""


class StepStream:
    """Collects the events of one step and writes them in order, at intervals of some milliseconds."""

    def __init__(self, key: str, attempt: int, *, open: bool) -> None:
        self._about = {"step": key, "attempt": attempt}
        self._open = open
        self._first = True
        self._waiting: list[dict[str, Any]] = []
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def show(self, event: HandlerEvent) -> None:
        """Record an event."""
        if isinstance(event, AttemptFailed):
            self._add({"attempt": event.attempt, "delay": event.delay, "error": str(event.error)}, event.type)
        else:
            self._add(asdict(event), event.type)

    def show_outcome(self, call: Call, outcome: Outcome) -> None:
        """Record the outcome of a tool call."""
        self._add({"call": dict(call.args), "outcome": dict(outcome)}, "tool_outcome")

    def _add(self, data: dict[str, Any], kind: str) -> None:
        if self._open:
            self._waiting.append({"type": kind, **data})

    async def __aenter__(self) -> StepStream:
        if self._open:
            self._writing = asyncio.create_task(self._write_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._writing is not None:
            await self._writing

    async def _write_on(self) -> None:
        over = False
        while not over:
            with suppress(TimeoutError):
                over = await asyncio.wait_for(self._over.wait(), _WRITE_SECONDS)
            await self._write()

    async def _write(self) -> None:
        if not self._waiting:
            return
        events, self._waiting = self._waiting, []
        part = {**self._about, "first": self._first, "events": events}
        self._first = False
        await engine().DBOS.write_stream_async(EVENTS, part)


_log = logging.getLogger("routelock.durable")

_RETRY_SECONDS = 0.5
"""Seconds between two attempts while the database is unavailable."""

_ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Some events of one step of a run, in order."""

    offset: int
    """The offset of this part. A client that lost its connection continues with ``offset + 1``."""
    step: str
    """The key of the step, such as ``"t1.model.triage"``."""
    attempt: int
    """The number of the worker that runs the step: 1 for the run's first worker, 2 for the next one."""
    restarts: bool
    """Whether the step is run again because its worker died: discard its earlier events."""
    events: Sequence[Mapping[str, Any]]
    """The events as JSON, with a ``type`` such as ``"text_delta"``; ``"message_done"`` has the complete
    reply, ``"tool_outcome"`` the outcome of a tool."""

    @property
    def text(self) -> str:
        """The text of its text deltas."""
        return "".join(event["text"] for event in self.events if event["type"] == "text_delta")


class RunClient:
    """Starts, watches and resumes runs, as in a web server: ``async with RunClient(database) as client``.

    It needs no agents, except to read states. It runs on asyncio only.

    Args:
        database: the address of the PostgreSQL database that the workers use.
        poll: seconds between two checks for a result.
    """

    def __init__(self, database: str, *, poll: float = 0.1) -> None:
        self._database = database
        self._poll = poll
        self._opened: AbstractAsyncContextManager[DBOSClient] | None = None
        self._dbos: DBOSClient | None = None

    async def __aenter__(self) -> RunClient:
        self._opened = running_client(self._database, listen=True)
        self._dbos = await self._opened.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)

    async def start(
        self,
        agent: str | Agent[Any],
        input: RunInput | RunState,
        *,
        run_id: str,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        timeout: float | None = None,
        show: bool = False,
    ) -> None:
        """Put a run into the queue of its agent. A run that was started before is not started again.

        Args:
            agent: the first agent, or its name.
            input: see `Runner.run`.
            run_id: the id of the run, such as the number of an order.
            context: JSON, from which the workers make the context object.
            max_turns: see `Runner.run`.
            timeout: seconds from now that the run may take, including its time in the queue.
            show: whether its events are recorded for `events`.

        Raises:
            ConfigError: the id is not valid, is not that of the state, or belongs to a run that began with
                another agent or input.
        """
        check_run_id(run_id)
        state = input.to_json() if isinstance(input, RunState) else None
        if isinstance(input, RunState) and input.run_id != run_id:
            raise ConfigError(
                f"This is a state of the run {input.run_id!r:.80}, not of {run_id!r:.80}. Give run_id="
                f"{input.run_id!r:.80}, or a state of the other run."
            )
        job: JobDocument = {
            "agent": agent if isinstance(agent, str) else agent.name,
            "run_id": run_id,
            "input": None if isinstance(input, RunState) else to_messages(input),
            "state": state,
            "context": context,
            "max_turns": max_turns,
            "until": None if timeout is None else time.time() + timeout,
            "show": show,
        }
        await self._enqueue(job, run_id)
        began: Any = _job(await self._segment(run_id))
        if differs := next((key for key in _WHAT_BEGAN if began[key] != job[key]), None):
            raise ConfigError(
                f"The run {run_id!r:.80} began with another {differs}: give this one an id of its own."
            )

    async def wait(self, run_id: str) -> EndedRun:
        """Wait until the run has ended or waits for answers, and return its end.

        While the database is unavailable, this waits for the database.

        Raises:
            ConfigError: there is no such run.
        """
        from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - comes with the extra

        while True:
            try:
                if (ended := await self._end_of(run_id)) is not None:
                    return ended
            except OperationalError as error:
                _log.warning("routelock: the database is unavailable (%s); trying again", error)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _end_of(self, run_id: str) -> EndedRun | None:
        """Wait until the last segment has ended; return the end of the run, or None if it goes on."""
        last = await self._last(run_id)
        if last.status not in _ENDED:
            last = await self._ended_segment(last)
        if last.status == "CANCELLED":
            await self._close(last)
            return None
        moved = last.output is not None and last.output["status"] == "moved"
        return None if moved else _ended(last, run_id)

    async def _ended_segment(self, segment: Any) -> Any:
        """Wait until a segment has ended, and return it."""
        handle: WorkflowHandleAsync[Any]
        handle = await self._client.retrieve_workflow_async(segment.workflow_id)
        try:
            await handle.get_result(polling_interval_sec=self._poll)
        except Exception:  # DBOS raises classes of its own; the status says what happened
            if (await handle.get_status()).status not in _ENDED:
                raise
        return await self._segment(segment.workflow_id)

    async def resume(self, ended: EndedRun, state: RunState | None = None, *, show: bool = False) -> None:
        """Resume a run that waits, failed or was cancelled; then `wait` for it.

        If the same end is resumed twice with different decisions, the first call counts, and no step is run
        twice.

        Args:
            ended: the end that `wait` returned, whenever that was.
            state: the state with the decisions, such as ``ended.state(agents=[...]).approve(...)``; None
                resumes the run from its last state.
            show: whether its events are recorded for `events`.

        Raises:
            ConfigError: the run is done, the state is that of another run, or the run has gone on since the
                state was taken.
        """
        last = segment_id(ended.run_id, ended.segment)
        if ended.status == "done":
            raise ConfigError(f"The run {ended.run_id!r:.80} is done; begin another one.")
        if state is not None and state.run_id != ended.run_id:
            raise ConfigError(
                f"This is a state of the run {state.run_id!r:.80}, not of {ended.run_id!r:.80}. Take it from "
                "the run that you resume."
            )
        segment = await self._segment(last)
        before = _job(segment)
        newest = ended.state_json or before["state"]
        if state is not None and newest is not None and is_behind(state.document, parse_document(newest)):
            raise ConfigError(
                f"The run {ended.run_id!r:.80} has gone on since this state was taken: take a newer one, "
                "(await client.wait(run_id)).state(...)."
            )
        now = newest if state is None else state.to_json()
        job: JobDocument = {**before, "state": now, "until": None, "show": show, "follows": 0}
        job.pop("closes", None)
        job["steps"] = _left(segment)
        await self._enqueue(job, next_id(last))

    async def cancel(self, run_id: str) -> None:
        """Cancel a run. A model call or an async tool is cancelled within a second or two.

        Completed steps are not lost: `wait` returns the state, after a worker has made it, and `resume`
        continues from it. A run that has ended or waits stays as it is.

        Raises:
            ConfigError: there is no such run.
        """
        while True:
            last = await self._last(run_id)
            if "closes" in _job(last) or (last.status in _ENDED and last.status != "CANCELLED"):
                return
            await self._client.cancel_workflow_async(last.workflow_id)
            last = await self._segment(last.workflow_id)
            if last.status == "CANCELLED":
                await self._close(last)

    async def _close(self, cancelled: Any) -> None:
        """Let a worker make a state of the recorded steps of a cancelled segment."""
        job = _job(cancelled)
        closing: JobDocument = {
            **job,
            "closes": cancelled.workflow_id,
            "until": None,
            "follows": job.get("follows", 0) + 1,
        }
        await self._enqueue(closing, next_id(cancelled.workflow_id))

    async def events(self, run_id: str, *, offset: int = 0) -> AsyncGenerator[StepPart]:
        """Yield the events of a run that was started with ``show``, until it ends or waits.

        A step whose worker died is yielded again, see ``StepPart.restarts``; late events of the dead worker
        are left out. Close the generator with `contextlib.aclosing`.

        Args:
            run_id: the id of the run. Events from before it was resumed are left out.
            offset: the offset of the first part; 0 yields all parts.
        """
        last = await self._last(run_id)
        segment: str | None = segment_id(run_id, segment_of(last.workflow_id) - _job(last).get("follows", 0))
        place, newest = 0, dict[str, int]()
        while segment is not None:
            async with aclosing(self._parts(segment)) as parts:
                async for part in parts:
                    step, attempt = part["step"], part["attempt"]
                    if attempt >= newest.get(step, 0):
                        newest[step] = attempt
                        if place >= offset:
                            yield _shown(part, place)
                    place += 1
            segment = await self._following(segment)

    def _parts(self, workflow_id: str) -> AsyncGenerator[Any]:
        return self._client.read_stream_async(workflow_id, EVENTS, polling_interval_sec=self._poll)

    async def _following(self, segment: str) -> str | None:
        """Return the id of the next segment, if the run continued in it without being resumed."""
        after = await self._find(next_id(segment))
        return after.workflow_id if after is not None and _job(after).get("follows") else None

    async def forget(self, run_id: str) -> None:
        """Remove all records of a run, with all of its segments."""
        every = [one.workflow_id for one in await self._segments(run_id)]
        await self._client.delete_workflows_async(every)

    @property
    def _client(self) -> DBOSClient:
        if self._dbos is None:
            raise ConfigError("Open the client first: `async with RunClient(database) as client`.")
        return self._dbos

    async def _enqueue(self, job: JobDocument, workflow_id: str) -> None:
        await self._client.enqueue_async(queued_as(job["agent"], workflow_id), job)

    async def _segments(self, run_id: str) -> list[Any]:
        check_run_id(run_id)
        first = await self._client.list_workflows_async(
            workflow_ids=[run_id], load_input=False, load_output=False
        )
        more = await self._client.list_workflows_async(
            workflow_id_prefix=f"{run_id}#", load_input=False, load_output=False
        )
        return sorted([*first, *more], key=lambda one: segment_of(one.workflow_id))

    async def _last(self, run_id: str) -> Any:
        every = await self._segments(run_id)
        if not every:
            raise ConfigError(f"There is no run {run_id!r:.80}: start it.")
        return await self._segment(every[-1].workflow_id)

    async def _find(self, workflow_id: str) -> Any:
        found = await self._client.list_workflows_async(workflow_ids=[workflow_id])
        return found[0] if found else None

    async def _segment(self, workflow_id: str) -> Any:
        if (found := await self._find(workflow_id)) is None:
            raise ConfigError(f"The run {workflow_id!r:.80} was removed with `forget`.")
        return found


_WHAT_BEGAN: Final = ("agent", "input", "state")
"""The keys of a job that are the same if the same run is started again."""


def _job(segment: Any) -> JobDocument:
    return cast("JobDocument", segment.input["args"][0])


def _left(segment: Any) -> dict[str, str]:
    """Return the recorded steps that a segment did not reach; without an end, those given to the segment."""
    end: EndDocument | None = segment.output
    return _job(segment).get("steps", {}) if end is None else end.get("steps", {})


def _shown(part: Any, offset: int) -> StepPart:
    return StepPart(
        offset=offset,
        step=part["step"],
        attempt=part["attempt"],
        restarts=part["first"] and part["attempt"] > 1,
        events=part["events"],
    )


def _ended(segment: Any, run_id: str) -> EndedRun:
    end: EndDocument | None = segment.output
    status = "failed" if end is None else cast("EndStatus", end["status"])
    error = str(segment.error) if segment.error else None
    return EndedRun(
        run_id=run_id,
        segment=segment_of(segment.workflow_id),
        agent=_job(segment)["agent"],
        status=status,
        state_json=None if end is None else end["state"],
        error=error if end is None else end["error"],
    )
