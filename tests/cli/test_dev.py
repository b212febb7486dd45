"""``routelock dev``: the page is served until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from paths import REPO
from waiting import PATIENCE

from routelock import ConfigError
from routelock.cli.dev import session_at
from routelock.cli.main import main

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
        page = httpx.get(found[0], timeout=PATIENCE)
        assert (page.status_code, '"spec": "my_app:agent"' in page.text) == (200, True)
        assert '"agents": ["back"]' in page.text
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) in (0, 130)
    finally:
        process.kill()
        process.communicate()


def test_the_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["dev", "--help"])
    assert "what each model call was shown" in " ".join(capsys.readouterr().out.split())


SESSIONS = """
from routelock.sessions import InMemorySessions, Session

session = Session("u7", InMemorySessions())

def make():
    return session
"""


@pytest.mark.parametrize("name", ["session", "make"])
def test_the_session_is_one_or_a_function(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = f"sessions_{name}_of_dev"
    (tmp_path / f"{module}.py").write_text(SESSIONS)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    found: Any = session_at(f"{module}:{name}")
    assert (found() if name == "make" else found).name == "u7"


def test_another_object_is_no_session() -> None:
    with pytest.raises(ConfigError, match=r"--session sys:path must be a Session or a function, not \["):
        session_at("sys:path")
