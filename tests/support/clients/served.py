"""A true server on a true socket, in a thread of its own, and programs that ask it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 60.0
"""Seconds after which a program, or what a test waits for, is given up."""
KEY = "key-of-the-clients"

_RUN = "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2]; runpy.run_path(sys.argv[0])"


def clients() -> Path:
    """Where scripts/clients has put the clients."""
    return Path(os.environ.get("ROUTELOCK_CLIENTS") or Path(sys.prefix) / "clients")


def python_client(name: str, program: str) -> list[str]:
    """The command that runs a program with one client and what that needs, and nothing of ours."""
    folder = client_folder(name)
    return [sys.executable, "-I", "-S", "-c", _RUN, str(folder), str(PROGRAMS / program)]


def node_client(program: str, name: str = "js") -> list[str]:
    """The command that runs a program with the JavaScript clients, or with those of another folder."""
    folder = client_folder(name)
    return [str(folder / "node"), str(PROGRAMS / program), str(folder / "node_modules")]


def client_folder(name: str) -> Path:
    """The folder of a client; the test is skipped if scripts/clients has not installed it."""
    folder = clients() / name
    if not (folder / ".done").exists():
        pytest.skip(f"the client {name} is not in {clients()}; run: scripts/clients {clients()}")
    return folder.resolve()


def play(command: Sequence[str], *arguments: str, home: Path) -> dict[str, Any]:
    """Run a program and return what it saw, by scene."""
    done = subprocess.run(
        [*command, *arguments],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    # by the byte that ends a line: str.splitlines would also cut at letters that are part of the text
    return dict(json.loads(line) for line in done.stdout.split("\n") if line)


@contextmanager
def served(app: Any) -> Iterator[str]:
    """Serve an ASGI app on this machine, and say at which URL."""
    uvicorn = pytest.importorskip("uvicorn")
    listener = socket.create_server(("127.0.0.1", 0))
    # connections inherit it; else each small piece would wait 40 ms for the client's acknowledgement
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()
    assert not thread.is_alive(), "the server does not come to an end"


def comes_true(holds: Callable[[], object]) -> bool:
    """Wait until something holds that another thread brings about; False when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
