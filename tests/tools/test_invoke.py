"""Results and failures in words."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock._callables import is_spurious_cancel
from routelock.errors import ConfigError
from routelock.tools.outcome import NoTextError, to_text
from routelock.tools.signature import is_async


class Model(pydantic.BaseModel):
    name: str


@dataclass
class Point:
    x: int


class Size(StrEnum):
    SMALL = "small"


class Colour(Enum):
    RED = "red"


class Table:
    def __str__(self) -> str:
        return "a | b"


class Silent:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, ""),
        (Size.SMALL, "small"),
        (Colour.RED, '"red"'),
        (5, "5"),
        (1.5, "1.5"),
        (math.nan, '"NaN"'),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ([None], "[null]"),
        (("text", {"tokens": 5}), '["text",{"tokens":5}]'),
        ({1}, "[1]"),
        (Model(name="a"), '{"name":"a"}'),
        ([Model(name="a")], '[{"name":"a"}]'),
        (Point(1), '{"x":1}'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (Decimal("1.10"), '"1.10"'),
        (b"bytes", "bytes"),
        (Table(), "a | b"),
        ({"table": Table()}, '{"table":"a | b"}'),
        ([Table()], '["a | b"]'),
        ([{"type": "text", "text": "a"}], '[{"type":"text","text":"a"}]'),
    ],
)
def test_result_of_a_tool_becomes_text(value: Any, text: str) -> None:
    assert to_text(value) == text


def test_half_a_surrogate_pair_is_replaced() -> None:
    """A file name that is not UTF-8 must not break the request that shows it."""
    to_text("name \udcff").encode()


def test_half_a_surrogate_pair_in_a_list_is_replaced() -> None:
    """As in a list of files, one of which has a name that is not UTF-8."""
    found = {"files": ["a.txt", "b\udcff.txt"], "sizes": (1, math.inf), "\ud800": None}
    assert to_text(found) == '{"files":["a.txt","b\ufffd.txt"],"sizes":[1,"Infinity"],"\ufffd":null}'


def a_circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value", [Silent(), [Silent()], b"\xff", {"a": b"\xff"}, a_circle(), object, print, ValueError("x")]
)
def test_result_without_a_text_form_raises(value: Any) -> None:
    """Above all no `<object at 0x7f...>`, which differs in every process."""
    with pytest.raises(NoTextError):
        to_text(value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_data_becomes_json_that_can_be_sent(value: Any) -> None:
    text = to_text([value])
    text.encode()
    json.loads(text)


class AsyncObject:
    async def __call__(self) -> None: ...


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    "function", [coroutine, functools.partial(coroutine), AsyncObject(), functools.partial(AsyncObject())]
)
def test_async_callables_are_recognised(function: Any) -> None:
    assert is_async(function)


@pytest.mark.parametrize("function", [print, Point, Table, functools.partial(print), lambda: None])
def test_sync_callables_are_recognised(function: Any) -> None:
    assert not is_async(function)


def test_a_generator_is_a_configuration_error() -> None:
    def numbers() -> Any:
        yield 1

    async def later() -> Any:
        yield 1

    for function in (numbers, later, functools.partial(numbers)):
        with pytest.raises(ConfigError, match="is a generator, but a tool returns one result"):
            is_async(function)


def test_object_that_is_not_callable_is_a_configuration_error() -> None:
    not_callable: Any = 5
    with pytest.raises(ConfigError, match="5 is a int; pass a function to make a tool"):
        is_async(not_callable)


def test_only_a_cancellation_can_be_one_from_within() -> None:
    assert not is_spurious_cancel(ValueError())
    assert not is_spurious_cancel(KeyboardInterrupt())
