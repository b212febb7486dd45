"""Functions of the app may be sync or async, plain, partial, methods or objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from routelock._callables import argument_count, name_of, resolve, takes
from routelock.errors import ConfigError

pytestmark = pytest.mark.anyio


def plain(value: int) -> int:
    return value + 1


async def coroutine(value: int) -> int:
    return value + 1


class Plain:
    def __call__(self, value: int) -> int:
        return value + 1

    def method(self, value: int) -> int:
        return value + 1


class Coroutine:
    async def __call__(self, value: int) -> int:
        return value + 1


KINDS: list[Callable[..., Any]] = [
    plain,
    coroutine,
    Plain(),
    Coroutine(),
    Plain().method,
    functools.partial(plain),
    functools.partial(coroutine),
    functools.partial(Coroutine()),
    lambda value: coroutine(value),
]


@pytest.mark.parametrize("function", KINDS)
async def test_every_kind_of_function_gives_its_value(function: Callable[..., Any]) -> None:
    assert await resolve(function(1)) == 2


async def test_resolve_raises_the_functions_exception() -> None:
    async def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await resolve(broken())


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain, "plain"),
        (functools.partial(plain), "plain"),
        (functools.partial(Plain()), "Plain"),
        (Plain(), "Plain"),
        (Plain().method, "method"),
        (lambda: None, "<lambda>"),
        (None, "NoneType"),
    ],
)
def test_names_for_messages(function: object, name: str) -> None:
    assert name_of(function) == name


def anything(*args: Any) -> None: ...
def optional(one: Any, two: Any = None) -> None: ...
def keyword(one: Any, *, two: Any) -> None: ...
def nothing() -> None: ...


@pytest.mark.parametrize(
    ("function", "counts"),
    [
        (plain, [1]),
        (coroutine, [1]),
        (Plain(), [1]),
        (Plain().method, [1]),
        (anything, [0, 1, 2, 3]),
        (optional, [1, 2]),
        (functools.partial(optional, None), [0, 1]),
        (functools.partial(optional, two=None), [1]),
        (keyword, []),
        (nothing, [0]),
    ],
)
def test_how_many_arguments_a_function_takes(function: Callable[..., Any], counts: list[int]) -> None:
    assert [count for count in range(4) if takes(function, count)] == counts


def test_builtin_without_a_signature_takes_any_count() -> None:
    assert takes(dict, 1)


def test_uncallable_value_is_named() -> None:
    with pytest.raises(ConfigError, match="5 must be a function, not int"):
        takes(5, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda: 0, 0),
        (lambda context: 0, 1),
        (lambda context=None: 0, 1),
        (lambda context, agent: 0, 2),
        (lambda context, style="formal": 0, 1),
        (lambda *all: 0, 2),
        (functools.partial(lambda a, b, c: 0, 1), 2),
    ],
)
def test_parameter_with_a_default_is_not_filled(function: Any, count: int) -> None:
    assert argument_count(function, 2) == count
