"""Where the page listens, and what it says where it cannot."""

from __future__ import annotations

import socket
import sys

import pytest

from routelock import Agent, ConfigError
from routelock.errors import MissingExtra
from routelock.serving.dev import serve_dev
from routelock.testing import ScriptedHandler


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.com", "::", ""])
def test_other_machines_cannot_reach_it(host: str) -> None:
    with pytest.raises(ConfigError, match="ssh -L"):
        serve_dev(Agent("a", model=ScriptedHandler([])), host=host)


@pytest.mark.parametrize("missing", ["starlette.applications", "uvicorn"])
def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtra, match=r"routelock\[serve\]"):
        serve_dev(Agent("a", model=ScriptedHandler([])))


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} cannot be used"):
            serve_dev(Agent("a", model=ScriptedHandler([])), port=port)
