"""Nothing grows beyond what can be read in one go."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from typing import Any

FILE_LINES = 700
FUNCTION_LINES = 40
PUBLIC_NAMES = 46

EXCEPTIONS: dict[str, str] = {
    # "routelock.module" or "routelock.module.function": why it may be bigger
}


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}.{node.name}", node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _functions(node, f"{prefix}.{node.name}")
        else:
            yield from _functions(node, prefix)


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring not counted: explaining must not cost."""
    lines = (function.end_lineno or 0) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return lines


def _too_big(modules: dict[str, Any]) -> dict[str, str]:
    found = {
        name: f"{module.path} has {count} lines; {FILE_LINES} are allowed"
        for name, module in modules.items()
        if (count := len(module.text.splitlines())) > FILE_LINES
    }
    for module in modules.values():
        for name, function in _functions(module.tree, module.name):
            if (count := _length(function)) > FUNCTION_LINES:
                place = f"{module.path}:{function.lineno}"
                found[name] = f"{place} {function.name} has {count} lines; {FUNCTION_LINES} are allowed"
    return found


def test_files_and_functions_stay_small(modules: dict[str, Any]) -> None:
    big = [text for name, text in _too_big(modules).items() if name not in EXCEPTIONS]
    assert not big, "\n".join(big)


def test_no_exception_outlives_its_reason(modules: dict[str, Any]) -> None:
    stale = EXCEPTIONS.keys() - _too_big(modules).keys()
    assert not stale, f"small enough by now, take them out: {sorted(stale)}"


def test_nobody_switches_the_complexity_check_off(modules: dict[str, Any]) -> None:
    quiet = [str(module.path) for module in modules.values() if "noqa: C901" in module.text]
    assert not quiet, quiet


def test_the_front_door_stays_small() -> None:
    names: list[str] = importlib.import_module("routelock").__all__
    assert len(names) <= PUBLIC_NAMES, f"{len(names)} public names; which of them do most apps need?"
