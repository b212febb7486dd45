"""Loads public names of a package on first use."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def load_late(package: str, places: Mapping[str, str], name: str) -> Any:
    """Load the module that defines a public name of a package, and return the object (PEP 562).

    Args:
        package: the name of the package.
        places: the module that defines each name.
        name: the name to return.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in places:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(importlib.import_module(places[name]), name)
