"""Test suites of users, which pytest runs inside a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import vcr  # noqa: F401 - pytester forgets what an inner run imports, and yaml cannot be loaded twice

__all__ = ["CONFTEST", "names_of", "run", "run_without_keys", "write_refund"]

CONFTEST = 'pytest_plugins = ["routelock.testing.pytest_plugin"]'


def run(suite: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run the suite as it runs for a user: without the plugins that happen to be installed here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        return suite.runpytest_inprocess("-p", "no:cacheprovider", *options)


def run_without_keys(folder: Path, *options: str) -> str:
    """Run the suite of a folder in a process of its own that knows no key, and return what pytest says."""
    keyless = {name: value for name, value in os.environ.items() if not name.endswith("_KEY")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options],
        capture_output=True,
        text=True,
        env=keyless | {"COLUMNS": "400", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=folder,
        timeout=300,
    )
    return done.stdout + done.stderr


def names_of(folder: Path) -> list[str]:
    """Return the cassettes that are below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.yaml"))


def write_refund(folder: Path, url: str) -> None:
    """Write the cassette of one request, made by ``test_refund`` in ``test_desk.py``."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Where is my refund?"}]})
    request = {"method": "POST", "uri": f"{url}/chat/completions", "body": body, "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": ""}}
    path = folder / "cassettes" / "test_desk" / "test_refund.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"interactions": [{"request": request, "response": response}], "version": 1}))
