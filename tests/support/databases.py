"""Servers of their own for tests that need a real database: started, used, and gone.

usage: with postgres() as conninfo, redis_server() as url
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

_LONGEST_START = 60


class Postgres:
    """A server that can be stopped and started again."""

    def __init__(self, folder: Path, **who: Any) -> None:
        self.conninfo = f"host={folder} user=test dbname=postgres"
        self._programs, self._folder, self._who = _postgres_programs(), folder, who
        self._running = ExitStack()
        self._server: subprocess.Popen[Any]

    def start(self) -> None:
        """Start it, and wait until it answers."""
        programs, folder = self._programs, self._folder
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(folder)]
        command = [str(programs / "postgres"), "-D", str(folder / "data"), *options]
        self._server = self._running.enter_context(_running(command, folder, **self._who))
        ready = [str(programs / "pg_isready"), "-h", str(folder), "-U", "test"]
        _wait(self._server, lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)

    def crash(self) -> None:
        """End it at once, whatever it is doing."""
        self._server.send_signal(signal.SIGQUIT)
        self.stop()

    def stop(self) -> None:
        """Stop the server, also with open connections."""
        self._running.close()


@contextmanager
def postgres() -> Generator[str]:
    """Start a PostgreSQL that only this machine's own user can reach; skip where there is none."""
    with postgres_server() as server:
        yield server.conninfo


@contextmanager
def postgres_server() -> Generator[Postgres]:
    """Start one that can be stopped on the way."""
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
        server = Postgres(folder, **who)
        try:
            server.start()
            yield server
        finally:
            server.stop()


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
            server.send_signal(2)  # to PostgreSQL: stop now, also with open connections
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
