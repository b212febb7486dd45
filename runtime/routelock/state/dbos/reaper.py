"""Detects dead workers, and returns their runs to the queues of live ones.

DBOS knows the worker of a run, but not whether that process is alive. So each worker holds an advisory lock
in PostgreSQL, which the server releases when the connection ends. A worker is dead if its lock is free in two
checks in a row. A frozen worker keeps its connection and sends nothing, so the reaper terminates the
connection. A wrong verdict costs only time: DBOS refuses the next step of a worker that was declared dead,
because the run has another owner.

The reaper has a thread of its own. A busy worker, or a tool that blocks the event loop, delays neither the
worker's heartbeat nor its checks of other workers.
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

_MISSES = 2

_NAME = "routelock.worker"

_LOCK = "hashtextextended('routelock.worker.' || %s, 0)"

_CONNECTION_SETTINGS: tuple[LiteralString, ...] = (
    "SET tcp_keepalives_idle = 2",  # a machine that vanishes closes no connection: the server has to probe
    "SET tcp_keepalives_interval = 1",
    "SET tcp_keepalives_count = 2",
    "SET tcp_user_timeout = 4000",
    "SET lock_timeout = '15s'",  # the server may not have noticed yet that a worker of the same name is gone
)

_TERMINATE_SILENT = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
    f" AND application_name = '{_NAME}' AND pid <> pg_backend_pid() AND state = 'idle'"
    " AND state_change < clock_timestamp() - make_interval(secs => %s)"
)


class Reaper:
    """Holds the lock of one worker and checks the locks of the others.

    Args:
        client: reads and resumes runs. It must raise while the database is unavailable, and not wait.
        database: the address of the database.
        executor_id: the id of this worker.
        running: the ids of the workflows that this worker runs at the moment.
        every: seconds between two checks.
        lease: seconds without a heartbeat after which a worker counts as dead even if its connection is open.
            A run that belongs to this worker and is not running here is queued again after a third of that.
        grace: seconds after a lost connection in which no worker is declared dead: the others may have lost
            theirs at the same time.
    """

    def __init__(
        self,
        client: DBOSClient,
        database: str,
        executor_id: str,
        running: Collection[str],
        *,
        every: float,
        lease: float,
        grace: float,
    ) -> None:
        self._client = client
        self._address = url_of(database)
        self._me = executor_id
        self._running_here = running
        self._every, self._lease, self._grace = every, lease, grace
        self._misses: Counter[str] = Counter()
        self._unknown: dict[str, float] = {}
        self._verdicts_from = 0.0
        self._connection: Connection[Any] | None = None
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="routelock-reaper", daemon=True)

    def begin(self) -> None:
        """Take the lock. A worker must hold it before it takes its first run; one that has ended takes none.

        Raises:
            ConfigError: another live worker has the same id.
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
        if self._over.is_set():  # the start was cancelled, and this is the thread that it left
            self._close()
            return
        for setting in _CONNECTION_SETTINGS:
            self._connection.execute(setting)
        try:
            self._query(f"SELECT pg_advisory_lock({_LOCK})", self._me)
        except psycopg.errors.LockNotAvailable as error:
            raise ConfigError(
                f"Another live worker has the id {self._me!r:.80}. Give each process an executor_id of its "
                "own, or leave it out."
            ) from error

    def watch(self) -> None:
        """Check at intervals from now on, until `end`."""
        self._watching.start()

    def end(self) -> None:
        """Release the lock: other workers take over the remaining runs."""
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
                # the heartbeat, which fails if the connection is lost, and the lock with it
                self._query("SELECT 1")
                if time.monotonic() >= self._verdicts_from:
                    self._check_all()
            except Exception as error:  # the database is unavailable: the checks go on when it is back
                _log.warning("routelock: the database is unavailable (%s); trying again", error)
                self._reconnect()

    def _reconnect(self) -> None:
        self._misses.clear()
        self._unknown.clear()
        while not self._over.is_set():
            try:
                self._close()
                self.begin()
                break
            except Exception as error:
                _log.warning("routelock: the database is still unavailable (%s)", error)
                self._over.wait(self._every)
        self._verdicts_from = time.monotonic() + self._grace

    def _check_all(self) -> None:
        running = self._running()
        self._query(_TERMINATE_SILENT, self._lease)
        owners: set[str] = {run.executor_id for run in running if run.executor_id} - {self._me}
        for owner in set(self._misses) - owners:
            del self._misses[owner]
        for owner in sorted(owners):
            self._check(owner)
        self._queue_again([run for run in running if run.executor_id == self._me])

    def _check(self, owner: str) -> None:
        if not self._query(f"SELECT pg_try_advisory_lock({_LOCK})", owner):
            del self._misses[owner]
            return
        try:  # no other reaper can check it now
            self._misses[owner] += 1
            if self._misses[owner] >= _MISSES:
                self._declare_dead(owner)
        finally:
            self._query(f"SELECT pg_advisory_unlock({_LOCK})", owner)

    def _declare_dead(self, owner: str) -> None:
        runs = self._running(owner)
        self._resume(runs)
        names = ", ".join(run.workflow_id for run in runs)
        _log.warning("routelock: worker %s is dead; its runs are queued again: %s", owner, names)
        del self._misses[owner]

    def _queue_again(self, mine: list[Any]) -> None:
        """Queue the runs again that belong to this worker and are not running here.

        DBOS claims a run, and then begins it. If the connection breaks in between, or the end of a run cannot
        be recorded, the run would belong to this live worker for ever.
        """
        lost = {run.workflow_id: run for run in mine if run.workflow_id not in self._running_here}
        now = time.monotonic()
        self._unknown = {name: self._unknown.get(name, now) for name in lost}
        late = [name for name, since in self._unknown.items() if now - since >= self._lease / 3]
        if late:
            self._resume([lost[name] for name in late])
            _log.warning(
                "routelock: runs that were claimed and not begun are queued again: %s", ", ".join(late)
            )

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
