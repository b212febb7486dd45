"""Finds out which workers are dead, and gives their runs to those that live.

DBOS knows who carries out a run, but not whether that process is alive. So each worker holds a lock in
PostgreSQL as long as it lives: the server lets go of it when the connection ends. Whose lock is free twice in
a row is dead. Nothing rests on that verdict but time: whoever is declared dead and is not finds its next step
refused by DBOS, because the run has another owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, LiteralString

from interlock.durable.library import WORKFLOW, url_of

if TYPE_CHECKING:
    from dbos import DBOSClient
    from psycopg import AsyncConnection

__all__ = ["Reaper"]

_log = logging.getLogger("interlock.durable")
_STRIKES = 2
_LOCK = "hashtextextended('interlock.worker.' || %s, 0)"


class Reaper:
    """Holds one worker's lock and watches those of the others.

    Args:
        client: reads and resumes runs.
        database: the address of the database.
        executor_id: this worker.
        every: seconds between two looks.
        grace: seconds in which nobody is judged after the connection was lost: the others lost theirs, too.
    """

    def __init__(
        self, client: DBOSClient, database: str, executor_id: str, *, every: float, grace: float
    ) -> None:
        self._client = client
        self._address = url_of(database)
        self._me = executor_id
        self._every, self._grace = every, grace
        self._strikes: Counter[str] = Counter()
        self._connection: AsyncConnection[Any] | None = None

    async def begin(self) -> None:
        """Take the lock; a worker must have it before it takes its first run."""
        import psycopg  # noqa: PLC0415 - comes with the extra

        self._connection = await psycopg.AsyncConnection.connect(
            self._address,
            autocommit=True,
            connect_timeout=5,
            keepalives_idle=5,
            keepalives_interval=2,
            keepalives_count=3,
        )
        await self._connection.execute(f"SELECT pg_advisory_lock({_LOCK})", [self._me])

    async def end(self) -> None:
        """Let go of the lock: the others take over what is left."""
        if self._connection is not None:
            await self._connection.close()

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._every)
            try:
                await self._look()
            except Exception as error:  # the database is away: it comes back, and this must go on
                _log.warning("interlock: the database is away (%s); trying again", error)
                await self._begin_again()

    async def _begin_again(self) -> None:
        self._strikes.clear()
        while True:
            try:
                await self.end()
                await self.begin()
                break
            except Exception as error:
                _log.warning("interlock: the database is still away (%s)", error)
                await asyncio.sleep(self._every)
        await asyncio.sleep(self._grace)

    async def _look(self) -> None:
        running = await self._running()
        owners: set[str] = {run.executor_id for run in running if run.executor_id} - {self._me}
        for owner in set(self._strikes) - owners:
            del self._strikes[owner]
        await self._query("SELECT 1")  # is our own lock still ours?
        for owner in sorted(owners):
            await self._judge(owner)

    async def _judge(self, owner: str) -> None:
        if not await self._query(f"SELECT pg_try_advisory_lock({_LOCK})", owner):
            del self._strikes[owner]
            return
        try:  # nobody else can judge it now
            self._strikes[owner] += 1
            if self._strikes[owner] >= _STRIKES:
                await self._bury(owner)
        finally:
            await self._query(f"SELECT pg_advisory_unlock({_LOCK})", owner)

    async def _bury(self, owner: str) -> None:
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for run in await self._running(owner):
            by_queue[run.queue_name or ""].append(run.workflow_id)
        for queue, runs in by_queue.items():
            await self._client.resume_workflows_async(runs, queue_name=queue or None)
            _log.warning("interlock: worker %s is dead; its runs go on elsewhere: %s", owner, ", ".join(runs))
        del self._strikes[owner]

    async def _running(self, owner: str | None = None) -> list[Any]:
        return list(
            await self._client.list_workflows_async(
                status="PENDING", name=WORKFLOW, executor_id=owner, load_input=False, load_output=False
            )
        )

    async def _query(self, sql: LiteralString, *given: str) -> Any:
        assert self._connection is not None
        cursor = await self._connection.execute(sql, given)
        row = await cursor.fetchone()
        return None if row is None else row[0]
