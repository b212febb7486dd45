"""A2A's conformance kit, see https://github.com/a2aproject/a2a-tck, asked over a real socket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.environments import checkout, python_environment
from conformance.suite import NotRun, Result, Settings

PATIENCE = 600.0
"""Seconds that the kit may take."""

NOT_SERVED = {
    "grpc": "gRPC: only the JSON-RPC binding is served",
    "http_json": "HTTP+JSON: only the JSON-RPC binding is served",
}
NO_KIT = "no index has the kit: pass --a2a-kit PATH, a checkout or git directory of a2aproject/a2a-tck"
OPTIONAL = "an optional capability that the card does not declare"


def a2a_kit(settings: Settings) -> Result:
    """Run the kit against scripted agents, and count its requirements."""
    from conformance.a2a_agents import kit_app
    from served_apps import listening

    if settings.a2a_kit is None:
        raise NotRun(NO_KIT)
    home = settings.home / "a2a-kit"
    commit = checkout(settings.a2a_kit, settings.a2a_ref, home / "files")
    python = python_environment(home / f"python-{commit}", [home / "files"])
    with listening(kit_app()) as url:
        report = _report(python.absolute(), home / "files", url)
    return judged(report["per_requirement"], f"{settings.a2a_ref} {commit}")


def _report(python: Path, kit: Path, url: str) -> Mapping[str, Any]:
    command = [str(python), "run_tck.py", "--sut-host", url]
    done = subprocess.run(command, cwd=kit, capture_output=True, encoding="utf-8", timeout=PATIENCE)
    written = kit / "reports" / "compatibility.json"
    if not written.exists():
        raise NotRun(f"the kit wrote no report: {done.stdout[-400:]}{done.stderr[-400:]}")
    return json.loads(written.read_text())


def judged(requirements: Mapping[str, Mapping[str, Any]], version: str) -> Result:
    """Return the result from the requirements of the kit's report."""
    passed = sum(each["status"] == "PASS" for each in requirements.values())
    failed = {
        f"{name} ({each['level']})": "; ".join(map(str, each["errors"]))
        for name, each in requirements.items()
        if each["status"] == "FAIL"
    }
    return Result(
        name="A2A conformance kit",
        version=version,
        passed=passed,
        failed=failed,
        not_applicable=dict(_left_out(requirements)),
    )


def _left_out(requirements: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, each in requirements.items():
        if each["status"] == "SKIPPED":
            reasons = {NOT_SERVED.get(transport, OPTIONAL) for transport in each["transports"]}
            yield f"{name} ({each['level']})", OPTIONAL if OPTIONAL in reasons else sorted(reasons)[0]
