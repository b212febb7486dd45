"""Calls functions of the app, sync or async, and inspects their signatures and annotations."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import (
    Annotated,
    Any,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from routelock.errors import CallbackError, ConfigError, RoutelockError

__all__ = [
    "MaybeAwaitable",
    "argument_count",
    "call_user_code",
    "callback_errors",
    "declared_parameters",
    "error_text",
    "hint_of",
    "is_error",
    "is_method",
    "is_spurious_cancel",
    "name_of",
    "resolve",
    "takes",
    "types_in",
    "unbound",
]


T = TypeVar("T")

MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""A value, or an awaitable of it: functions of the app may be sync or async."""


async def resolve(value: MaybeAwaitable[T]) -> T:
    """Return the value, awaiting it first if it is awaitable."""
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else value


async def call_user_code(what: str, function: Callable[..., Any], *args: object) -> Any:
    """Call a function of the app, sync or async, and return its result.

    Args:
        what: names the function in the error, such as ``"The context function of the dev page"``.
        function: the function to call.
        args: passed by position.

    Raises:
        CallbackError: the function raised.
    """
    with callback_errors(what):
        return await resolve(function(*args))


def name_of(function: object) -> str:
    """Return a name for messages: of a function, of a partial's function, or of a callable object's class."""
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
    except ValueError:  # some builtins have no signature
        return True
    try:
        signature.bind(*(None,) * count)
    except TypeError:
        return False
    return True


def argument_count(function: Callable[..., Any], most: int) -> int:
    """Return how many positional arguments to pass to ``function``, at most ``most``.

    The function gets every argument that it requires, and at least one if it takes any. Its other parameters
    keep their defaults.
    """
    needed = next((count for count in range(most + 1) if takes(function, count)), most)
    variadic = takes(function, most + 10)
    return most if variadic else max(needed, 1 if takes(function, 1) else 0)


@contextmanager
def callback_errors(what: str) -> Generator[None]:
    """Turn an exception from a function of the app into a `CallbackError` that names the function."""
    try:
        yield
    except RoutelockError:
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        said = f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")
        raise CallbackError(f"{what} raised {said}") from error


def is_error(error: BaseException) -> bool:
    """Whether an exception from the app's code is a failure of that code, and not a cancellation or exit."""
    return isinstance(error, Exception) or is_spurious_cancel(error)


def is_spurious_cancel(error: BaseException) -> bool:
    """Whether asyncio's CancelledError came out of the app's code although this task was not cancelled.

    A function raises it when it awaits a cancelled task of its own. Passed on, the error would end the run as
    cancelled, or lose a tool's result. ``Task.cancelling()`` tells whether this task was cancelled, see
    https://docs.python.org/3/library/asyncio-task.html.
    Trio has no such case, because functions cannot create its ``Cancelled``.
    """
    asyncio: Any = sys.modules.get("asyncio")  # where an asyncio loop runs, asyncio is imported
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the event loop is not asyncio's
        return False
    return task is not None and not task.cancelling()


def error_text(error: BaseException) -> str:
    """Return the text of an exception, even if its ``__str__`` raises."""
    try:
        return str(error)
    except Exception as second:
        return f"(its message raised {type(second).__name__})"


_EMPTY: Any = inspect.Parameter.empty


def declared_parameters(
    function: Callable[..., Any], owner: str, *, follow_wrapped: bool = True
) -> list[inspect.Parameter]:
    """Return the parameters of a function, without those that a partial has bound.

    Args:
        function: any callable.
        owner: the owner of the function, for the error.
        follow_wrapped: whether to read the signature of the function inside a wrapper.

    Raises:
        ConfigError: the signature cannot be read.
    """
    try:
        found = inspect.signature(function, follow_wrapped=follow_wrapped).parameters.values()
    except (ValueError, TypeError, NameError) as error:
        raise ConfigError(
            f"{owner}: the signature of {name_of(function)!r} cannot be read: {error}. Wrap it in a function."
        ) from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in found if each.name not in bound]


def is_method(
    function: Callable[..., Any], declared: Sequence[inspect.Parameter], first: str = "self"
) -> bool:
    """Whether a function was defined in the body of a class and its first parameter is named ``first``."""
    if not inspect.isfunction(function) or not declared:
        return False
    owner = function.__qualname__.rpartition(".")[0]
    is_first = declared[0].name == first and declared[0].annotation is _EMPTY
    return is_first and bool(owner) and not owner.endswith("<locals>")


def types_in(function: Callable[..., Any], annotation: Any) -> list[type | str]:
    """Return the classes that an annotation of ``function`` names, alone or in a union.

    A class that was imported for type checkers only is returned as its name.
    """
    try:
        hint = hint_of(function, annotation)
    except Exception:
        return _names_in(str(annotation))
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    origins = [get_origin(each) or each for each in choices]
    return [each for each in origins if isinstance(each, type)]


def _names_in(annotation: str) -> list[type | str]:
    bare = re.sub(r"^(\w+\.)*Optional\[(.*)\]$", r"\2", annotation.strip("'\" "))
    while (inner := re.sub(r"\[[^\[\]]*\]", "", bare)) != bare:
        bare = inner
    return [each.strip("'\" ").rpartition(".")[2] for each in bare.split("|")]


def hint_of(function: Callable[..., Any], annotation: Any) -> Any:
    """Return an annotation with its names resolved in the module of the function."""
    if annotation is _EMPTY:
        return Any

    def one() -> None: ...

    one.__annotations__ = {"it": annotation}
    return get_type_hints(one, globalns=_globals(function), include_extras=True)["it"]


def unbound(function: Callable[..., Any]) -> Any:
    """Return the function inside a partial; any other function as it is."""
    return function.func if isinstance(function, functools.partial) else function


def _globals(function: Any) -> dict[str, Any]:
    function = unbound(function)
    if not inspect.isroutine(function):
        function = function.__init__ if inspect.isclass(function) else type(function).__call__
    return cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
