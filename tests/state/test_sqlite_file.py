"""An SQLite file: whole transactions, one process if required, and no newer tables."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE

from routelock.errors import ConfigError, SessionError
from routelock.state.sqlite_file import SQLiteFile

pytestmark = pytest.mark.anyio

TABLES = "CREATE TABLE IF NOT EXISTS notes (text TEXT);"


def opened(path: Path | str, **options: Any) -> SQLiteFile:
    settings = {"part": "notes", "schema": 1, "tables": TABLES, "newer": SessionError, **options}
    return SQLiteFile(path, **settings)


def put(text: str) -> Any:
    return lambda db: db.execute("INSERT INTO notes VALUES (?)", (text,))


def notes(db: sqlite3.Connection) -> list[str]:
    return [text for (text,) in db.execute("SELECT text FROM notes")]


async def test_data_is_there_after_the_file_was_closed(tmp_path: Path) -> None:
    file = opened(tmp_path / "a.db")
    await file.do(put("a"))
    file.close()
    file.close()
    assert await file.do(notes) == ["a"]
    file.close()


async def test_work_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(db: sqlite3.Connection) -> None:
        put("half")(db)
        raise ValueError("no")

    file = opened(tmp_path / "a.db")
    with pytest.raises(ValueError, match="no"):
        await file.do(fail)
    assert await file.do(notes) == []
    file.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_file_has_a_path(path: str) -> None:
    with pytest.raises(ConfigError):
        opened(path)


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    opened(tmp_path / "a.db", schema=2).do_now(notes)
    with pytest.raises(SessionError, match=r"schema 2.*knows 1\. Update routelock"):
        opened(tmp_path / "a.db").do_now(notes)


def test_two_parts_share_a_file(tmp_path: Path) -> None:
    opened(tmp_path / "a.db").do_now(put("a"))
    opened(tmp_path / "a.db", part="more", schema=7).do_now(put("b"))
    assert opened(tmp_path / "a.db").do_now(notes, writes=False) == ["a", "b"]


def test_a_file_for_one_process_cannot_be_opened_by_another(tmp_path: Path) -> None:
    file = opened(tmp_path / "a.db", alone=True)
    file.do_now(put("a"))
    code = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('SELECT * FROM notes')"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.db")], capture_output=True, text=True, timeout=PATIENCE
    )
    assert "database is locked" in done.stderr
    file.close()
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert notes(db) == ["a"]


def test_a_file_in_use_by_another_process_is_an_error(tmp_path: Path) -> None:
    file = opened(tmp_path / "a.db")
    file.do_now(put("a"))
    with closing(sqlite3.connect(tmp_path / "a.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ConfigError, match=r"Another process uses a\.db"):
            opened(tmp_path / "a.db", alone=True).do_now(notes)
    file.close()
