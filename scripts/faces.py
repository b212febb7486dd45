"""For the site: which names of the packages its reference shows. mkdocs.yml names this file.

A room may have a file and a public name that are called the same: `routelock.handoffs.handoff` is a function
to those who import it, and a file to griffe, which reads the docstrings. Here griffe is given the function.
It also forgets the variables and the imported names that a module does not export.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import griffe

__all__ = ["Faces"]


class Faces(griffe.Extension):
    """Makes modules look as those who import from them see them."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Look at a package, once all of its files were read."""
        loader.resolve_aliases()  # while everything is still found by its path
        hidden = [
            (module, name, loader.modules_collection[module.imports[name]])
            for module in _modules(pkg)
            for name, member in module.members.items()
            if member.kind is griffe.Kind.MODULE and name in module.imports
        ]
        for module in _modules(pkg):
            _forget_inner_names(module)
        for face, name, target in hidden:
            face.members[name] = griffe.Alias(name, target, parent=face)


def _modules(package: griffe.Module) -> Iterator[griffe.Module]:
    yield package
    for member in package.members.values():
        if isinstance(member, griffe.Module):
            yield from _modules(member)


def _forget_inner_names(module: griffe.Module) -> None:
    inner = [
        name
        for name, member in module.members.items()
        if (member.is_alias or member.kind is griffe.Kind.ATTRIBUTE) and name != "__all__"
        if module.exports and name not in module.exports
    ]
    for name in inner:
        del module.members[name]
