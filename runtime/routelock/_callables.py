"""Calling what users hand us, whether it is sync or async, a function, a partial or an object."""

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
    "call_user_code",
    "callback_errors",
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
    "wants",
]


T = TypeVar("T")

MaybeAwaitable: TypeAlias = T | Awaitable[T]
"""A value, or something to await for it: callbacks may be sync or async."""


async def resolve(value: MaybeAwaitable[T]) -> T:
    """Return the value, awaiting it first if it is awaitable."""
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else value


async def call_user_code(what: str, function: Callable[..., Any], *args: object) -> Any:
    """Call a function of the app, sync or async, and return what it gave.

    Args:
        what: names the function in the error, such as ``"The context function of the dev page"``.
        function: what is called.
        args: passed by position.

    Raises:
        CallbackError: the function raised.
    """
    with callback_errors(what):
        return await resolve(function(*args))


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
def callback_errors(what: str) -> Generator[None]:
    """Turn an exception of the app's own function into a `CallbackError` that says which it was."""
    try:
        yield
    except RoutelockError:
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        raise CallbackError(f"{what} raised {type(error).__name__}: {error_text(error)}") from error


def is_error(error: BaseException) -> bool:
    """Whether what came out of the app's code is a failure of that code, and not a word from outside."""
    return isinstance(error, Exception) or is_spurious_cancel(error)


def is_spurious_cancel(error: BaseException) -> bool:
    """Whether asyncio's CancelledError came out of the app's code although nobody cancelled this task.

    It happens when a function awaits something of its own that was cancelled. Letting it pass would end
    the run as if it had been cancelled, or lose a tool's answer without a word. Who cancels a
    task leaves a mark on it, ``Task.cancelling()``: https://docs.python.org/3/library/asyncio-task.html.
    Trio has no such thing, because a function cannot make its ``Cancelled`` itself.
    """
    asyncio: Any = sys.modules.get("asyncio")  # loaded if it runs; not worth loading to ask
    if asyncio is None or not isinstance(error, asyncio.CancelledError):
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # another event loop
        return False
    return task is not None and not task.cancelling()


def error_text(error: BaseException) -> str:
    """Return the text of an exception, also of one whose class cannot put itself into words."""
    try:
        return str(error)
    except Exception as second:
        return f"(its message raised {type(second).__name__})"


_EMPTY: Any = inspect.Parameter.empty


def is_method(
    function: Callable[..., Any], declared: Sequence[inspect.Parameter], first: str = "self"
) -> bool:
    """Whether this is a function in the body of a class, which is given the instance, or else the class."""
    if not inspect.isfunction(function) or not declared:
        return False
    owner = function.__qualname__.rpartition(".")[0]
    is_first = declared[0].name == first and declared[0].annotation is _EMPTY
    return is_first and bool(owner) and not owner.endswith("<locals>")


def types_in(function: Callable[..., Any], annotation: Any) -> list[type | str]:
    """Return the classes that an annotation of ``function`` names, alone or in a union.

    What was imported for type checkers only has to be known by its name, so the name is returned.
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
    """Return an annotation with the names in it looked up where the function was written."""
    if annotation is _EMPTY:
        return Any

    def one() -> None: ...

    one.__annotations__ = {"it": annotation}
    return get_type_hints(one, globalns=_globals(function), include_extras=True)["it"]


def unbound(function: Callable[..., Any]) -> Any:
    """Return the function inside a partial."""
    return function.func if isinstance(function, functools.partial) else function


def _globals(function: Any) -> dict[str, Any]:
    function = unbound(function)
    if not inspect.isroutine(function):
        function = function.__init__ if inspect.isclass(function) else type(function).__call__
    return cast("dict[str, Any]", getattr(inspect.unwrap(function), "__globals__", {}))
