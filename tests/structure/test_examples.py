"""Every example runs on a machine with no network, no key and no settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from paths import REPO
from waiting import PATIENCE

# that one takes as long as ten others, and is run by itself in tests/structure/test_support_desk.py
PROGRAMS = {*(REPO / "examples").glob("*.py"), *(REPO / "examples" / "ports").glob("*.py")}
EXAMPLES = sorted(PROGRAMS - {REPO / "examples" / "support_desk.py"})

_RUN = """
import json, os, runpy, sys, tempfile
import pydantic
import routelock.runner
from routelock.testing import no_network

def run(example):
    sys.argv = [example]  # this and the path are as Python sets them for a script
    sys.path.insert(0, os.path.dirname(example))
    os.chdir(tempfile.mkdtemp(dir="."))
    with no_network():
        runpy.run_path(example, run_name="__main__")

told = {}
for example in sys.argv[1:]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if not (child := os.fork()):
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            run(example)
            sys.exit()
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        told[example] = [os.waitstatus_to_exitcode(status), *texts]
print(json.dumps(told))
"""
"""Runs each example in a fork, because importing takes longer than most of them do."""


@pytest.fixture(scope="module")
def ended(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, offline_env: dict[str, str]
) -> Mapping[str, tuple[int, str, str]]:
    """The exit code, the output and the errors of the examples that are asked for."""
    items: list[Any] = request.session.items
    asked = [str(item.callspec.params["example"]) for item in items if item.path == Path(__file__)]
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *asked],
        cwd=tmp_path_factory.mktemp("examples"),
        env=offline_env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, tuple[int, str, str]] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, ended: Mapping[str, tuple[int, str, str]]) -> None:
    code, shown, errors = ended[str(example)]
    assert code == 0, errors[-4000:]
    assert shown.strip(), "an example shows something"
