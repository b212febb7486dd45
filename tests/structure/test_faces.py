"""A room hands out its public names, and the same object every time."""

from __future__ import annotations
import __future__

import ast
import subprocess
import sys
from typing import Any

import pytest
from waiting import PATIENCE


def _faces(modules: dict[str, Any]) -> list[Any]:
    return [module for module in modules.values() if module.is_package and "__all__" in module.text]


def _bound_at_once(module: Any) -> set[str]:
    return {
        alias.asname or alias.name
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_each_name_is_the_same_when_it_is_imported_twice(
    modules: dict[str, Any], offline_env: dict[str, str]
) -> None:
    """A module of the same name as a function would be handed out the second time."""
    packages = [module.name for module in _faces(modules)]
    code = f"""
import importlib
wrong = []
for package in {packages!r}:
    face = importlib.import_module(package)
    for name in face.__all__:
        first = getattr(face, name)
        importlib.import_module(getattr(first, "__module__", None) or package)
        if getattr(face, name) is not first or type(first).__name__ == "module":
            wrong.append(f"{{package}}.{{name}}")
raise SystemExit(" ".join(wrong) or 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=offline_env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr


def test_no_file_has_the_name_of_what_its_room_loads_late(modules: dict[str, Any]) -> None:
    double = [
        f"{module.name}.{name}"
        for module in _faces(modules)
        for name in _exported(module) - _bound_at_once(module)
        if f"{module.name}.{name}" in modules
    ]
    assert not double, double


def test_no_file_has_the_name_of_a_feature_of_python(modules: dict[str, Any]) -> None:
    """`annotations.py` beside ``from __future__ import annotations`` is two things of one name."""
    double = [name for name in modules if name.rpartition(".")[2] in __future__.all_feature_names]
    assert not double, double


def _exported(module: Any) -> set[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@pytest.mark.parametrize("package", ["routelock.tracing", "routelock_providers"])
def test_a_name_that_is_not_there_is_an_attribute_error(package: str, offline_env: dict[str, str]) -> None:
    code = f"import {package} as face; assert not hasattr(face, 'nothing_of_the_kind')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=offline_env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
