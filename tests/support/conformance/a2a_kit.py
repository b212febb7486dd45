"""A2A's conformance kit, see https://github.com/a2aproject/a2a-tck, asked over a real socket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.environments import checkout, python_environment
from conformance.junit import Cases, run_pytest
from conformance.suite import NotRun, Result, Settings

PATIENCE = 600.0
"""Seconds that the kit may take."""

NOT_SERVED = {
    "grpc": "gRPC: only the JSON-RPC binding is served",
    "http_json": "HTTP+JSON: only the JSON-RPC binding is served",
}
NO_KIT = "no index has the kit: pass --a2a-kit PATH, a checkout or git directory of a2aproject/a2a-tck"
SAME_ID = "the kit gives three messages one id, which the SDK takes for a repetition"
WAITED = "the kit waits for the end of a task, and then expects it not to have begun"
NO_KIND = "the kit's part has a text and no kind, which the SDK reads as text"
OPTIONAL = "an optional capability that the card does not declare"


KNOWN = {
    "CORE-HIST-005": SAME_ID,
    "CORE-HIST-006": SAME_ID,
    "test_task_state_quality::test_task_state_transitions": WAITED,
    "test_invalid_business_logic::test_unsupported_part_kind": NO_KIND,
}
"""Why the cases fail that are known to."""

# with these markers the kit's own run_tck.py runs its folders
_OLD_PARTS = (
    ("tests/mandatory", "mandatory_jsonrpc or mandatory_protocol"),
    ("tests/optional/capabilities", ""),
    ("tests/optional/quality", ""),
    ("tests/optional/features", ""),
)


def a2a_kit(settings: Settings) -> Result:
    """Run the kit for version 1.0 against scripted agents, and count its requirements."""
    from conformance.a2a_agents import kit_app
    from served_apps import listening

    home, commit, python = _installed(settings, "a2a-kit", settings.a2a_ref)
    with listening(kit_app()) as url:
        report = _report(python, home / "files", url)
    return judged(report["per_requirement"], f"{settings.a2a_ref} {commit}")


def a2a_old_kit(settings: Settings) -> Result:
    """Run the kit for version 0.3, whose cases are tests."""
    from conformance.a2a_agents import old_kit_app
    from served_apps import listening

    home, commit, python = _installed(settings, "a2a-kit-0.3", settings.a2a_old_ref)
    cases = Cases()
    with listening(old_kit_app()) as url:
        asked = [f"--sut-url={url}/a2a/desk", "--test-scope=all", "--transports=jsonrpc"]
        for place, (folder, markers) in enumerate(_OLD_PARTS):
            chosen = [folder, *asked, *(["-m", markers] if markers else [])]
            report = home / f"report-{place}.xml"
            cases += run_pytest(chosen, report, python=str(python), folder=home / "files")
    return Result(
        name="A2A conformance kit, 0.3",
        version=f"{settings.a2a_old_ref} {commit}",
        passed=len(cases.passed),
        failed={case: KNOWN.get(case, fault) for case, fault in cases.failed.items()},
        not_applicable=cases.skipped,
        known=KNOWN,
    )


def _installed(settings: Settings, name: str, ref: str) -> tuple[Path, str, Path]:
    """Install the kit, and return its folder, its commit and its Python."""
    if settings.a2a_kit is None:
        raise NotRun(NO_KIT)
    home = settings.home / name
    commit = checkout(settings.a2a_kit, ref, home / "files")
    python = python_environment(home / f"python-{commit}", [home / "files"])
    return home, commit, python.absolute()


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
        f"{name} ({each['level']})": KNOWN.get(name) or "; ".join(map(str, each["errors"]))
        for name, each in requirements.items()
        if each["status"] == "FAIL"
    }
    return Result(
        name="A2A conformance kit",
        version=version,
        passed=passed,
        failed=failed,
        known=[f"{name} ({each['level']})" for name, each in requirements.items() if name in KNOWN],
        not_applicable=dict(_left_out(requirements)),
    )


def _left_out(requirements: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for name, each in requirements.items():
        if each["status"] == "SKIPPED":
            reasons = {NOT_SERVED.get(transport, OPTIONAL) for transport in each["transports"]}
            yield f"{name} ({each['level']})", OPTIONAL if OPTIONAL in reasons else sorted(reasons)[0]
