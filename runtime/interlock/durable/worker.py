"""A process that carries out runs: as many as it may at once, those of dead workers included."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from interlock.agents import Agent
from interlock.config import RunConfig
from interlock.durable.connection import running_client
from interlock.durable.documents import EndDocument, JobDocument
from interlock.durable.library import STEPS_VERSION, WORKFLOW, engine, queue_of, url_of
from interlock.durable.reaper import Reaper
from interlock.durable.steps import DurableSteps, taken_over
from interlock.errors import ConfigError, InterlockError
from interlock.hooks import RunHooks
from interlock.messages import Message
from interlock.results import RunResult
from interlock.run_state import RunState
from interlock.runner import Runner

if TYPE_CHECKING:
    from dbos import DBOSClient

__all__ = ["WorkerSettings", "serve_runs", "serving_runs"]

_log = logging.getLogger("interlock.durable")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """How a worker works."""

    at_once: int = 8
    """So many runs of each agent are carried out by one worker at a time; the others wait in the queue."""
    name: str = "interlock"
    """Of the application, in the database: small letters, digits, - and _."""
    executor_id: str | None = None
    """What this process is called; no two that live may have one name. None makes one up."""
    poll: float = 0.1
    """Seconds between two looks for work."""
    watch: float = 0.5
    """Seconds between two looks for dead workers: their runs go on after two or three of these."""
    grace: float = 5.0
    """Seconds in which nobody is declared dead after the database was away."""
    drain: int = 0
    """Seconds that runs may go on when the worker is stopped; what is left then goes on elsewhere."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """For all runs; without ``run_id`` and ``executor``."""
    hooks: RunHooks | None = None
    context: Callable[[Any], Any] | None = None
    """Makes the context object of a run from the JSON that the client gave; None takes the JSON itself."""

    def __post_init__(self) -> None:
        if self.run_config.executor is not None or self.run_config.run_id is not None:
            raise ConfigError("A worker sets run_id and executor of the RunConfig itself: leave them out.")


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
    me = settings.executor_id or uuid.uuid4().hex
    dbos = engine().DBOS
    async with running_client(database) as client:
        reaper = Reaper(client, database, me, every=settings.watch, grace=settings.grace)
        await reaper.begin()
        try:
            _configure(me, database, settings)
            _register(_Worker(by_name, settings, client))
            dbos.launch()  # here and not in a thread: runs go on in the loop in which it is called
            for name in by_name:
                await dbos.register_queue_async(
                    queue_of(name), worker_concurrency=settings.at_once, polling_interval_sec=settings.poll
                )
            watching = asyncio.create_task(reaper.watch())
            try:
                yield
            finally:
                watching.cancel()
        finally:
            stop = partial(
                dbos.destroy, workflow_completion_timeout_sec=settings.drain, destroy_registry=True
            )
            await asyncio.to_thread(stop)
            # the engine has made its threads those of this loop, and they are gone now
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
            await reaper.end()


def _configure(me: str, database: str, settings: WorkerSettings) -> None:
    library = engine()
    config = {
        "name": settings.name,
        "system_database_url": url_of(database, "+psycopg"),
        "executor_id": me,
        "application_version": STEPS_VERSION,
        "serializer": library.DBOSPortableJSONSerializer(),
        "run_migrations": False,  # the client saw to it
        "log_level": "WARNING",
    }
    library.DBOS(config=config)


def _register(worker: _Worker) -> None:
    dbos = engine().DBOS

    async def carry_out(job: JobDocument) -> EndDocument:
        return await worker.carry_out(job, dbos.workflow_id)

    dbos.listen_queues([queue_of(name) for name in worker.agents])
    dbos.workflow(name=WORKFLOW, max_recovery_attempts=None)(carry_out)


@dataclass(frozen=True, slots=True)
class _Worker:
    """Carries out what the engine gives it."""

    agents: Mapping[str, Agent[Any]]
    settings: WorkerSettings
    client: DBOSClient

    async def carry_out(self, job: JobDocument, workflow_id: str) -> EndDocument:
        """Carry out a run, or go on with it."""
        recorded = await self.client.list_workflow_steps_async(workflow_id)
        steps = await taken_over(recorded, show=job["show"])
        try:
            return _end(await self._run(job, steps), None)
        except InterlockError as error:
            return _end(error.result, error)
        except Exception as error:
            _log.exception("interlock: the run %s cannot be carried out", job["run_id"])
            return _end(None, error)
        except BaseExceptionGroup as several:  # the engine's own, out of tools that ran at the same time
            raise _first(several) from several

    async def _run(self, job: JobDocument, steps: DurableSteps) -> RunResult[Any]:
        agent, given, settings = self.agents[job["agent"]], job["context"], self.settings
        config = replace(settings.run_config, executor=steps, run_id=job["run_id"])
        if job["until"] is not None:
            left = max(0.001, job["until"] - time.time())
            config = replace(config, timeout=min(left, config.timeout or left))
        beginning: list[Message] | RunState = job["input"] or []
        if job["state"] is not None:
            beginning = RunState.from_json(job["state"], agents=[agent, *config.agents])
        return await Runner.run(
            agent,
            beginning,
            context=given if settings.context is None else settings.context(given),
            max_turns=job["max_turns"],
            hooks=settings.hooks,
            run_config=config,
        )


def _end(result: RunResult[Any] | None, error: Exception | None) -> EndDocument:
    words = None if error is None else f"{type(error).__name__}: {error}"
    if result is None:  # it did not begin
        return {"status": "failed", "state": None, "error": words}
    ended: dict[str, Literal["done", "waiting"]] = {"done": "done", "requires_action": "waiting"}
    return {
        "status": ended.get(result.stop_reason, "failed"),
        "state": result.state().to_json(),
        "error": words,
    }


def _first(several: BaseExceptionGroup[BaseException]) -> BaseException:
    error: Any = several
    while inner := getattr(error, "exceptions", ()):
        error = inner[0]
    return cast("BaseException", error)
