"""A Restate server of its own for tests: one program, started, used, and gone.

usage: with restate_server() as (ingress, admin)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from servers import free_port

_LONGEST_START = 60


@contextmanager
def restate_server(settings: Mapping[str, str] | None = None) -> Generator[tuple[str, str]]:
    """Start a server; yield the addresses for calls and for its administration. Skip where there is none.

    Args:
        settings: environment variables of the server.
    """
    if (program := _program()) is None:
        pytest.skip("there is no Restate: npm install -g @restatedev/restate-server (scripts/services does)")
    with tempfile.TemporaryDirectory(prefix="il-") as folder:
        ports = [free_port() for _ in range(3)]
        ingress, admin, node = (f"127.0.0.1:{port}" for port in ports)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "RESTATE_BASE_DIR": f"{folder}/data",
            "RESTATE_INGRESS__BIND_ADDRESS": ingress,
            "RESTATE_ADMIN__BIND_ADDRESS": admin,
            "RESTATE_BIND_ADDRESS": node,
            "RESTATE_ADVERTISED_ADDRESS": f"http://{node}",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
            "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
            "DO_NOT_TRACK": "1",
            **(settings or {}),
        }
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen([program], stdout=log, stderr=log, cwd=folder, env=environment) as server,
        ):
            try:
                _wait(server, f"http://{admin}/health", f"http://{ingress}/restate/health")
                yield f"http://{ingress}", f"http://{admin}"
            finally:
                server.kill()


def register(ingress: str, admin: str, address: str) -> None:
    """Tell a server where handlers are served, once they are, and wait until it finds their services."""
    until = time.monotonic() + _LONGEST_START
    while True:
        try:
            made = request(f"{admin}/deployments", {"uri": address})
            break
        except OSError:
            assert time.monotonic() < until, "nothing is served there"
            time.sleep(0.05)
    services = {service["name"] for service in made["services"]}
    while not services <= set(request(f"{ingress}/restate/health")["services"]):
        assert time.monotonic() < until, "the server does not find the services"
        time.sleep(0.02)


def request(address: str, body: Any = None, method: str | None = None) -> Any:
    """Send a request with JSON, and return the JSON of the answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "accept": "application/json"}
    asked = urllib.request.Request(address, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=_LONGEST_START) as answer:
            text = answer.read()
    except HTTPError as error:
        with error:
            error.add_note(error.read().decode(errors="replace"))
        raise
    return json.loads(text) if text else None


def _program() -> str | None:
    """Return where the program is. What npm puts on the path is a script, and would not end with it."""
    if (found := os.environ.get("RESTATE_SERVER") or shutil.which("restate-server")) is None:
        return None
    package = Path(found).resolve().parents[1]
    inner = package / "node_modules" / "@restatedev"
    programs = [
        each for at in (package.parent, inner) for each in at.glob("restate-server-*/bin/restate-server")
    ]
    return str(programs[0]) if programs else found


def _wait(server: subprocess.Popen[bytes], *addresses: str) -> None:
    until = time.monotonic() + _LONGEST_START
    for address in addresses:
        while True:
            try:
                request(address)
                break
            except (OSError, ValueError):
                assert server.poll() is None, "the server ended at once"
                assert time.monotonic() < until, "the server did not start"
                time.sleep(0.05)
