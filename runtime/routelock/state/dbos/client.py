"""Starts runs for workers elsewhere, watches them, and has their results."""

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
from routelock.history.messages import Message, RunInput, to_messages
from routelock.run.executor import Call, Outcome
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.state.dbos.database import EVENTS, STEPS_VERSION, WORKFLOW, engine, queue_of, running_client
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
"""``done``: there is a final output. ``waiting``: for answers or approvals. ``failed``: an error or a limit
ended it. ``cancelled``: somebody did."""


class JobDocument(TypedDict):
    """A run, or a part of one, that a worker is to carry out."""

    agent: str
    run_id: str
    input: list[Message] | None
    state: str | None
    """A `RunState` as JSON, from which it goes on."""
    context: Any
    """What the worker's ``context`` function is given."""
    max_turns: int | None
    until: float | None
    """The time at which it has taken too long, in seconds since 1970."""
    show: bool
    """Whether its events are written down for others."""
    follows: NotRequired[int]
    """So many segments before this one are part of what `RunClient.events` shows."""
    closes: NotRequired[str]
    """A cancelled segment, by the engine's name: what is recorded of it is made a state, and no more."""
    steps: NotRequired[dict[str, str]]
    """Recorded steps of the segment before, by key, to which it did not come again before it ended."""


class EndDocument(TypedDict):
    """How it ended."""

    status: Literal["done", "waiting", "failed", "cancelled", "moved"]
    """``moved``: the run goes on in the next segment, with another worker."""
    state: str | None
    error: str | None
    steps: NotRequired[dict[str, str]]
    """Recorded steps to which the run did not come again, by key: the next segment is to find them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """How a run ended, or where it stands and waits."""

    run_id: str
    segment: int
    """A run that waited, was cancelled, or went to a worker elsewhere goes on in another segment: 1, 2, 3."""
    agent: str
    """Name of the agent in whose queue it was last."""
    status: EndStatus
    state_json: str | None = None
    """None if it could not begin."""
    error: str | None = None
    """What ended it, in words."""

    def state(self, *, agents: Sequence[Agent[Any]]) -> RunState:
        """Return where it stands: its items, what it waits for, its usage.

        Args:
            agents: see `RunState.from_json`.

        Raises:
            ConfigError: there is no state.
        """
        if self.state_json is None:
            raise ConfigError(
                f"The run {self.run_id!r:.80} has no state: it was {self.status}. {self.error or ''}".strip()
            )
        return RunState.from_json(self.state_json, agents=agents)


def check_run_id(run_id: str) -> None:
    """Make sure that segments can be told apart.

    Raises:
        ConfigError: they could not.
    """
    if not re.fullmatch(r"[^#\s][^#]{0,199}", run_id):
        raise ConfigError(f"A run_id has 1 to 200 characters and no '#', not {run_id!r:.80}.")


def segment_id(run_id: str, segment: int) -> str:
    """Return what the engine calls a segment of a run."""
    return run_id if segment == 1 else f"{run_id}#{segment}"


def segment_of(workflow_id: str) -> int:
    """Return which segment it is."""
    number = workflow_id.partition("#")[2]
    return int(number) if number else 1


def next_id(workflow_id: str) -> str:
    """Return what the engine calls the segment after this one."""
    return segment_id(workflow_id.partition("#")[0], segment_of(workflow_id) + 1)


_EVERY = 0.05
"""Each write is a transaction: one for each token would slow down the model."""


class StepStream:
    """Gathers the events of one step and writes them some milliseconds later, in order."""

    def __init__(self, key: str, attempt: int, *, open: bool) -> None:
        self._about = {"step": key, "attempt": attempt}
        self._open = open
        self._first = True
        self._waiting: list[dict[str, Any]] = []
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def show(self, event: HandlerEvent) -> None:
        """Let others see an event."""
        if isinstance(event, AttemptFailed):
            self._add({"attempt": event.attempt, "delay": event.delay, "error": str(event.error)}, event.type)
        else:
            self._add(asdict(event), event.type)

    def show_outcome(self, call: Call, outcome: Outcome) -> None:
        """Let others see how a tool call ended."""
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
                over = await asyncio.wait_for(self._over.wait(), _EVERY)
            await self._write()

    async def _write(self) -> None:
        if not self._waiting:
            return
        events, self._waiting = self._waiting, []
        part = {**self._about, "first": self._first, "events": events}
        self._first = False
        await engine().DBOS.write_stream_async(EVENTS, part)


_log = logging.getLogger("routelock.durable")

_DATABASE_IS_AWAY = 0.5
"""Seconds until it is asked again."""

_ENDED = ("SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPart:
    """Some events of one step of a run, in order."""

    offset: int
    """Of this part; whoever was cut off goes on from ``offset + 1``."""
    step: str
    """The key of the step, such as ``"t1.model.triage"``."""
    attempt: int
    """Which worker does it, of those that have begun with the run: 1 for the first."""
    restarts: bool
    """Whether the step begins anew, because its worker died: what was shown of it before is void."""
    events: Sequence[Mapping[str, Any]]
    """As JSON, with a ``type`` such as ``"text_delta"``; ``"message_done"`` has the complete reply,
    ``"tool_outcome"`` what a tool gave."""

    @property
    def text(self) -> str:
        """The text in it."""
        return "".join(event["text"] for event in self.events if event["type"] == "text_delta")


class RunClient:
    """For a web server, a script, a page of approvals: ``async with RunClient(database) as client``.

    It needs no agents, except to read states. It works on asyncio.

    Args:
        database: the address of the PostgreSQL that the workers use.
        poll: seconds between two looks for a result.
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
        """Put a run into the queue of its agent. If that is so already nothing happens.

        Args:
            agent: who answers first, or its name.
            input: see `Runner.run`.
            run_id: what the run is called, such as the id of an order.
            context: JSON, from which the workers make the context object.
            max_turns: see `Runner.run`.
            timeout: seconds that it may take from now on, all waiting in the queue included.
            show: whether its events are written down for `events`.

        Raises:
            ConfigError: the id cannot be one, is not that of the state, or belongs to a run that began with
                another agent or input.
        """
        check_run_id(run_id)
        state = input.to_json() if isinstance(input, RunState) else None
        if isinstance(input, RunState) and input.run_id != run_id:
            raise ConfigError(f"This is a state of the run {input.run_id!r:.80}, not of {run_id!r:.80}.")
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
        """Wait until the run has ended, or waits for somebody itself; return how.

        While the database is away it goes on waiting.

        Raises:
            ConfigError: there is no such run.
        """
        from sqlalchemy.exc import OperationalError  # noqa: PLC0415 - comes with the extra

        while True:
            try:
                if (ended := await self._look(run_id)) is not None:
                    return ended
            except OperationalError as error:
                _log.warning("routelock: the database is away (%s); trying again", error)
                await asyncio.sleep(_DATABASE_IS_AWAY)

    async def _look(self, run_id: str) -> EndedRun | None:
        """Wait until the last segment is over; return how the run ended, if it did."""
        last = await self._last(run_id)
        if last.status not in _ENDED:
            last = await self._over(last)
        if last.status == "CANCELLED":
            await self._close(last)
            return None
        moved = last.output is not None and last.output["status"] == "moved"
        return None if moved else _ended(last, run_id)

    async def _over(self, segment: Any) -> Any:
        """Wait until a segment is over, and return it."""
        handle: WorkflowHandleAsync[Any]
        handle = await self._client.retrieve_workflow_async(segment.workflow_id)
        try:
            await handle.get_result(polling_interval_sec=self._poll)
        except Exception:  # of a class of the engine's; what it means is in the status
            if (await handle.get_status()).status not in _ENDED:
                raise
        return await self._segment(segment.workflow_id)

    async def resume(self, ended: EndedRun, state: RunState | None = None, *, show: bool = False) -> None:
        """Let a run go on that waits, failed or was cancelled; then `wait` for it.

        Of two who say different things about one and the same ended run, whoever is first is heard, and
        nothing is done twice.

        Args:
            ended: as `wait` returned it, today or days ago.
            state: with what was decided, such as ``ended.state(agents=[...]).approve(...)``; None tries again
                from where the run stood.
            show: whether its events are written down for `events`.

        Raises:
            ConfigError: the run is done, this is a state of another one, or it has gone on since the state
                was taken.
        """
        last = segment_id(ended.run_id, ended.segment)
        if ended.status == "done":
            raise ConfigError(f"The run {ended.run_id!r:.80} is done; begin another one.")
        if state is not None and state.run_id != ended.run_id:
            raise ConfigError(
                f"This is a state of the run {state.run_id!r:.80}, not of {ended.run_id!r:.80}."
            )
        segment = await self._segment(last)
        before = _job(segment)
        newest = ended.state_json or before["state"]
        if state is not None and newest is not None and is_behind(state.document, parse_document(newest)):
            raise ConfigError(
                f"The run {ended.run_id!r:.80} has gone on since this state was taken: take ended.state(...)."
            )
        now = newest if state is None else state.to_json()
        job: JobDocument = {**before, "state": now, "until": None, "show": show, "follows": 0}
        job.pop("closes", None)
        job["steps"] = _left(segment)
        await self._enqueue(job, next_id(last))

    async def cancel(self, run_id: str) -> None:
        """End a run where it stands; a model call or an async tool within a second or two.

        What was done is not lost: `wait` gives the state, once a worker has put it together, and `resume`
        goes on with it. A run that has ended, or waits, stays as it is.

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
        """Have a state made of what is recorded of a segment that was cancelled."""
        job = _job(cancelled)
        closing: JobDocument = {
            **job,
            "closes": cancelled.workflow_id,
            "until": None,
            "follows": job.get("follows", 0) + 1,
        }
        await self._enqueue(closing, next_id(cancelled.workflow_id))

    async def events(self, run_id: str, *, offset: int = 0) -> AsyncGenerator[StepPart]:
        """Yield what happens in a run that was started with ``show``, until it ends or waits.

        A step whose worker died is shown again, see ``StepPart.restarts``; what the dead one still wrote
        is left out. Close it with `contextlib.aclosing`.

        Args:
            run_id: of the run. What happened before it was resumed is left out.
            offset: where to begin: 0 shows all that happened.
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
        """Return the segment in which a run has gone on by itself."""
        after = await self._find(next_id(segment))
        return after.workflow_id if after is not None and _job(after).get("follows") else None

    async def forget(self, run_id: str) -> None:
        """Remove all that is kept of a run, and of those it was before it waited."""
        every = [one.workflow_id for one in await self._segments(run_id)]
        await self._client.delete_workflows_async(every)

    @property
    def _client(self) -> DBOSClient:
        if self._dbos is None:
            raise ConfigError("Use it as `async with RunClient(database) as client`.")
        return self._dbos

    async def _enqueue(self, job: JobDocument, workflow_id: str) -> None:
        await self._client.enqueue_async(
            {
                "workflow_name": WORKFLOW,
                "queue_name": queue_of(job["agent"]),
                "workflow_id": workflow_id,
                "app_version": STEPS_VERSION,
            },
            job,
        )

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
            raise ConfigError(f"The run {workflow_id!r:.80} is forgotten.")
        return found


_WHAT_BEGAN: Final = ("agent", "input", "state")
"""What is the same when somebody starts the same run again."""


def _job(segment: Any) -> JobDocument:
    return cast("JobDocument", segment.input["args"][0])


def _left(segment: Any) -> dict[str, str]:
    """Return recorded steps to which a segment did not come, or if it did not end, those it was given."""
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
