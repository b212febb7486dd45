"""Servers of their own for tests that need a real database: started, used, and gone.

usage: with postgres() as conninfo, redis_server() as url
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_LONGEST_START = 60


@contextmanager
def postgres() -> Generator[str]:
    """Start a PostgreSQL that only this machine's own user can reach; skip where there is none."""
    programs = _postgres_programs()
    with _folder() as folder:
        who = _somebody(folder)
        data = folder / "data"
        command = [
            str(programs / "initdb"),
            "-D",
            str(data),
            "-U",
            "test",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **who)
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(folder)]
        with _running([str(programs / "postgres"), "-D", str(data), *options], folder, **who) as server:
            ready = [str(programs / "pg_isready"), "-h", str(folder), "-U", "test"]
            _wait(server, lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
            yield f"host={folder} user=test dbname=postgres"


@contextmanager
def redis_server() -> Generator[str]:
    """Start a Redis behind a socket file; skip where there is none."""
    if (program := shutil.which("redis-server")) is None:
        pytest.skip("there is no Redis: apt-get install redis-server (scripts/services does)")
    with _folder() as folder:
        socket = folder / "redis.sock"
        command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
        with _running(command, folder) as server:
            _wait(server, socket.exists)
            yield f"unix://{socket}"


def _postgres_programs() -> Path:
    """Where the server's programs are: Debian keeps them apart, by version."""
    known = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    for folder in (*known[::-1], *map(Path, os.environ.get("PATH", "").split(":"))):
        if all((folder / name).exists() for name in ("initdb", "pg_isready", "postgres")):
            return folder
    pytest.skip("there is no PostgreSQL: apt-get install postgresql (scripts/services does)")


def _somebody(folder: Path) -> dict[str, Any]:
    """Who runs the server: PostgreSQL refuses to be run by root."""
    if os.getuid():
        return {}
    names = {user.pw_name: user for user in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def _folder() -> Generator[Path]:
    """A folder with a short name: that of a socket may have about 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="il-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(command: list[str], folder: Path, **who: Any) -> Generator[subprocess.Popen[Any]]:
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder, **who
        )
        try:
            yield server
        finally:
            server.send_signal(2)  # to PostgreSQL: end now, whoever is still connected
            server.wait(timeout=_LONGEST_START)


def _wait(server: subprocess.Popen[Any], is_ready: Callable[[], bool]) -> None:
    until = time.monotonic() + _LONGEST_START
    while not is_ready():
        assert server.poll() is None, "the server ended at once"
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.05)


def address(conninfo: str) -> str:
    """Return as a URL where a server of `postgres` is."""
    given = dict(part.split("=", 1) for part in conninfo.split())
    return f"postgresql://{given['user']}@/{given['dbname']}?host={given['host']}"
