"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def load_late(package: str, places: Mapping[str, str], name: str) -> Any:
    """Return a public name of a package, and load the module that defines it only now (PEP 562).

    Args:
        package: The name of the package.
        places: For each name that is loaded late, the module that defines it.
        name: The name that is asked for.

    Raises:
        AttributeError: The package has no such name.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(importlib.import_module(places[name]), name)
