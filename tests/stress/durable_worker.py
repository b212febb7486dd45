"""A worker that carries out durable runs until it is killed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psycopg  # noqa: F401 - so that it is there when a worker is forked
from stress.crash_worker import Log, agents

from interlock.durable import WorkerSettings, serve_runs
from interlock.durable.library import engine

engine()


def work(folder: str, database: str) -> None:
    """Work; what happens is noted in ``log.jsonl`` in the folder, and what is said in ``workers.log``."""
    said = os.open(Path(folder) / "workers.log", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.dup2(said, 1)
    os.dup2(said, 2)
    log = Log(Path(folder) / "log.jsonl")
    asyncio.run(serve_runs([agents(log)], database, WorkerSettings(at_once=8)))
