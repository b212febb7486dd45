"""The source tree as the structural tests see it."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ROOTS = ("runtime", "providers", "skills")


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One source file."""

    name: str
    """Dotted, such as ``routelock.errors``; a package goes by its own name."""
    path: Path
    text: str
    tree: ast.Module
    is_package: bool

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))


def _module(root: Path, path: Path) -> Module:
    parts = list(path.relative_to(root).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    text = path.read_text("utf-8")
    return Module(
        name=".".join(parts[:-1] if is_package else parts),
        path=path.relative_to(REPO),
        text=text,
        tree=ast.parse(text, str(path)),
        is_package=is_package,
    )


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO


@pytest.fixture(scope="session")
def modules() -> dict[str, Module]:
    """Every module of the three source roots, by its dotted name."""
    roots = [REPO / root for root in ROOTS]
    found = [_module(root, path) for root in roots for path in sorted(root.rglob("*.py"))]
    gc.freeze()  # or each test that collects garbage later goes through a million nodes
    return {module.name: module for module in found}


@pytest.fixture(scope="session")
def offline_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine with nothing on it: no keys, no settings, an empty home."""
    home = tmp_path_factory.mktemp("home")
    return {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(str(REPO / root) for root in ROOTS),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
