"""A process that carries out runs: as many as it may at once, those of dead workers included."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from routelock.agents.agent import Agent
from routelock.durable.carrier import Carrier
from routelock.durable.connection import open_client, pool, running_client
from routelock.durable.documents import EndDocument, JobDocument
from routelock.durable.library import STEPS_VERSION, WORKFLOW, engine, queue_of
from routelock.durable.reaper import Reaper
from routelock.durable.settings import WorkerSettings
from routelock.errors import ConfigError

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["serve_runs", "serving_runs"]


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
        carrier = Carrier(by_name, settings, client)
        watch, lease, grace = settings.watch, settings.lease, settings.grace
        reaper = Reaper(impatient, database, me, carrier.going_on, every=watch, lease=lease, grace=grace)
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
            _register(carrier)
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


def _register(carrier: Carrier) -> None:
    dbos = engine().DBOS

    async def carry_out(job: JobDocument) -> EndDocument:
        return await carrier.carry_out(job, dbos.workflow_id)

    dbos.listen_queues([queue_of(name) for name in carrier.agents])
    dbos.workflow(name=WORKFLOW, max_recovery_attempts=None)(carry_out)
