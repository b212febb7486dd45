"""MCP's conformance suite against agents that are served as tools: the suite that npm has.

With the files of its repository: `python -m conformance.mcp_server HOME FILES`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from conformance.suite import NotRun, Result, Settings

__all__ = ["judged", "mcp_server"]


NAME = "MCP conformance, server"

PACKAGE, NODE = "@modelcontextprotocol/conformance", "node@24"
"""The suite, and a Node.js that it runs on: the one of many machines is too old for it."""

PATIENCE = 900.0
"""Seconds for an installation, and for the suite."""

_NO_PROMPTS = "agents are tools; prompts and resources are not served"
_NO_FORMS = "questions ask for a decision and have no fields"
_NO_SAMPLING = "the agents have models of their own, and ask the client for none and for no roots"
_NO_TASKS = "the tasks extension is not served; a call sends progress, and is cancelled with its stream"

NOT_APPLICABLE: Mapping[str, str] = {
    "caching/sep-2549-prompts": _NO_PROMPTS,
    "caching/sep-2549-resources": _NO_PROMPTS,
    "completion-complete": _NO_PROMPTS,
    "elicitation-": _NO_FORMS,
    "http-custom-header": "no argument of an agent is a header",
    "input-required-result-basic-list-roots": _NO_SAMPLING,
    "input-required-result-basic-sampling": _NO_SAMPLING,
    "input-required-result-capability-check": _NO_SAMPLING,
    "input-required-result-ignore-extra": "it answers what was not asked, which decides nothing",
    "input-required-result-multiple-input": _NO_SAMPLING,
    "input-required-result-non-tool": _NO_PROMPTS,
    "json-schema-2020-12": "the schemas are made of Python types",
    "logging-": "the log is the server's own; the protocol has deprecated it for clients",
    "prompts-": _NO_PROMPTS,
    "resources-": _NO_PROMPTS,
    "sep-2164-resource": _NO_PROMPTS,
    "server-sse-polling": "nothing keeps what a client has not read, so no stream is resumed",
    "server-stateless/sep-2575-missing-capability": _NO_SAMPLING,
    "server-stateless/sep-2575-server-rejects-undeclared": _NO_SAMPLING,
    "tasks-": _NO_TASKS,
    "tools-call-sampling": _NO_SAMPLING,
    "tools-call-with-logging": "the log is the server's own; the protocol has deprecated it for clients",
}
"""Why scenarios, or ``scenario/check``, do not apply, by how their names begin."""


_TIME = re.compile(r"-\d{4}-\d\d-\d\dT[\d-]+Z$")
"""The end of the name of a folder of results."""


def mcp_server(settings: Settings) -> Result:
    """Run the suite as `make conformance` does."""
    try:
        return judged(settings.home)
    except (OSError, subprocess.SubprocessError) as error:
        raise NotRun(f"npm or the server does not run: {error}") from error


def judged(home: Path, kit: Path | None = None) -> Result:
    """Run all scenarios against the agents of `conformance.mcp_agents`.

    Args:
        home: a folder for what is installed; it stays for the next time.
        kit: the files of the suite's repository; None takes the package.

    Raises:
        OSError: npm is not installed.
        subprocess.SubprocessError: something cannot be installed or started.
    """
    command, version = _from_package(home) if kit is None else _from_files(home, kit)
    found = home / "mcp-server-results"
    shutil.rmtree(found, ignore_errors=True)
    with _served() as url:
        arguments = ["server", "--url", url, "--suite", "all", "--output-dir", str(found)]
        # it ends with 1 if a check fails; which one is read below
        subprocess.run([*command, *arguments], stdout=subprocess.DEVNULL, timeout=PATIENCE, check=False)
    return _result(version, found)


def _from_package(home: Path) -> tuple[Sequence[str], str]:
    folder = _installed(home / "mcp-server", PACKAGE, NODE) / "node_modules"
    package = folder / PACKAGE
    return [str(folder / ".bin" / "node"), str(package / "dist" / "index.js")], _version(package)


def _from_files(home: Path, kit: Path) -> tuple[Sequence[str], str]:
    """Install what the files need, beside them, and run them as they are."""
    node = _installed(home / "mcp-server-node", NODE) / "node_modules" / ".bin" / "node"
    if not (kit / "node_modules").exists():
        _npm("install", "--ignore-scripts", "--prefix", str(kit))
    runner = kit / "node_modules" / "tsx" / "dist" / "cli.mjs"
    return [str(node), str(runner), str(kit / "src" / "index.ts")], _version(kit)


def _version(package: Path) -> str:
    return str(json.loads((package / "package.json").read_text("utf-8"))["version"])


def _installed(folder: Path, *packages: str) -> Path:
    done = folder / ".done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _npm("install", "--prefix", str(folder), *packages)
        done.touch()
    return folder


def _npm(*arguments: str) -> None:
    options = ["--no-package-lock", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
    subprocess.run(["npm", *arguments, *options], check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)


@contextmanager
def _served() -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
    command = [sys.executable, "-m", "uvicorn", "conformance.mcp_agents:app", "--port", str(port)]
    server = subprocess.Popen([*command, "--log-level", "critical"], env={**os.environ, "PYTHONPATH": path})
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://localhost:{port}/mcp"
    finally:
        server.terminate()
        server.wait(PATIENCE)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    while server.poll() is None:
        try:
            urlopen(url).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise subprocess.CalledProcessError(server.returncode, "uvicorn")


def _result(version: str, found: Path) -> Result:
    passed, failed, not_applicable = 0, dict[str, str](), dict[str, str]()
    for file in sorted(found.glob("*/checks.json")):
        scenario = _TIME.sub("", file.parent.name.removeprefix("server-"))
        if (why := _why_not(scenario)) is not None:
            not_applicable[scenario] = why
            continue
        for check in json.loads(file.read_text("utf-8")):
            case = f"{scenario}/{check['id']}"
            passed += check["status"] == "SUCCESS"
            if check["status"] in ("SUCCESS", "INFO"):
                continue
            if (why := _why_not(case, check)) is not None:
                not_applicable[case] = why
            else:
                failed[case] = str(check.get("errorMessage") or check["status"])
    return Result(name=NAME, version=version, passed=passed, failed=failed, not_applicable=not_applicable)


def _why_not(case: str, check: Mapping[str, Any] | None = None) -> str | None:
    if check is not None and check["status"] == "SKIPPED":
        return f"the suite skips it: {check.get('errorMessage') or check['description']}"
    return next((why for name, why in NOT_APPLICABLE.items() if case.startswith(name)), None)


if __name__ == "__main__":
    outcome = judged(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    json.dump([NAME, outcome.version, outcome.passed, outcome.failed, outcome.not_applicable], sys.stdout)
