"""A worker that carries out durable runs until it is killed."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from pathlib import Path

import psycopg  # noqa: F401 - so that it is there when a worker is forked
from stress.crash_worker import Log, agents

from routelock.state.dbos.database import engine
from routelock.state.durable import WorkerSettings, serve_runs

engine()


def work(folder: str, database: str, at_once: int, pace: float, serves: str | None) -> None:
    """Work; what happens is noted in ``log.jsonl`` in the folder, and what is said in ``workers.log``.

    Args:
        folder: of the logs.
        database: its address.
        at_once: so many runs.
        pace: see `stress.crash_worker.agents`.
        serves: the one agent that is served, the other one being elsewhere; None: the first one, and both
            are here.
    """
    said = os.open(Path(folder) / "workers.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(said, 2)
    logging.basicConfig(format="%(created).3f %(message)s")
    log = Log(Path(folder) / "log.jsonl")
    by_name = {agent.name: agent for agent in agents(log, pace)}
    elsewhere = [name for name in by_name if serves not in (None, name)]
    me = f"{os.getpid()}-{uuid.uuid4().hex}"
    settings = WorkerSettings(at_once=at_once, executor_id=me, elsewhere=elsewhere)
    asyncio.run(serve_runs([by_name[serves or "triage"]], database, settings))
