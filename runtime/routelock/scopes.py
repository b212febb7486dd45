"""Permissions: the scope of a tool, handler, prompt or handoff, and the scopes granted to a run.

``RunConfig.scopes`` grants scopes to a run. ``all`` needs no grant. ``owner`` and ``admin`` are ranks:
``admin`` includes ``owner``. Any other scope must be granted by its name, also to an admin. Everything else
is denied.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from routelock.errors import ConfigError

__all__ = ["Scope", "checked_scope", "permits"]

Scope = str | Collection[str]
"""One name, or several of which one must be granted."""

_INCLUDED_BY = {"all": frozenset(("owner", "admin")), "owner": frozenset(("admin",))}


def permits(scope: Scope, granted: Collection[str]) -> bool:
    """Whether a run with the granted scopes may use something of this scope.

    Args:
        scope: of the tool, handler, prompt or handoff.
        granted: the scopes of the run; without any, only ``all`` is permitted.
    """
    names = (scope,) if isinstance(scope, str) else scope
    return any(
        name == "all" or name in granted or not _INCLUDED_BY.get(name, frozenset()).isdisjoint(granted)
        for name in names
    )


def checked_scope(scope: object, where: str) -> Scope:
    """Return a declared scope after a check of it. A list of names becomes a tuple.

    Args:
        scope: the scope.
        where: the owner of the scope, for the error.

    Raises:
        ConfigError: the scope is neither a name nor a list of names.
    """
    if isinstance(scope, str) and scope:
        return scope
    if isinstance(scope, Collection) and not isinstance(scope, str | bytes):
        names = tuple(cast("Collection[object]", scope))
        if names and all(isinstance(name, str) and name for name in names):
            return cast("tuple[str, ...]", names)
    raise ConfigError(
        f"{where}: scope must be a name or a list of names, such as 'admin', not {scope!r:.80}."
    )
