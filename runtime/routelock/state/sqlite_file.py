"""An SQLite file with tables of routelock, used from worker threads, one transaction at a time."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from routelock.errors import ConfigError, RoutelockError

__all__ = ["SQLiteFile"]


T = TypeVar("T")


class SQLiteFile:
    """A file with tables of routelock, and perhaps other tables. It is opened at its first use.

    A transaction survives the end of the process and, because it waits for the disk, a power cut. Do not put
    the file on a network file system: https://www.sqlite.org/faq.html#q5.

    Args:
        path: the file. It is created if it does not exist.
        part: the name of this set of tables in the table ``routelock_schema``.
        schema: the version of the tables. A newer version in the file is refused.
        tables: the statements that create the tables, each ended by a semicolon.
        alone: whether other processes are kept out while this one has the file open.
        timeout: seconds that a writer waits for other writers.
        newer: the error that is raised if the tables are newer.

    Raises:
        ConfigError: the path is not that of a file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        part: str,
        schema: int,
        tables: str,
        alone: bool = False,
        timeout: float = 30.0,
        newer: type[RoutelockError] = ConfigError,
    ) -> None:
        if os.fspath(path) in ("", ":memory:"):
            raise ConfigError(
                f"The {part} needs a file, to outlive the process: give a path, not {os.fspath(path)!r}."
            )
        self.path: Path = Path(path).absolute()
        self._part, self._schema, self._tables = part, schema, tables
        self._alone, self._timeout, self._newer = alone, timeout, newer
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._process = 0

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run a function in one transaction, in a worker thread.

        A transaction that has begun is not cancelled.

        Raises:
            ConfigError: the file is for one process and another process uses it, or a newer version of
                routelock wrote its tables.
        """
        return await anyio.to_thread.run_sync(partial(self.do_now, work))

    def do_now(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Run a function in this thread, in a transaction if it writes; see `do`."""
        with self._lock:
            db = self._opened()
            if not writes:
                return work(db)
            with _transaction(db):
                return work(db)

    def close(self) -> None:
        """Close the file. It is opened again at its next use."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    def _opened(self) -> sqlite3.Connection:
        if self._db is None or self._process != os.getpid():  # a connection must not go through a fork
            self._db, self._process = self._connected(), os.getpid()
            weakref.finalize(self, self._db.close)
        return self._db

    def _connected(self) -> sqlite3.Connection:
        wait = 1.0 if self._alone else self._timeout
        db = self._connection(wait)
        try:
            if self._alone:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.execute("PRAGMA synchronous = FULL")
            with _transaction(db):
                self._make_tables(db)
        except BaseException as error:
            db.close()
            if self._alone and isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise ConfigError(
                    f"Another process uses {self.path.name}, and only one process may. Close it there, "
                    "or use another file."
                ) from error
            if isinstance(error, sqlite3.DatabaseError):
                raise type(error)(f"{self.path}: {error}") from error
            raise
        return db

    def _connection(self, wait: float) -> sqlite3.Connection:
        try:
            return sqlite3.connect(self.path, timeout=wait, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            folder = self.path.parent
            why = "it is a folder" if self.path.is_dir() else str(error)
            why = why if folder.is_dir() else f"make the folder {folder} first"
            raise sqlite3.OperationalError(f"{self.path} cannot be opened: {why}") from error

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.execute(
            "CREATE TABLE IF NOT EXISTS routelock_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)"
        )
        for statement in filter(str.strip, self._tables.split(";")):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO routelock_schema VALUES (?, ?)", (self._part, self._schema))
        (version,) = db.execute(
            "SELECT version FROM routelock_schema WHERE part = ?", (self._part,)
        ).fetchone()
        if version > self._schema:
            raise self._newer(
                f"{self.path.name} has a {self._part} schema {version}, and this version of routelock knows "
                f"{self._schema}. Update routelock."
            )


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
