"""What changes during a run is in the parts of `Run`, and few modules assign to each part."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from paths import REPO

from routelock.run.run import Run

ROOM = REPO / "runtime" / "routelock"

WRITERS = {
    "budget": {
        "run/call_faults.py",
        "run/failure.py",
        "run/model_call.py",
        "run/sub_run_accounts.py",
        "run/subrun.py",
        "run/tool_calls.py",
    },
    "callers": set[str](),
    "ending": {"run/failure.py", "run/loop.py"},
    "frame": {
        "run/model_call.py",
        "run/prompt.py",
        "run/start.py",
        "run/transfer.py",
        "sessions/session.py",
    },
    "handoffs": {"run/sub_run_accounts.py"},
    "memory": {"run/compact.py", "run/handoff_data.py", "run/subrun.py", "state/memory.py"},
    "model_call": {
        "run/compact.py",
        "run/failure.py",
        "run/loop.py",
        "run/model_call.py",
    },
    "open_calls": {
        "run/approval_gate.py",
        "run/failure.py",
        "run/loop.py",
        "run/subrun.py",
        "sessions/session.py",
    },
    "progress": {"run/loop.py", "run/mistakes.py", "run/model_call.py", "run/unusable_output.py"},
    "recorder": {"tracing/recorder.py"},
    "report": {
        "run/compact.py",
        "run/model_call.py",
        "run/sub_run_accounts.py",
        "run/tool_calls.py",
        "sessions/session.py",
    },
    "store": {"run/start.py", "run/subrun.py"},
    "sub_runs": {"run/sub_run_accounts.py", "run/subrun.py"},
    "transcript": {"run/compact.py", "run/start.py", "sessions/session.py"},
}
"""The modules that assign to a part or within it, beside `run/run.py`, which has the methods for it, and
`state/resume.py`, which restores all of them."""

EVERYWHERE = {"run/run.py", "state/resume.py"}

NAMES = ("run", "inner", "outer", "so_far")
"""What a variable is called that holds a run."""


def path_of(node: ast.expr) -> list[str]:
    """Return the names of ``run.budget.usage`` in order; of anything else those after the last call."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.value
    return [*([node.id] if isinstance(node, ast.Name) else []), *reversed(names)]


def assigned(module: Path) -> Iterator[list[str]]:
    """Yield the path of each attribute that a module assigns to."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                path = path_of(each)
                yield path[1:] if path[:1] == ["self"] else path


@pytest.fixture(scope="module")
def writers() -> dict[str, set[str]]:
    """The modules that assign to each part of a run, or within it."""
    found: dict[str, set[str]] = {}
    for module in ROOM.rglob("*.py"):
        for path in assigned(module):
            if path[:1] and path[0] in NAMES and path[1:]:
                found.setdefault(path[1], set()).add(module.relative_to(ROOM).as_posix())
    return found


def test_a_run_is_one_class_of_few_fields() -> None:
    assert Run.__bases__ == (object,)
    assert len(fields(Run)) <= 30


@pytest.mark.parametrize("part", WRITERS)
def test_few_modules_assign_to_a_part_of_a_run(part: str, writers: dict[str, set[str]]) -> None:
    assert writers.get(part, set()) - EVERYWHERE == WRITERS[part]
