"""`__all__` says what a module is for, and says it truthfully (ruff keeps it sorted)."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from typing import Any


def _assigned(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets, value=value) if not _is_type_variable(value):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and getattr(value.func, "attr", getattr(value.func, "id", "")) in (
        "TypeVar",
        "ParamSpec",
    )


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those under an ``if TYPE_CHECKING`` as well."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from (*node.body, *node.orelse)


def _defined(module: Any) -> set[str]:
    """The public classes, functions and type aliases; a CONSTANT may stay between two modules."""
    names: set[str] = set()
    for node in _statements(module.tree.body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        else:
            names |= {name for name in _assigned(node) if not name.isupper()}
    return {name for name in names if not name.startswith(("_", "pytest_"))}


def _reexported(module: Any) -> set[str]:
    """What a package's front door takes from its own modules."""
    return {
        alias.asname or alias.name
        for node in module.tree.body
        if isinstance(node, ast.ImportFrom) and re.match(rf"{module.name}\.[^_]", node.module or "")
        for alias in node.names
    }


def _taken_elsewhere(modules: dict[str, Any]) -> set[tuple[str, str]]:
    """(module, name) of everything that one of our modules takes from another."""
    return {
        (node.module or "", alias.name)
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_public_module_says_what_it_exports(modules: dict[str, Any]) -> None:
    silent = [
        str(module.path)
        for module in modules.values()
        if module.is_public and (_defined(module) or _reexported(module)) and "__all__" not in module.text
    ]
    assert not silent, silent


def test_exports_are_what_the_module_defines(modules: dict[str, Any]) -> None:
    """A public name that is not for users is there because another module takes it."""
    wrong: list[str] = []
    inner = _taken_elsewhere(modules)
    for module in modules.values():
        if not module.is_public or "__all__" not in module.text:
            continue
        exported: list[str] = importlib.import_module(module.name).__all__
        expected = _defined(module) | (_reexported(module) if module.is_package else set())
        forgotten = sorted(name for name in expected - set(exported) if (module.name, name) not in inner)
        if forgotten:
            wrong.append(f"{module.path}: add to __all__, or begin with an underscore: {forgotten}")
    assert not wrong, "\n".join(wrong)


def test_exports_exist_and_are_the_modules_own(modules: dict[str, Any]) -> None:
    wrong: list[str] = []
    for module in modules.values():
        if not module.is_public or "__all__" not in module.text:
            continue
        loaded, defined = importlib.import_module(module.name), _defined(module)
        missing = [name for name in loaded.__all__ if not hasattr(loaded, name)]
        borrowed = [
            name
            for name in loaded.__all__
            if defined  # what defines nothing hands out what others do
            and str(getattr(getattr(loaded, name, None), "__module__", "")).startswith("routelock")
            and name not in defined
        ]
        if missing or borrowed:
            wrong.append(f"{module.path}: missing {missing}, defined elsewhere {borrowed}")
        if len(loaded.__all__) != len(set(loaded.__all__)):
            wrong.append(f"{module.path}: a name is twice in __all__")
    assert not wrong, "\n".join(wrong)


def test_one_name_means_one_thing(modules: dict[str, Any]) -> None:
    """A package defines a public name in one module only, so that an import cannot pick the wrong one."""
    homes: dict[tuple[str, str], list[str]] = {}
    for module in modules.values():
        if module.is_public and not module.is_package:
            for name in _defined(module) & set(getattr(importlib.import_module(module.name), "__all__", ())):
                homes.setdefault((module.name.split(".")[0], name), []).append(module.name)
    double = {name: places for name, places in homes.items() if len(places) > 1}
    assert not double, double
