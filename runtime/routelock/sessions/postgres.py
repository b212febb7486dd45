"""Sessions in PostgreSQL, for many machines: ``pip install 'routelock[postgres]'``."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from routelock._lazy import needs_extra
from routelock.errors import SessionConflict, SessionError
from routelock.sessions.stores import Record, conflict, in_thread

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg_pool import ConnectionPool

__all__ = ["PostgresSessions"]


_SCHEMA = 1

_LOCK = 5127380116540721004
"""The advisory lock for creating the tables: concurrent ``CREATE TABLE IF NOT EXISTS`` may fail."""

_TABLES = """
    CREATE TABLE IF NOT EXISTS routelock_schema (part text PRIMARY KEY, version integer NOT NULL);
    CREATE TABLE IF NOT EXISTS routelock_sessions (
        session text NOT NULL, number bigint NOT NULL, text text NOT NULL, PRIMARY KEY (session, number)
    );
    INSERT INTO routelock_schema VALUES ('sessions', 1) ON CONFLICT DO NOTHING;
"""

_APPEND = """
    INSERT INTO routelock_sessions (session, number, text)
    SELECT %(session)s, %(after)s + 1, %(text)s
    WHERE %(after)s = COALESCE((SELECT MAX(number) FROM routelock_sessions WHERE session = %(session)s), 0)
"""

_DELETE = "DELETE FROM routelock_sessions WHERE session = %(session)s AND number <= %(after)s"

_LOAD = "SELECT number, text FROM routelock_sessions WHERE session = %s ORDER BY number DESC LIMIT %s"


class PostgresSessions:
    """A `SessionStore` in PostgreSQL, for any number of machines.

    It uses psycopg's blocking connections in threads. Their pool belongs to no event loop, so
    ``Runner.run_sync``, asyncio and trio may share it. It is opened on first use, and again after `close`.
    The two tables are created if they are missing; if the app has no right to do so, create them beforehand
    (`tables`).

    Args:
        conninfo: such as ``"postgresql://user:password@host/database"``.
        max_size: the highest number of connections.
        timeout: seconds that one operation may wait for a connection, and seconds that it may take.

    Raises:
        MissingExtra: psycopg is not installed.
    """

    def __init__(self, conninfo: str, *, max_size: int = 10, timeout: float = 10.0) -> None:
        with needs_extra(
            "PostgresSessions needs psycopg, which is not installed", "postgres", missing=ImportError
        ):
            import psycopg  # noqa: PLC0415 - an extra
            import psycopg_pool  # noqa: PLC0415 - an extra
        self._conflicts: tuple[type[Exception], ...] = (
            psycopg.errors.UniqueViolation,
            psycopg.errors.SerializationFailure,
        )
        options = f"-c statement_timeout={int(timeout * 1000)}"
        self._new_pool = partial(
            psycopg_pool.ConnectionPool,
            conninfo,
            kwargs={"connect_timeout": max(1, int(timeout)), "options": options},
            min_size=0,
            max_size=max_size,
            timeout=timeout,
            open=True,
            check=psycopg_pool.ConnectionPool.check_connection,
        )
        self._lock = threading.Lock()
        self._pool: ConnectionPool[Any] | None = None

    @staticmethod
    def tables() -> str:
        """Return the SQL that creates the tables."""
        return _TABLES

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return the records of a session; see `SessionStore.load`."""
        return await in_thread(partial(self._load, session, newest))

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        await in_thread(partial(self._append, session, after, text, alone))

    def _load(self, session: str, newest: int | None) -> list[Record]:
        with self._opened().connection() as db:
            found = db.execute(_LOAD, (session, newest)).fetchall()
        return cast("list[Record]", found[::-1])

    def _append(self, session: str, after: int, text: str, alone: bool) -> None:
        values = {"session": session, "after": after, "text": text}
        try:
            with self._opened().connection() as db:
                if db.execute(_APPEND, values).rowcount != 1:
                    raise conflict(session, after)
                if alone:
                    db.execute(_DELETE, values)
        except SessionConflict:
            raise
        except self._conflicts as error:
            raise conflict(session, after) from error

    def _opened(self) -> ConnectionPool[Any]:
        with self._lock:
            if self._pool is None:
                pool = self._new_pool()
                try:
                    with pool.connection() as db:
                        _prepare(db)
                except BaseException:
                    pool.close()
                    raise
                self._pool = pool
                weakref.finalize(self, pool.close)
            return self._pool


def _prepare(db: Connection[Any]) -> None:
    """Create the tables if they are missing; checking first needs no right to create tables."""
    row = db.execute("SELECT to_regclass('routelock_schema'), to_regclass('routelock_sessions')").fetchone()
    if row is None or None in row:
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        db.execute(_TABLES)
    found = db.execute("SELECT version FROM routelock_schema WHERE part = 'sessions'").fetchone()
    if found is None or found[0] > _SCHEMA:
        raise SessionError(
            f"The database has the schema {found and found[0]}, and this version of routelock knows "
            f"{_SCHEMA}. Update routelock."
        )
