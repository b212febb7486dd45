"""Adds to the error about a name of another library what to write instead."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

__all__ = ["hint_attributes", "hint_keywords"]


Named = TypeVar("Named", bound=Callable[..., Any])


Class = TypeVar("Class", bound=type[Any])


def hint_keywords(names: Mapping[str, str]) -> Callable[[Named], Named]:
    """Return a decorator that adds a note to the TypeError of a wrong keyword.

    The note says what to write in place of a keyword of another library. The visible signature and the error
    stay those of Python. For a class, the decorator wraps ``__init__``.

    Args:
        names: the keywords of other libraries, each with what to write in its place. The empty name says what
            to write in place of positional arguments, where the function takes none.
    """

    def decorate(named: Named) -> Named:
        note = _with_note_of_init if inspect.isclass(named) else _with_note
        return cast("Named", note(named, names))

    return decorate


def _with_note_of_init(named: Any, names: Mapping[str, str]) -> Any:
    """Decorate the ``__init__`` of a class, and return the class."""
    named.__init__ = _with_note(named.__init__, names)
    return named


def _with_note(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """Return a wrapper of a function that adds the note if Python refuses the arguments of a call."""
    if inspect.iscoroutinefunction(function):
        return _AsyncCall(function, names)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            _add_note(error, function, kwargs, names)
            raise

    return call


class _AsyncCall:
    """A wrapper of an async function that adds notes.

    An ``async def`` wrapper would raise the error of a wrong keyword only at the ``await``. A plain function
    would not count as a coroutine function. `inspect` takes an object with these attributes for the function.

    Args:
        function: the async function.
        names: the keywords of other libraries, see `hint_keywords`.
    """

    def __init__(self, function: Callable[..., Any], names: Mapping[str, str]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._names = names
        self._shown = repr(function)
        self.__code__ = function.__code__
        self.__defaults__ = function.__defaults__
        self.__kwdefaults__ = function.__kwdefaults__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and return its coroutine."""
        try:
            return self._function(*args, **kwargs)
        except TypeError as error:
            _add_note(error, self._function, kwargs, self._names)
            raise

    def __repr__(self) -> str:
        return self._shown


def _add_note(
    error: TypeError, function: Callable[..., Any], given: Iterable[str], names: Mapping[str, str]
) -> None:
    traceback = error.__traceback__
    if traceback is None or traceback.tb_next is not None:  # the function has begun
        return
    ours = inspect.signature(function).parameters
    if "" in names and "positional argument" in str(error):
        error.add_note(f"Write {names['']}.")
    for name in given:
        if name in names:
            error.add_note(_advice(name, names))
        elif name not in ours:
            for near in difflib.get_close_matches(name, [*ours, *names], n=1, cutoff=0.8):
                if near in ours and "Did you mean" in str(error):
                    continue  # Python 3.13 adds this hint itself
                error.add_note(f"Did you mean {near}=? {_advice(near, names)}".strip())


def _advice(name: str, names: Mapping[str, str]) -> str:
    return f"Instead of {name}=, write {names[name]}." if name in names else ""


def hint_attributes(names: Mapping[str, str]) -> Callable[[Class], Class]:
    """Return a class decorator: the AttributeError for a name of another library says what to write.

    Type checkers do not see the added ``__getattr__``, so they still report every unknown attribute. It makes
    each access to an attribute three times slower: not for items and usage, of which runs have thousands.

    Args:
        names: the attributes of other libraries, each with what to write in its place.
    """

    def decorate(named: Class) -> Class:
        def missing(self: object, name: str) -> Any:
            if name in names:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}: write {names[name]}.")
            return object.__getattribute__(self, name)  # raises Python's own error, or the one of a property

        made: Any = named
        made.__getattr__ = missing
        return named

    return decorate
