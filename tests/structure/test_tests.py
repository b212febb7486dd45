"""Tests mirror the rooms: a module with behaviour has a test file of its name, and no test needs another."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from coverage import Coverage
from hypothesis import given
from hypothesis.strategies import none
from paths import TESTS
from thoroughness import examples

FOLDERS = {
    "routelock": TESTS,
    "routelock_providers": TESTS / "providers",
    "routelock_skills": TESTS / "skills",
}

EXCEPTIONS: dict[str, str] = {
    # "routelock.module": why it has no test file of its name
}


def _has_behaviour(module: Any) -> bool:
    """Whether it does anything by itself: a face names what others do, and data does nothing."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return not module.is_package and any(isinstance(node, functions) for node in ast.walk(module.tree))


def _test_of(name: str) -> Path:
    package, *rooms, module = name.split(".")
    return FOLDERS[package].joinpath(*rooms, f"test_{module.strip('_')}.py")


def test_every_module_with_behaviour_has_a_test_file_of_its_name(modules: dict[str, Any]) -> None:
    untested = [
        f"{module.path} has no {path.relative_to(TESTS.parent)}"
        for name, module in modules.items()
        if _has_behaviour(module) and name not in EXCEPTIONS and not (path := _test_of(name)).is_file()
    ]
    assert not untested, "\n".join(untested)


def test_no_exception_outlives_its_reason(modules: dict[str, Any]) -> None:
    stale = [
        name
        for name in EXCEPTIONS
        if name not in modules or not _has_behaviour(modules[name]) or _test_of(name).is_file()
    ]
    assert not stale, f"take them out: {stale}"


def test_no_test_imports_another() -> None:
    """What two share is in tests/support, under a name that says what it is."""
    tests = {path.stem: path for path in TESTS.rglob("test_*.py")}
    assert len(tests) > 200
    imports_one = re.compile(r"^\s*(?:import|from)\s.*\b(?:tests\b|test_)", re.MULTILINE)
    wrong = [
        f"{path.relative_to(TESTS)} imports {name}"
        for path in TESTS.rglob("*.py")
        if imports_one.search(text := path.read_text("utf-8"))  # to parse them all would take long
        for node in ast.walk(ast.parse(text))
        for name in _imported(node)
        if name.split(".")[0] == "tests" or name.rpartition(".")[2] in tests
    ]
    assert not wrong, "\n".join(wrong)


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module)):
            return [module]
        case _:
            return []


@given(none())
@examples(1)
def test_a_property_is_not_traced(nothing: None) -> None:
    """Tracing more than doubles the time of a test, and properties say little more about coverage."""
    assert Coverage.current() is None
