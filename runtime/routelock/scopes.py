"""Who may use what: a scope on a tool, a handler, a prompt or a handoff, against the scopes of a run.

The scopes of a run say who is asking (``RunConfig.scopes``). ``all`` is open to everybody; ``owner`` and
``admin`` are ranks, and a higher rank includes the lower one; any other name has to be granted as it is,
to an admin too. What is not known is denied.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from routelock.errors import ConfigError

__all__ = ["Scope", "checked_scope", "permits"]

Scope = str | Collection[str]
"""One name, or several of which any will do."""

_INCLUDED_BY = {"all": frozenset(("owner", "admin")), "owner": frozenset(("admin",))}


def permits(scope: Scope, granted: Collection[str]) -> bool:
    """Whether a run with these scopes may use what has this scope.

    Args:
        scope: of the tool, handler, prompt or handoff.
        granted: the scopes of the run; none means that nobody is known to be asking.
    """
    if scope == "all":
        return True
    names = (scope,) if isinstance(scope, str) else scope
    return any(_permitted(name, granted) for name in names)


def _permitted(name: str, granted: Collection[str]) -> bool:
    return name == "all" or name in granted or not _INCLUDED_BY.get(name, frozenset()).isdisjoint(granted)


def checked_scope(scope: object, where: str) -> Scope:
    """Return a declared scope, a list as a tuple.

    Raises:
        ConfigError: it is neither a name nor a list of names. ``where`` says whose it is.
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
