"""Loads public names of a package on first use, and packages that an extra installs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from routelock.errors import MissingExtra


def load_late(
    package: str, modules: Mapping[str, str], instead: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which loads a module when one of its names is used (PEP 562).

    Type checkers are given the names by wildcard imports instead.

    Args:
        package: the name of the package.
        modules: the public names in each of its modules, with spaces in between.
        instead: names that are not there, each with what to write instead.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}
    advice = instead or {}

    def load(name: str) -> Any:
        if name in advice:
            if _is_asked_by_import():
                raise ImportError(
                    f"cannot import name {name!r} from {package!r}: write {advice[name]}.", name=package
                )
            raise AttributeError(f"module {package!r} has no attribute {name!r}: write {advice[name]}.")
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{places[name]}"), name)

    return load


def _is_asked_by_import() -> bool:
    """Return whether an import statement asks a ``__getattr__`` for a name, and not other code.

    The statement drops the text of any error but an ImportError. Other code, such as `hasattr`, and pickle
    when it looks for the module of a function, takes no error but an AttributeError.
    """
    own = inspect.currentframe()
    asked = own and own.f_back
    asking = asked and asked.f_back
    return asking is not None and asking.f_code.co_name == "_handle_fromlist"  # a function of importlib


@contextmanager
def needs_extra(why: str, extra: str, *, missing: type[ImportError] = ModuleNotFoundError) -> Generator[None]:
    """Turn the error of an import inside into a `MissingExtra` that says what to install.

    Args:
        why: the beginning of the error, such as ``"RedisSessions needs redis, which is not installed"``.
        extra: the extra that installs the package.
        missing: the error of the import.
    """
    try:
        yield
    except missing as error:
        raise MissingExtra(f"{why}: pip install 'routelock[{extra}]'.") from error
