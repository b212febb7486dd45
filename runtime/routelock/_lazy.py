"""Loads public names of a package on first use, and packages that an extra installs."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from routelock.errors import MissingExtra


def load_late(package: str, modules: Mapping[str, str], *, knows_peers: bool = False) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which loads a module when one of its names is used (PEP 562).

    Type checkers are given the names by wildcard imports instead.

    Args:
        package: the name of the package.
        modules: the public names in each of its modules, with spaces in between.
        knows_peers: whether the error about a name of another agent library says what to write instead.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in places:
            return getattr(importlib.import_module(f"{package}.{places[name]}"), name)
        if not knows_peers or name.startswith("_") or (advice := peer_imports().get(name)) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if _is_asked_by_import():
            raise ImportError(f"cannot import name {name!r} from {package!r}: write {advice}.", name=package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}: write {advice}.")

    return load


@functools.cache
def peer_imports() -> Mapping[str, str]:
    """Return the names in ``_peer_imports.toml``, each with what to write instead."""
    import tomllib  # noqa: PLC0415 - a tenth of the time of importing routelock, for both
    from importlib.resources import files  # noqa: PLC0415

    tables = tomllib.loads(files("routelock").joinpath("_peer_imports.toml").read_text(encoding="utf-8"))
    return {name: advice for names in tables.values() for name, advice in names.items()}


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
