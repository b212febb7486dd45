"""Copies of data, with one function for each kind of data.

`detached` copies JSON data, where every mapping becomes a dict. `unshared` copies data of the app and keeps
its objects, such as a connection. `own_copy` copies the objects too, for a result that code of the app may
edit.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy, deepcopy
from typing import Any, TypeVar, cast

__all__ = ["detached", "own_copy", "unshared"]


T = TypeVar("T")


def detached(value: T) -> T:
    """Return a copy of JSON data that shares no dict and no list with it; any mapping becomes a dict."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return cast(T, {key: detached(each) for key, each in fields.items()})
    if isinstance(value, list):
        return cast(T, [detached(each) for each in cast("list[Any]", value)])
    return value


def own_copy(value: T) -> T:
    """Return a copy of a value of the app for code that may edit it; objects are copied too.

    An object that cannot be copied is returned as it is.
    """
    if isinstance(value, str):
        return value
    try:
        return deepcopy(value)
    except Exception:  # the app's own types may raise anything
        return unshared(value)


def unshared(value: T) -> T:
    """Return a copy of data that shares no dict, list or set with it; other objects are not copied.

    The data may refer to itself. Data that is nested deeper than Python can follow is returned as it is.
    """
    try:
        return cast(T, _unshared(value, {}))
    except RecursionError:
        return value


def _unshared(value: object, known: dict[int, object]) -> object:
    place = id(value)
    if place in known:
        return known[place]
    if isinstance(value, dict):
        mapping = known[place] = copy(cast("dict[object, object]", value))
        mapping.update({key: _unshared(each, known) for key, each in mapping.items()})
        return mapping
    if isinstance(value, list):
        made = known[place] = copy(cast("list[object]", value))
        made[:] = [_unshared(each, known) for each in made]
        return made
    if type(value) is tuple:
        return tuple(_unshared(each, known) for each in cast("tuple[object, ...]", value))
    return set(cast("set[object]", value)) if type(value) is set else value
