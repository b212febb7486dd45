"""Sessions in an SQLite file: valid files, and processes that share one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

from routelock.errors import ConfigError, SessionError
from routelock.sessions import (
    Session,
    SQLiteSessions,
)

pytestmark = pytest.mark.anyio


def test_sqlite_needs_a_file() -> None:
    with pytest.raises(ConfigError, match="InMemorySessions"):
        SQLiteSessions(":memory:")


async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "new.db")) as db, db:
        db.execute("CREATE TABLE routelock_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL)")
        db.execute("INSERT INTO routelock_schema VALUES ('sessions', 7)")
    with pytest.raises(SessionError, match=r"schema 7.*Update routelock"):
        await Session("u", SQLiteSessions(tmp_path / "new.db")).load()


async def test_file_that_is_no_database_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(SessionError, match=r"Session 'u' could not be loaded: DatabaseError: .*no\.db: "):
        await Session("u", SQLiteSessions(tmp_path / "no.db")).load()


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"chats\.db cannot be opened: make the folder .*nowhere first"):
        await Session("u", SQLiteSessions(tmp_path / "nowhere" / "chats.db")).load()


_FORK = """
import os, sys
import anyio
from routelock.sessions import SQLiteSessions

store = SQLiteSessions(sys.argv[1])
anyio.run(store.append, "u", 0, "parent")
if not (child := os.fork()):
    anyio.run(store.append, "u", 1, "child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
anyio.run(store.append, "u", 2, "parent")
print(*anyio.run(store.load, "u"))
"""


def test_a_store_may_be_made_before_a_fork(tmp_path: Path) -> None:
    """The child opens the file anew: a connection must not be used by two processes."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _FORK, str(tmp_path / "chats.db")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split("\n")[0] == "(1, 'parent') (2, 'child') (3, 'parent')", done.stderr
