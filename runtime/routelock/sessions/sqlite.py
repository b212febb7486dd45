"""Sessions in an SQLite file, with the sqlite3 module of Python."""

from __future__ import annotations

import os
import sqlite3
from functools import partial

from routelock.errors import ConfigError, SessionError
from routelock.sessions.stores import Record, conflict, in_thread
from routelock.state.sqlite_file import SQLiteFile

__all__ = ["SQLiteSessions"]


_TABLES = """
    CREATE TABLE IF NOT EXISTS routelock_sessions (
        session TEXT NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (session, number)
    );
"""


class SQLiteSessions:
    """A `SessionStore` in a file, shared by threads, event loops and processes of one machine.

    Stored turns survive the end of the process and, as each turn is synced to the disk, a power cut. The file
    may have other tables too; the tables of routelock begin with ``routelock_``. It is opened on first use,
    and again after `close`. Do not use network file systems: https://www.sqlite.org/faq.html#q5.

    Args:
        path: the file, created if it does not exist.
        timeout: seconds that a writer waits for other writers.

    Raises:
        ConfigError: the path names no file.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ConfigError("SQLiteSessions needs a file. Use InMemorySessions() to keep nothing.")
        self._file = SQLiteFile(
            path, part="sessions", schema=1, tables=_TABLES, timeout=timeout, newer=SessionError
        )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return the records of a session; see `SessionStore.load`."""
        work = partial(_load, session=session, newest=newest)
        return await in_thread(partial(self._file.do_now, work, writes=False))

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        work = partial(_append, session=session, after=after, text=text, alone=alone)
        await in_thread(partial(self._file.do_now, work))


def _load(db: sqlite3.Connection, *, session: str, newest: int | None) -> list[Record]:
    sql = "SELECT number, text FROM routelock_sessions WHERE session = ? ORDER BY number DESC LIMIT ?"
    return db.execute(sql, (session, -1 if newest is None else newest)).fetchall()[::-1]


def _append(db: sqlite3.Connection, *, session: str, after: int, text: str, alone: bool) -> None:
    sql = "SELECT COALESCE(MAX(number), 0) FROM routelock_sessions WHERE session = ?"
    if db.execute(sql, (session,)).fetchone() != (after,):
        raise conflict(session, after)
    if alone:
        db.execute("DELETE FROM routelock_sessions WHERE session = ?", (session,))
    db.execute("INSERT INTO routelock_sessions VALUES (?, ?, ?)", (session, after + 1, text))
