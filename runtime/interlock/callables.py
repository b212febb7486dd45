"""Calling what users hand us, whether it is sync or async, a function, a partial or an object."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

from interlock.errors import CallbackError, ConfigError, InterlockError

__all__ = ["MaybeAwaitable", "name_of", "resolve", "takes", "users_code", "wants"]

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


def wants(function: Callable[..., Any], most: int) -> int:
    """Return how many positional arguments, up to ``most``, ``function`` is to be given.

    Those that it requires, and at least one if it takes one. A parameter with a default of its own is
    not filled unasked: it is the user's.
    """
    needed = next((count for count in range(most + 1) if takes(function, count)), most)
    variadic = takes(function, most + 10)
    return most if variadic else max(needed, 1 if takes(function, 1) else 0)


@contextmanager
def users_code(what: str) -> Generator[None]:
    """Turn an exception of the app's own function into a `CallbackError` that says which it was."""
    try:
        yield
    except InterlockError:
        raise
    except Exception as error:
        raise CallbackError(f"{what} raised {type(error).__name__}: {error}") from error
