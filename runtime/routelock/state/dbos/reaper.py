"""Finds out which workers are dead, and gives their runs to those that live.

DBOS knows who carries out a run, but not whether that process is alive. So each worker holds a lock in
PostgreSQL as long as it lives: the server lets go of it when the connection ends. Whose lock is free twice
in a row is dead. A worker that is frozen keeps its connection, and is silent: that one is ended from here.
Nothing rests on these verdicts but time: whoever is declared dead and is not finds its next step refused by
DBOS, because the run has another owner.

It has a thread of its own, so that a worker with much to do, or a tool that blocks the event loop, is late
neither with its own signs of life nor with looking for those of others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, LiteralString

from routelock.errors import ConfigError
from routelock.state.dbos.database import WORKFLOW, url_of

if TYPE_CHECKING:
    from dbos import DBOSClient
    from psycopg import Connection

__all__ = ["Reaper"]


_log = logging.getLogger("routelock.durable")

_STRIKES = 2

_NAME = "routelock.worker"

_LOCK = "hashtextextended('routelock.worker.' || %s, 0)"

_SOON_NOTICED: tuple[LiteralString, ...] = (
    "SET tcp_keepalives_idle = 2",  # a machine that vanishes says nothing: the server has to ask
    "SET tcp_keepalives_interval = 1",
    "SET tcp_keepalives_count = 2",
    "SET tcp_user_timeout = 4000",
    "SET lock_timeout = '15s'",  # the server may have to notice that a worker of the same name has gone
)

_END_THE_SILENT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
    f" AND application_name = '{_NAME}' AND pid <> pg_backend_pid() AND state = 'idle'"
    " AND state_change < clock_timestamp() - make_interval(secs => %s)"
)


class Reaper:
    """Holds one worker's lock and watches those of the others.

    Args:
        client: reads and resumes runs; it must raise when the database is away, and not wait.
        database: the address of the database.
        executor_id: this worker.
        going_on: the runs that this worker carries out at the moment, by the engine's names.
        every: seconds between two looks.
        lease: seconds of silence after which a worker that has its connection still is dead. A run that this
            worker has and nobody here knows of is given back after a third of that.
        grace: seconds in which nobody is judged after the connection was lost: the others lost theirs, too.
    """

    def __init__(
        self,
        client: DBOSClient,
        database: str,
        executor_id: str,
        going_on: Collection[str],
        *,
        every: float,
        lease: float,
        grace: float,
    ) -> None:
        self._client = client
        self._address = url_of(database)
        self._me = executor_id
        self._going_on = going_on
        self._every, self._lease, self._grace = every, lease, grace
        self._strikes: Counter[str] = Counter()
        self._unknown: dict[str, float] = {}
        self._judges_from = 0.0
        self._connection: Connection[Any] | None = None
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="routelock-reaper", daemon=True)

    def begin(self) -> None:
        """Take the lock; a worker must have it before it takes its first run.

        Raises:
            ConfigError: another worker that lives has the same id.
        """
        import psycopg  # noqa: PLC0415 - comes with the extra

        self._connection = psycopg.connect(
            self._address,
            autocommit=True,
            application_name=_NAME,
            connect_timeout=5,
            keepalives_idle=2,
            keepalives_interval=1,
            keepalives_count=3,
        )
        for setting in _SOON_NOTICED:
            self._connection.execute(setting)
        try:
            self._query(f"SELECT pg_advisory_lock({_LOCK})", self._me)
        except psycopg.errors.LockNotAvailable as error:
            raise ConfigError(
                f"A worker called {self._me!r:.80} lives already. Give each process an executor_id of its "
                "own, or leave it out."
            ) from error

    def watch(self) -> None:
        """Look again and again from now on, until `end`."""
        self._watching.start()

    def end(self) -> None:
        """Let go of the lock: the others take over what is left."""
        self._over.set()
        if self._watching.is_alive():
            self._watching.join()
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            try:
                self._query("SELECT 1")  # we live, and our lock is still ours
                if time.monotonic() >= self._judges_from:
                    self._look()
            except Exception as error:  # the database is away: it comes back, and this must go on
                _log.warning("routelock: the database is away (%s); trying again", error)
                self._begin_again()

    def _begin_again(self) -> None:
        self._strikes.clear()
        self._unknown.clear()
        while not self._over.is_set():
            try:
                self._close()
                self.begin()
                break
            except Exception as error:
                _log.warning("routelock: the database is still away (%s)", error)
                self._over.wait(self._every)
        self._judges_from = time.monotonic() + self._grace

    def _look(self) -> None:
        running = self._running()
        self._query(_END_THE_SILENT, self._lease)
        owners: set[str] = {run.executor_id for run in running if run.executor_id} - {self._me}
        for owner in set(self._strikes) - owners:
            del self._strikes[owner]
        for owner in sorted(owners):
            self._judge(owner)
        self._give_back([run for run in running if run.executor_id == self._me])

    def _judge(self, owner: str) -> None:
        if not self._query(f"SELECT pg_try_advisory_lock({_LOCK})", owner):
            del self._strikes[owner]
            return
        try:  # nobody else can judge it now
            self._strikes[owner] += 1
            if self._strikes[owner] >= _STRIKES:
                self._bury(owner)
        finally:
            self._query(f"SELECT pg_advisory_unlock({_LOCK})", owner)

    def _bury(self, owner: str) -> None:
        runs = self._running(owner)
        self._resume(runs)
        names = ", ".join(run.workflow_id for run in runs)
        _log.warning("routelock: worker %s is dead; its runs go on elsewhere: %s", owner, names)
        del self._strikes[owner]

    def _give_back(self, mine: list[Any]) -> None:
        """Put runs into their queues again that are ours, and that nobody here carries out.

        The engine claims a run, and then begins it: when the connection breaks in between, or it cannot write
        down how a run ended, the run is ours for ever, and as we live nobody else takes it.
        """
        lost = {run.workflow_id: run for run in mine if run.workflow_id not in self._going_on}
        now = time.monotonic()
        self._unknown = {name: self._unknown.get(name, now) for name in lost}
        late = [name for name, since in self._unknown.items() if now - since >= self._lease / 3]
        if late:
            self._resume([lost[name] for name in late])
            _log.warning("routelock: runs that nobody had begun are in the queue again: %s", ", ".join(late))

    def _resume(self, runs: list[Any]) -> None:
        by_queue: defaultdict[str, list[str]] = defaultdict(list)
        for run in runs:
            by_queue[run.queue_name or ""].append(run.workflow_id)
        for queue, names in by_queue.items():
            self._client.resume_workflows(names, queue_name=queue or None)

    def _running(self, owner: str | None = None) -> list[Any]:
        return list(
            self._client.list_workflows(
                status="PENDING", name=WORKFLOW, executor_id=owner, load_input=False, load_output=False
            )
        )

    def _query(self, sql: LiteralString, *given: str | float) -> Any:
        assert self._connection is not None
        cursor = self._connection.execute(sql, given)
        row = cursor.fetchone()
        return None if row is None else row[0]
