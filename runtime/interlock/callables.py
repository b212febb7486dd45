"""Calling what users hand us, whether it is sync or async, a function, a partial or an object."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar, cast

from interlock.errors import ConfigError

__all__ = ["MaybeAwaitable", "name_of", "resolve", "takes"]

T = TypeVar("T")

MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""A value, or something to await for it: callbacks may be sync or async."""


async def resolve(value: MaybeAwaitable[T]) -> T:
    """Return the value, awaiting it first if it is awaitable."""
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else value


def name_of(function: object) -> str:
    """Return a name for messages: of a function, a partial's function, or a callable object's class."""
    inner: object = getattr(function, "func", function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether ``function`` can be called with ``count`` positional arguments.

    Raises:
        ConfigError: ``function`` cannot be called at all.
    """
    if not callable(function):
        raise ConfigError(f"{function!r} must be a function, not {type(function).__name__}.")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have none
        return True
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        return False
    return True
