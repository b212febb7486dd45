"""Reports of pytest in JUnit's XML, which suites of tests are counted from."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.suite import NotRun

PATIENCE = 900.0
"""Seconds that a run of pytest may take."""


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of one or more reports: the names of those that passed, and the reasons of all others."""

    passed: Collection[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])

    def __add__(self, other: Cases) -> Cases:
        return Cases(
            [*self.passed, *other.passed],
            {**self.failed, **other.failed},
            {**self.skipped, **other.skipped},
        )


def run_pytest(
    arguments: Sequence[str], report: Path, *, python: str = sys.executable, folder: Path | None = None
) -> Cases:
    """Run pytest and return its cases.

    Args:
        arguments: what to run.
        report: the file of the report. It is written anew.
        python: the Python to run it with.
        folder: the working directory.

    Raises:
        NotRun: there is no report.
    """
    report = report.absolute()
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", timeout=PATIENCE)
    if not report.exists():
        raise NotRun(f"pytest wrote no report: {(done.stdout + done.stderr)[-400:].strip()}")
    return read_cases(report.read_text())


def read_cases(text: str) -> Cases:
    """Return the cases of a report."""
    passed, failed, skipped = list[str](), dict[str, str](), dict[str, str]()
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        if fault := next(_faults(case), None):
            failed[name] = fault
        elif (skip := case.find("skipped")) is not None:
            skipped[name] = skip.get("message") or ""
        else:
            passed.append(name)
    return Cases(passed, failed, skipped)


def _faults(case: ElementTree.Element) -> Iterator[str]:
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            yield found.get("message") or kind
