"""The dev page listens on loopback only, and explains when it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from terminals import environment
from waiting import PATIENCE

from routelock import Agent, ConfigError
from routelock.serving.dev import serve_dev
from routelock.testing import ScriptedHandler


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.com", "::", ""])
def test_other_machines_cannot_reach_it(host: str) -> None:
    with pytest.raises(ConfigError, match="ssh -L"):
        serve_dev(Agent("a", model=ScriptedHandler([])), host=host)


WITHOUT = """
import sys
sys.modules[sys.argv[1]] = None
from routelock import Agent
from routelock.serving.dev import serve_dev
from routelock.testing import ScriptedHandler
serve_dev(Agent("a", model=ScriptedHandler([])))
"""


@pytest.mark.parametrize("missing", ["starlette.applications", "uvicorn"])
def test_a_missing_package_is_named(missing: str) -> None:
    command = [sys.executable, "-c", WITHOUT, missing]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    assert done.stderr.splitlines()[-1].startswith("routelock.errors.MissingExtra: ")
    assert "routelock[serve]" in done.stderr


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 cannot be used"):
            serve_dev(Agent("a", model=ScriptedHandler([])), port=port)
