"""Sessions in an SQLite file, with what Python brings along."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from interlock.errors import ConfigError, SessionError
from interlock.sessions.entries import Record
from interlock.sessions.stores import conflict
from interlock.sessions.threads import in_thread

__all__ = ["SQLiteSessions"]

_SCHEMA = 1
_TABLES = """
    CREATE TABLE IF NOT EXISTS interlock_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS interlock_sessions (
        session TEXT NOT NULL, number INTEGER NOT NULL, text TEXT NOT NULL, PRIMARY KEY (session, number)
    );
"""


class SQLiteSessions:
    """A `SessionStore` in a file: many sessions, threads, event loops and processes of one machine.

    What was stored survives the process and, as each turn waits for the disk, a power cut. The file may hold
    other tables, too; ours begin with ``interlock_``. It is opened with the first use, and again after
    `close`. Not for network file systems: https://www.sqlite.org/faq.html#q5.

    Args:
        path: the file, made if it is not there.
        timeout: seconds that a writer waits for others.

    Raises:
        ConfigError: the path is none of a file.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 30.0) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ConfigError("SQLiteSessions needs a file. Use InMemorySessions() to keep nothing.")
        self._path = Path(path).absolute()
        self._timeout = timeout
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._process = 0

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return what is stored; see `SessionStore.load`."""
        return await in_thread(partial(self._load, session, newest))

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        await in_thread(partial(self._append, session, after, text, alone))

    def _load(self, session: str, newest: int | None) -> list[Record]:
        sql = "SELECT number, text FROM interlock_sessions WHERE session = ? ORDER BY number DESC LIMIT ?"
        with self._lock:
            found = self._opened().execute(sql, (session, -1 if newest is None else newest)).fetchall()
        return found[::-1]

    def _append(self, session: str, after: int, text: str, alone: bool) -> None:
        sql = "SELECT COALESCE(MAX(number), 0) FROM interlock_sessions WHERE session = ?"
        with self._lock, _transaction(self._opened()) as db:
            if db.execute(sql, (session,)).fetchone() != (after,):
                raise conflict(session, after)
            if alone:
                db.execute("DELETE FROM interlock_sessions WHERE session = ?", (session,))
            db.execute("INSERT INTO interlock_sessions VALUES (?, ?, ?)", (session, after + 1, text))

    def _opened(self) -> sqlite3.Connection:
        if self._db is None or self._process != os.getpid():  # a connection must not go through a fork
            self._db, self._process = _connected(self._path, self._timeout), os.getpid()
            weakref.finalize(self, self._db.close)
        return self._db


def _connected(path: Path, timeout: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        with closing(db.cursor()) as cursor:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
        with _transaction(db):
            _make_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in filter(str.strip, _TABLES.split(";")):
        db.execute(statement)
    db.execute("INSERT OR IGNORE INTO interlock_schema VALUES ('sessions', ?)", (_SCHEMA,))
    (version,) = db.execute("SELECT version FROM interlock_schema WHERE part = 'sessions'").fetchone()
    if version > _SCHEMA:
        raise SessionError(
            f"The file has the schema {version}, and this version of interlock knows {_SCHEMA}. "
            "Update interlock."
        )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
