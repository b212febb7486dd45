"""A process that carries out runs: as many as it may at once, those of dead workers included."""

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
from routelock.run.result import RunResult
from routelock.run.start import start
from routelock.run.stream import RunStream, finish
from routelock.state.dbos.client import EndDocument, JobDocument, next_id
from routelock.state.dbos.database import (
    STEPS_VERSION,
    WORKFLOW,
    RunLost,
    engine,
    open_client,
    pool,
    queue_of,
    running_client,
)
from routelock.state.dbos.reaper import Reaper
from routelock.state.dbos.steps import RecordedSteps, recorded_entries, taken_over
from routelock.state.document import parse_document
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from dbos import DBOSClient
    from sqlalchemy import Engine

__all__ = ["RunExecutor", "WorkerSettings", "serve_runs", "serving_runs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works."""

    at_once: int = 8
    """So many runs of each agent are carried out by one worker at a time; the others wait in the queue."""
    name: str = "routelock"
    """Of the application, in the database: small letters, digits, - and _."""
    executor_id: str | None = None
    """What this process is called; no two that live may have one name. None makes one up."""
    poll: float = 0.1
    """Seconds between two looks for work."""
    watch: float = 0.3
    """Seconds between two looks for dead workers: their runs go on after two of these and some moments."""
    lease: float = 15.0
    """Seconds without a sign of life after which a worker is taken for dead whose process is there still,
    and frozen. A third of it is how long a transaction may stand still, and how long a run may be claimed by
    this worker without being carried out."""
    grace: float = 5.0
    """Seconds in which nobody is declared dead after the database was away."""
    drain: int = 0
    """Seconds that runs may go on when the worker is stopped; what is left then goes on elsewhere."""
    elsewhere: Collection[str] = ()
    """Names of agents that other workers serve: a run that is handed over to one of them goes into its queue,
    and on with one of those workers. Of such an agent this worker needs the name alone."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """For all runs; without ``run_id`` and ``executor``."""
    hooks: RunHooks | None = None
    context: Callable[[Any], Any] | None = None
    """Makes the context object of a run from the JSON that the client gave; None takes the JSON itself."""

    def __post_init__(self) -> None:
        if self.run_config.executor is not None or self.run_config.run_id is not None:
            raise ConfigError("A worker sets run_id and executor of the RunConfig itself: leave them out.")
        if not self.lease > 4 * self.watch > 0:
            raise ConfigError(
                f"WorkerSettings: lease must be more than four times watch, not {self.lease!r} with a watch "
                f"of {self.watch!r}: a worker gives a sign of life every watch seconds."
            )


_log = logging.getLogger("routelock.durable")

_MOVED: EndDocument = {"status": "moved", "state": None, "error": None}


class RunExecutor:
    """Carries out jobs for one worker.

    Args:
        agents: those that the worker serves, by name.
        settings: of the worker.
        client: reads what is recorded.
    """

    def __init__(
        self, agents: Mapping[str, Agent[Any]], settings: WorkerSettings, client: DBOSClient
    ) -> None:
        self.agents = agents
        self.going_on: set[str] = set()
        """What is carried out at the moment, by the engine's names."""
        self._settings = settings
        self._client = client

    async def carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        """Carry out a job, or go on with it, within its workflow."""
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - comes with the extra

        self.going_on.add(workflow_id)
        try:
            return await self._carry_out(job, workflow_id)
        except (BaseExceptionGroup, RunLost, SQLAlchemyError) as error:
            first = _first(error)  # the engine's own come in groups, out of tools that ran at the same time
            if not isinstance(first, RunLost | SQLAlchemyError):
                raise first from error
            _log.warning("routelock: the run %s begins anew: %s", job["run_id"], first, exc_info=first)
            raise asyncio.CancelledError from error  # it is still ours, and the reaper finds it lying about
        finally:
            self.going_on.discard(workflow_id)

    async def _carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        if (cancelled := job.get("closes")) is not None:
            return await self._closed(job, cancelled)
        recorded = await self._client.list_workflow_steps_async(workflow_id)
        if recorded and await self._status_of(next_id(workflow_id)) is not None:
            return _MOVED  # whoever had it before was about to say so
        steps = await taken_over(recorded, show=job["show"], before=job.get("steps"))
        result, error = await self._end_of(job, steps)
        if error is None and result is not None and result.stop_reason == "unfinished":
            return await self._move(job, result, workflow_id)
        return _end(result, error, steps.left)

    async def _closed(self, job: JobDocument, cancelled: str) -> EndDocument:
        """Make a state of what is recorded of a run that was cancelled."""
        await self._client.cancel_workflow_async(cancelled)  # it may have been declared lost, and be back
        if (stood := await self._status_of(cancelled)) is not None and stood.output is not None:
            return cast("EndDocument", stood.output)  # it was done before
        recorded = await self._client.list_workflow_steps_async(cancelled)
        steps = RecordedSteps({**job.get("steps", {}), **recorded_entries(recorded)})
        result, error = await self._end_of({**job, "until": None}, steps)
        end = _end(result, error, steps.left)
        return end if end["status"] in ("done", "waiting") else {**end, "status": "cancelled"}

    async def _move(self, job: JobDocument, result: RunResult[Any], workflow_id: str) -> EndDocument:
        """Let the run go on with a worker that serves the agent whose turn it is.

        The engine puts it into the queue if the run is still ours, and notes here that it did, at once.
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
        where = {
            "workflow_name": WORKFLOW,
            "queue_name": queue_of(agent),
            "workflow_id": next_id(workflow_id),
            "app_version": STEPS_VERSION,
        }
        await engine().DBOS.enqueue_workflow_with_options_async(where, moved)
        return _MOVED

    async def _end_of(
        self, job: JobDocument, steps: Executor
    ) -> tuple[RunResult[Any] | None, Exception | None]:
        """Carry out a run as far as it goes here; return its result, and what ended it."""
        try:
            return await self._run(job, steps), None
        except RoutelockError as error:
            return error.result, error
        except Exception as error:
            _log.exception("routelock: the run %s cannot be carried out", job["run_id"])
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
            return await finish(run)
        async with RunStream(run) as stream:
            async for event in stream:
                if isinstance(event, AgentUpdated) and event.agent in settings.elsewhere:
                    break  # between two turns, and nothing of the other agent's was asked yet
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


class _Elsewhere:
    """Stands for the model of an agent that another worker serves."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Raise.

        Raises:
            HandlerError: always.
        """
        raise HandlerError(
            f"{self.name!r} is served by another worker, and can take over a run, but not answer in "
            "one as a tool. Give this worker the agent itself."
        )
        yield


def _stub(name: str, state: str | None) -> Agent[Any]:
    """Return what stands for an agent elsewhere, with the handlers at which it waits for an answer."""
    waiting = parse_document(state).waiting if state else ()
    frames = [frame for frame in waiting if frame.agent == name]
    waits = dict.fromkeys([each.default_handler for each in frames] + [each.handler for each in frames])
    first, *others = map(_Elsewhere, waits or [name])
    return Agent(name, model=first, handlers=others)


def _end(result: RunResult[Any] | None, error: Exception | None, left: Mapping[str, str]) -> EndDocument:
    words = None if error is None else f"{type(error).__name__}: {error}"
    ended: dict[str, Literal["done", "waiting"]] = {"done": "done", "requires_action": "waiting"}
    end: EndDocument = {"status": "failed", "state": None, "error": words}
    if result is not None:  # else it did not begin
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
    """Carry out runs until cancelled. See `serving_runs`."""
    async with serving_runs(agents, database, settings):
        await asyncio.Event().wait()


@asynccontextmanager
async def serving_runs(
    agents: Sequence[Agent[Any]], database: str, settings: WorkerSettings | None = None
) -> AsyncGenerator[None]:
    """Carry out runs that begin with these agents, as long as the block goes on.

    There is one worker in a process, on asyncio. Its runs go on in the event loop that begins it.

    Args:
        agents: those that runs begin with.
        database: the address of a PostgreSQL, such as ``"postgresql://user@host/name"``. Tables are made in
            it, in a schema of their own, ``dbos``.
        settings: see `WorkerSettings`.

    Raises:
        MissingExtra: DBOS is not installed.
        ConfigError: the agents have one name twice, or the database is none.
    """
    settings = settings or WorkerSettings()
    by_name = {agent.name: agent for agent in agents}
    if not agents or len(by_name) != len(agents):
        raise ConfigError("A worker needs agents, each with a name of its own.")
    if both := sorted(by_name.keys() & set(settings.elsewhere)):
        raise ConfigError(f"A worker cannot serve agents that are elsewhere: {', '.join(both):.200}.")
    me = settings.executor_id or uuid.uuid4().hex
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(running_client(database))
        connections = stack.enter_context(pool(database, longest_transaction=settings.lease / 3))
        impatient = await stack.enter_async_context(open_client(database, patient=False))
        executor = RunExecutor(by_name, settings, client)
        watch, lease, grace = settings.watch, settings.lease, settings.grace
        reaper = Reaper(impatient, database, me, executor.going_on, every=watch, lease=lease, grace=grace)
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
            engine().DBOS.launch()  # here and not in a thread: runs go on in the loop in which it is called
            reaper.watch()
            yield
        finally:
            await _stop(settings.drain)
            await asyncio.to_thread(reaper.end)


async def _stop(drain: int) -> None:
    stop = partial(engine().DBOS.destroy, workflow_completion_timeout_sec=drain, destroy_registry=True)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor())  # the engine has made its threads those of this loop
    await asyncio.to_thread(stop)
    loop.set_default_executor(ThreadPoolExecutor())  # what was still going on may have done so again


def _configure(me: str, connections: Engine, settings: WorkerSettings) -> None:
    library = engine()
    config = {
        "name": settings.name,
        "system_database_engine": connections,
        "executor_id": me,
        "application_version": STEPS_VERSION,
        "serializer": library.DBOSPortableJSONSerializer(),
        "run_migrations": False,  # the client saw to it
        "log_level": "WARNING",
    }
    library.DBOS(config=config)


def _register(executor: RunExecutor) -> None:
    dbos = engine().DBOS

    async def carry_out(job: JobDocument) -> EndDocument:
        return await executor.carry_out(job, dbos.workflow_id)

    dbos.listen_queues([queue_of(name) for name in executor.agents])
    dbos.workflow(name=WORKFLOW, max_recovery_attempts=None)(carry_out)
