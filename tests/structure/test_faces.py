"""A room hands out its public names, and the same object every time."""

from __future__ import annotations
import __future__

import ast
import builtins
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
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


def _errors_named(made: object) -> set[str]:
    """The errors in the section ``Raises:`` of a docstring."""
    raises = re.search(r"^Raises:\n((?: .*\n?)+)", inspect.getdoc(made) or "", re.MULTILINE)
    return set(re.findall(r"^ {4}([A-Z]\w+):", raises[1], re.MULTILINE)) if raises else set()


def _documented(made: object) -> Iterator[object]:
    """Yield a public object and its public methods."""
    yield made
    if inspect.isclass(made):
        yield from (value for name, value in vars(made).items() if not name.startswith("_"))


def test_errors_that_a_docstring_names_can_be_imported(modules: dict[str, Any]) -> None:
    """A program that catches one must not import it from within a room."""
    faces = [importlib.import_module(each.name) for each in _faces(modules)] + [
        importlib.import_module("routelock.errors")
    ]
    known = {name for face in faces for name in face.__all__} | set(dir(builtins))
    named = {
        error
        for face in faces
        for name in face.__all__
        for each in _documented(getattr(face, name))
        for error in _errors_named(each)
    }
    assert sorted(named - known) == []


@pytest.mark.parametrize("package", ["routelock.tracing", "routelock_providers"])
def test_a_name_that_is_not_there_is_an_attribute_error(package: str, offline_env: dict[str, str]) -> None:
    code = f"import {package} as face; assert not hasattr(face, 'nothing_of_the_kind')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=offline_env, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
