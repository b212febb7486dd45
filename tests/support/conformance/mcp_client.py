"""MCP's conformance suite against an agent with the tools of the suite's servers.

Each scenario is played in both forms of the protocol, if it is for both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.environments import node_packages
from conformance.suite import Result, Settings

__all__ = ["mcp_client"]


NAME = "MCP conformance, client"

PACKAGE, NODE = "@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@24"
"""The suite, and a Node.js that it runs on: the one of many machines is too old for it."""

PROGRAM = Path(__file__).with_name("mcp_client_program.py")

PATIENCE = 900.0
"""Seconds for one scenario."""

AT_ONCE = 2
"""Scenarios that are played at the same time; each has limits of some seconds."""

VERSIONS = ("2025-11-25", "2026-07-28")
"""The newest version of the protocol with sessions, and the newest one. Older ones are like the first."""

_NO_PROVIDER = "an extension: version 2 of the mcp package has no provider for it; an app may write one"

NOT_APPLICABLE: Mapping[str, str] = {
    "auth/dpop": _NO_PROVIDER,
    "auth/wif-jwt-bearer": _NO_PROVIDER,
    "sep-2640-client": "an extension: resources, and so skills in them, are not read",
}
"""Why scenarios do not apply, by how their names begin."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario at one version of the protocol; None is the one that the suite chooses."""

    name: str
    version: str | None

    @property
    def label(self) -> str:
        """What it is called in the table."""
        return self.name if self.version is None else f"{self.name}@{self.version}"


def mcp_client(settings: Settings) -> Result:
    """Play all scenarios of clients against an agent with the tools of the suite's servers."""
    home = settings.home
    folder = node_packages(home / "mcp-client", [PACKAGE, NODE]) / "node_modules"
    package = folder / PACKAGE.rpartition("@")[0]
    command = [str(folder / ".bin" / "node"), str(package / "dist" / "index.js")]
    results = home / "mcp-client-results"
    shutil.rmtree(results, ignore_errors=True)
    not_applicable, scenarios = dict[str, str](), list[Scenario]()
    for one in _scenarios(command):
        if (why := _why_not(one.name)) is not None:
            not_applicable[one.name] = why
        else:
            scenarios.append(one)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        played = list(threads.map(lambda one: _play(command, one, results / one.label), scenarios))
    passed, failed = 0, dict[str, str]()
    for one, checks in zip(scenarios, played, strict=True):
        passed += sum(check["status"] == "SUCCESS" for check in checks)
        for check in checks:
            what = str(check.get("errorMessage") or check["description"])
            if check["status"] == "SKIPPED":
                not_applicable[f"{one.label}/{check['id']}"] = f"the suite skips it: {what}"
            elif check["status"] not in ("SUCCESS", "INFO"):
                failed[f"{one.label}/{check['id']}"] = what
    version = str(json.loads((package / "package.json").read_text("utf-8"))["version"])
    return Result(name=NAME, version=version, passed=passed, failed=failed, not_applicable=not_applicable)


def _scenarios(command: Sequence[str]) -> Iterator[Scenario]:
    """Yield what the suite lists, such as ``- tools_call [2025-06-18,2026-07-28]``."""
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True).stdout
    _, _, clients = listed.partition("Client scenarios")
    clients, _, _ = clients.partition("\n\n")
    for name, versions in re.findall(r"- (\S+) \[(.*)\]", clients):
        known = [each for each in versions.split(",") if each in VERSIONS]
        yield from (Scenario(name, version) for version in known or [None])


def _play(command: Sequence[str], one: Scenario, results: Path) -> list[dict[str, Any]]:
    """Play a scenario and return its checks; a program that should not have failed is one more."""
    at = [] if one.version is None else ["--spec-version", one.version]
    asked = ["client", "--command", f"{sys.executable} {PROGRAM}", "--scenario", one.name, *at]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [*command, *asked, "--output-dir", str(results)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=PATIENCE,
    )
    checks = [check for file in results.rglob("checks.json") for check in json.loads(file.read_text("utf-8"))]
    if done.returncode and not any(check["status"] == "FAILURE" for check in checks):
        checks.append({"id": "end", "status": "FAILURE", "description": done.stdout[-400:]})
    return checks


def _why_not(name: str) -> str | None:
    return next((why for begin, why in NOT_APPLICABLE.items() if name.startswith(begin)), None)
