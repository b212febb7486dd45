"""The worker of durable runs: runs segments from its queues, those of dead workers included."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock.agents.agent import Agent
from routelock.agents.hooks import RunHooks
from routelock.errors import ConfigError, HandlerError, RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.config import RunConfig
from routelock.run.events import AgentUpdated
from routelock.run.executor import Executor
from routelock.run.loop import run_to_end
from routelock.run.result import RunResult
from routelock.run.start import start
from routelock.run.stream import RunStream
from routelock.state.dbos.client import EndDocument, JobDocument, next_id
from routelock.state.dbos.database import (
    STEPS_VERSION,
    WORKFLOW,
    engine,
    open_client,
    pool,
    queue_of,
    queued_as,
    running_client,
)
from routelock.state.dbos.reaper import Reaper
from routelock.state.dbos.steps import RecordedSteps, recorded_entries, taken_over
from routelock.state.document import parse_document
from routelock.state.run_state import RunState
from routelock.state.steps import StepLost

if TYPE_CHECKING:
    from dbos import DBOSClient
    from sqlalchemy import Engine

__all__ = ["RunExecutor", "WorkerSettings", "serve_runs", "serving_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker."""

    at_once: int = 8
    """The number of runs of each agent that one worker runs at the same time; others wait in the queue."""
    name: str = "routelock"
    """The name of the application in the database: small letters, digits, - and _."""
    executor_id: str | None = None
    """The id of this process. Two live workers cannot have the same id. None makes a random one."""
    poll: float = 0.1
    """Seconds between two checks for work."""
    watch: float = 0.3
    """Seconds between two checks for dead workers: their runs are resumed soon after two checks."""
    lease: float = 15.0
    """Seconds without a heartbeat after which a worker is declared dead although its process exists, as when
    it is frozen. A third of it is the longest time that a transaction may be idle, and that a claimed run may
    wait until it begins."""
    grace: float = 5.0
    """Seconds after an outage of the database in which no worker is declared dead."""
    drain: int = 0
    """Seconds that runs may take after the worker is stopped; other workers resume the remaining ones."""
    elsewhere: Collection[str] = ()
    """Names of agents that other workers serve. A run that is handed off to one of them is put into its
    queue, and one of those workers continues it. This worker needs only the name of such an agent."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """The settings of all runs; without ``run_id`` and ``executor``."""
    hooks: RunHooks | None = None
    context: Callable[[Any], Any] | None = None
    """Makes the context object of a run from the JSON of the client; None passes the JSON itself."""

    def __post_init__(self) -> None:
        if self.run_config.executor is not None or self.run_config.run_id is not None:
            raise ConfigError("A worker sets run_id and executor of the RunConfig itself: leave them out.")
        if not self.lease > 4 * self.watch > 0:
            raise ConfigError(
                f"WorkerSettings: lease must be more than four times watch, not {self.lease!r} with a watch "
                f"of {self.watch!r}: a worker sends a heartbeat every watch seconds."
            )


_log = logging.getLogger("routelock.durable")

_MOVED: EndDocument = {"status": "moved", "state": None, "error": None}


class RunExecutor:
    """Runs the segments of one worker.

    Args:
        agents: the agents that the worker serves, by name.
        settings: the settings of the worker.
        client: reads recorded steps.
    """

    def __init__(
        self, agents: Mapping[str, Agent[Any]], settings: WorkerSettings, client: DBOSClient
    ) -> None:
        self.agents = agents
        self.running: set[str] = set()
        """The workflow ids of the segments that are running."""
        self._settings = settings
        self._client = client

    async def carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        """Run a segment, or take it over, within its workflow."""
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - comes with the extra

        self.running.add(workflow_id)
        try:
            return await self._carry_out(job, workflow_id)
        except (BaseExceptionGroup, StepLost, SQLAlchemyError) as error:
            first = _first(error)  # errors of DBOS come in groups from tools that run at the same time
            if not isinstance(first, StepLost | SQLAlchemyError):
                raise first from error
            _log.warning("routelock: the run %s will be run again: %s", job["run_id"], first, exc_info=first)
            # the run still belongs to this worker, and the reaper will queue it again
            raise asyncio.CancelledError from error
        finally:
            self.running.discard(workflow_id)

    async def _carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        if (cancelled := job.get("closes")) is not None:
            return await self._closed(job, cancelled)
        recorded = await self._client.list_workflow_steps_async(workflow_id)
        if recorded and await self._status_of(next_id(workflow_id)) is not None:
            return _MOVED  # the last worker moved the run and died before it could record that
        steps = await taken_over(recorded, show=job["show"], before=job.get("steps"))
        result, error = await self._end_of(job, steps)
        if error is None and result is not None and result.stop_reason == "unfinished":
            return await self._move(job, result, workflow_id)
        return _end(result, error, steps.left)

    async def _closed(self, job: JobDocument, cancelled: str) -> EndDocument:
        """Make a state of the recorded steps of a cancelled run."""
        # a worker that was wrongly declared dead may still run it
        await self._client.cancel_workflow_async(cancelled)
        if (stood := await self._status_of(cancelled)) is not None and stood.output is not None:
            return cast("EndDocument", stood.output)  # the run ended before the cancellation
        recorded = await self._client.list_workflow_steps_async(cancelled)
        steps = RecordedSteps({**job.get("steps", {}), **recorded_entries(recorded)})
        result, error = await self._end_of({**job, "until": None}, steps)
        end = _end(result, error, steps.left)
        return end if end["status"] in ("done", "waiting") else {**end, "status": "cancelled"}

    async def _move(self, job: JobDocument, result: RunResult[Any], workflow_id: str) -> EndDocument:
        """Let a worker that serves the active agent continue the run.

        DBOS queues the next segment, if the run still belongs to this worker, and records that in one step.
        """
        agent = result.last_agent.name
        moved: JobDocument = {
            **job,
            "agent": agent,
            "input": None,
            "state": result.state().to_json(),
            "follows": job.get("follows", 0) + 1,
        }
        moved.pop("steps", None)
        where = queued_as(agent, next_id(workflow_id))
        await engine().DBOS.enqueue_workflow_with_options_async(where, moved)
        return _MOVED

    async def _end_of(
        self, job: JobDocument, steps: Executor
    ) -> tuple[RunResult[Any] | None, Exception | None]:
        """Run until the end, or until another worker has to continue; return the result and the error."""
        try:
            return await self._run(job, steps), None
        except RoutelockError as error:
            return error.result, error
        except Exception as error:
            _log.exception("routelock: the run %s failed outside of its agents", job["run_id"])
            return None, error

    async def _run(self, job: JobDocument, steps: Executor) -> RunResult[Any]:
        agent, given, settings = self.agents[job["agent"]], job["context"], self._settings
        config = self._config(agent, job, steps)
        beginning: list[Message] | RunState = job["input"] or []
        if job["state"] is not None:
            beginning = RunState.from_json(job["state"], agents=[agent, *config.agents])
        context = given if settings.context is None else settings.context(given)
        watched = job["show"] or bool(settings.elsewhere)
        run = start(agent, beginning, context, job["max_turns"], settings.hooks, config, stream=watched)
        if not watched:
            return await run_to_end(run)
        async with RunStream(run) as stream:
            async for event in stream:
                if isinstance(event, AgentUpdated) and event.agent in settings.elsewhere:
                    break  # between two turns: the other agent has made no call yet
        return stream.result

    def _config(self, agent: Agent[Any], job: JobDocument, steps: Executor) -> RunConfig:
        config = replace(self._settings.run_config, executor=steps, run_id=job["run_id"])
        if job["until"] is not None:
            left = max(0.001, job["until"] - time.time())
            config = replace(config, timeout=min(left, config.timeout or left))
        known = {name for one in (agent, *config.agents) for name in one.graph}
        stubs = [_stub(name, job["state"]) for name in self._settings.elsewhere if name not in known]
        return replace(config, agents=[*config.agents, *stubs])

    async def _status_of(self, workflow_id: str) -> Any:
        found = await self._client.list_workflows_async(workflow_ids=[workflow_id], load_input=False)
        return found[0] if found else None


class _UncallableModel:
    """The model of a stub for an agent that another worker serves: it cannot be called."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Refuse the call, because another worker serves the agent.

        Raises:
            HandlerError: always.
        """
        raise HandlerError(
            f"{self.name!r} is served by another worker: a run can be handed off to it, but it cannot be "
            "called as a tool. Give this worker the agent itself."
        )
        yield


def _stub(name: str, state: str | None) -> Agent[Any]:
    """Return a stub of an agent of another worker, with the handlers that the state names as waiting."""
    waiting = parse_document(state).waiting if state else ()
    frames = [frame for frame in waiting if frame.agent == name]
    waits = dict.fromkeys([each.default_handler for each in frames] + [each.handler for each in frames])
    first, *others = map(_UncallableModel, waits or [name])
    return Agent(name, model=first, handlers=others)


def _end(result: RunResult[Any] | None, error: Exception | None, left: Mapping[str, str]) -> EndDocument:
    words = None if error is None else f"{type(error).__name__}: {error}"
    ended: dict[str, Literal["done", "waiting"]] = {"done": "done", "requires_action": "waiting"}
    end: EndDocument = {"status": "failed", "state": None, "error": words}
    if result is not None:  # else the run did not begin
        end["status"] = ended.get(result.stop_reason, "failed")
        end["state"] = result.state().to_json()
    if left and end["status"] != "done":
        end["steps"] = {**left}
    return end


def _first(several: BaseException) -> BaseException:
    error: Any = several
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return cast("BaseException", error)


async def serve_runs(
    agents: Sequence[Agent[Any]], database: str, settings: WorkerSettings | None = None
) -> None:
    """Run a worker until cancelled, see `serving_runs`."""
    async with serving_runs(agents, database, settings):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving_runs(
    agents: Sequence[Agent[Any]], database: str, settings: WorkerSettings | None = None
) -> AsyncGenerator[None]:
    """Run a worker for these agents while the block runs.

    A process has one worker, on asyncio. Its runs use the event loop that began it.

    Args:
        agents: the agents that runs can begin with.
        database: the address of a PostgreSQL database, such as ``"postgresql://user@host/name"``. Tables are
            created in it, in the schema ``dbos``.
        settings: see `WorkerSettings`.

    Raises:
        MissingExtra: DBOS is not installed.
        ConfigError: two agents have the same name, or the database is not PostgreSQL.
    """
    settings = settings or WorkerSettings()
    by_name = {agent.name: agent for agent in agents}
    if not agents or len(by_name) != len(agents):
        raise ConfigError("A worker needs agents, each with a name of its own.")
    if both := sorted(by_name.keys() & set(settings.elsewhere)):
        raise ConfigError(
            f"A worker cannot serve agents that other workers serve, see elsewhere: {', '.join(both):.200}."
        )
    me = settings.executor_id or uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(running_client(database))
        connections = stack.enter_context(pool(database, longest_transaction=settings.lease / 3))
        impatient = await stack.enter_async_context(open_client(database, patient=False))
        executor = RunExecutor(by_name, settings, client)
        watch, lease, grace = settings.watch, settings.lease, settings.grace
        reaper = Reaper(impatient, database, me, executor.running, every=watch, lease=lease, grace=grace)
        try:
            await asyncio.to_thread(reaper.begin)
            for name in by_name:
                await client.register_queue_async(
                    queue_of(name),
                    worker_concurrency=settings.at_once,
                    polling_interval_sec=settings.poll,
                    application_name=settings.name,
                )
            _configure(me, connections, settings)
            _register(executor)
            engine().DBOS.launch()  # not in a thread: runs use the event loop in which this is called
            reaper.watch()
            yield
        finally:
            await _stop(settings.drain)
            await asyncio.to_thread(reaper.end)


async def _stop(drain: int) -> None:
    stop = partial(engine().DBOS.destroy, workflow_completion_timeout_sec=drain, destroy_registry=True)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor())  # DBOS had set its own threads as the default executor
    await asyncio.to_thread(stop)
    loop.set_default_executor(ThreadPoolExecutor())  # a run that was still going on may have set it again


def _configure(me: str, connections: Engine, settings: WorkerSettings) -> None:
    library = engine()
    config = {
        "name": settings.name,
        "system_database_engine": connections,
        "executor_id": me,
        "application_version": STEPS_VERSION,
        "serializer": library.DBOSPortableJSONSerializer(),
        "run_migrations": False,  # the client has migrated the tables
        "log_level": "WARNING",
    }
    library.DBOS(config=config)


def _register(executor: RunExecutor) -> None:
    dbos = engine().DBOS

    async def carry_out(job: JobDocument) -> EndDocument:
        return await executor.carry_out(job, dbos.workflow_id)

    dbos.listen_queues([queue_of(name) for name in executor.agents])
    dbos.workflow(name=WORKFLOW, max_recovery_attempts=None)(carry_out)
