"""The page by the command line, and where it listens."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from paths import REPO

from routelock import Agent, ConfigError
from routelock.cli.main import main
from routelock.errors import MissingExtra
from routelock.serving.dev import serve_dev
from routelock.testing import ScriptedHandler

APP = """
from routelock import Agent
from routelock.testing import ScriptedHandler

agent = Agent("front", model=ScriptedHandler(["Hi."]), handoffs=[Agent("back", model=ScriptedHandler([]))])
"""


def test_the_command_serves_the_page_until_it_is_interrupted(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(APP)
    command = [sys.executable, "-m", "routelock", "dev", "my_app:agent", "--port", "0", "--agent", "back"]
    where = os.pathsep.join(str(REPO / root) for root in ("runtime", "providers", "skills"))
    environment = {**os.environ, "PYTHONPATH": where, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "dev page" in line)
        found = re.search(r"http://127\.0\.0\.1:\d+", told)
        assert found is not None
        page = httpx.get(found[0], timeout=30)
        assert (page.status_code, '"spec": "my_app:agent"' in page.text) == (200, True)
        assert '"agents": ["back"]' in page.text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
    finally:
        process.kill()
        process.communicate()


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


def test_the_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dev", "--help"])
    assert "what each model call was shown" in " ".join(capsys.readouterr().out.split())
