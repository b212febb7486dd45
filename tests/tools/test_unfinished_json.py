"""The value of a JSON text that a model is still writing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NotRequired

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, field_validator
from typing_extensions import TypedDict

from routelock.tools.schema import JsonType


class Item(BaseModel):
    name: str
    count: int


class Order(BaseModel):
    title: str
    items: list[Item] = Field(default_factory=lambda: [])
    note: str = ""


@dataclass
class Point:
    x: int
    y: int = 0


class Draft(TypedDict):
    title: NotRequired[str]
    words: NotRequired[list[str]]


def values(of: Any, text: str) -> list[Any]:
    """Return the different values on the way to a text, and the value at its end."""
    of = JsonType(of)
    found: list[Any] = []
    for end in range(len(text)):
        value = of.parse_partial(text[:end])
        if value is not None and value not in found[-1:]:
            found.append(value)
    whole = of.parse(text)
    return found if found[-1:] == [whole] else [*found, whole]


def test_texts_and_lists_grow() -> None:
    text = '{"title": "ab", "items": [{"name": "x", "count": 12}, {"name": "y", "count": 3}], "note": "c"}'
    x, y = Item(name="x", count=12), Item(name="y", count=3)
    assert values(Order, text) == [
        Order(title=""),
        Order(title="a"),
        Order(title="ab"),
        Order(title="ab", items=[x]),
        Order(title="ab", items=[x, y]),
        Order(title="ab", items=[x, y], note="c"),
    ]


def test_nothing_comes_before_the_fields_without_a_default() -> None:
    assert values(Item, '{"name": "x", "count": 12}') == [Item(name="x", count=12)]


def test_a_number_counts_when_it_cannot_go_on() -> None:
    assert values(Point, '{"x": 12, "y": -3}') == [Point(12), Point(12, -3)]


def test_types_that_are_no_object_are_unwrapped() -> None:
    assert values(list[int], '{"response": [1, 23, 4]}') == [[], [1], [1, 23], [1, 23, 4]]


def test_keys_that_are_not_required_come_one_by_one() -> None:
    assert values(Draft, '{"title": "a", "words": ["b"]}') == [
        {},
        {"title": ""},
        {"title": "a"},
        {"title": "a", "words": []},
        {"title": "a", "words": [""]},
        {"title": "a", "words": ["b"]},
    ]


def test_a_text_that_is_not_valid_yet_is_left_out() -> None:
    class Plan(BaseModel):
        title: str
        kind: Literal["short", "long"] = "short"
        due: date | None = None

    found = values(Plan, '{"title": "a", "kind": "long", "due": "2026-03-01"}')
    assert [(each.kind, str(each.due)) for each in found[1:]] == [
        ("short", "None"),
        ("long", "None"),
        ("long", "2026-03-01"),
    ]


def test_what_is_not_valid_before_the_end_gives_nothing() -> None:
    assert JsonType(Order).parse_partial('{"items": [{"name": 1, "count": 1}], "title": "a') is None


def test_a_branch_of_a_union_is_left_out_until_it_is_valid() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]

    class House(BaseModel):
        name: str
        pets: list[Cat | Dog] = Field(default_factory=lambda: [])

    text = '{"name": "", "pets": [{"kind": "dog"}, {"kind": "cat", "lives": 9}]}'
    assert [len(each.pets) for each in values(House, text)] == [0, 1, 2]


def test_a_field_goes_by_its_alias() -> None:
    class Named(BaseModel):
        a: int = Field(alias="A")
        b: int = Field(alias="B", default=0)

    assert [each.b for each in values(Named, '{"A": 1, "B": 2}')] == [0, 2]


def test_a_validator_that_fails_on_half_a_value_does_no_harm() -> None:
    class Shout(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def check(cls, text: str) -> str:
            return text[: text.index("!")]  # a ValueError, which pydantic knows ...

    class Second(Shout):
        @field_validator("text")
        @classmethod
        def check(cls, text: str) -> str:
            return text[:2] + text[2]  # ... and an IndexError, which it lets through

    assert [each.text for each in values(Shout, '{"text": "ab!"}')] == ["ab"]
    assert [each.text for each in values(Second, '{"text": "abc"}')] == ["abc"]


@pytest.mark.parametrize("text", ["", "{", "x", "[", '{"title": "a"}', '{"title": "a"} ', '{"title": 1, '])
def test_nothing_is_there(text: str) -> None:
    assert JsonType(Order).parse_partial(text) is None


def test_many_problems_are_not_looked_at() -> None:
    text = json.dumps({"title": "a", "items": [{}] * 200})[:-1]
    assert JsonType(Order).parse_partial(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def values_of_any() -> JsonType[Any]:
    of: Any = Any
    return JsonType(of)


@given(st.fixed_dictionaries({"response": JSON}), st.data())
def test_any_beginning_of_any_json_gives_a_value_or_none(document: Any, data: st.DataObject) -> None:
    text = json.dumps(document, ensure_ascii=data.draw(st.booleans()))
    values_of_any().parse_partial(text[: data.draw(st.integers(0, len(text)))])


@given(
    st.lists(st.builds(Item, name=st.text(max_size=3), count=st.integers()), max_size=3),
    st.text(max_size=5),
    st.data(),
)
def test_a_value_is_a_beginning_of_the_whole(items: list[Item], title: str, data: st.DataObject) -> None:
    whole = Order(title=title, items=items)
    try:
        text = whole.model_dump_json(exclude={"note"})
    except ValidationError:  # half a surrogate pair
        return
    part = JsonType(Order).parse_partial(text[: data.draw(st.integers(0, len(text)))])
    if part is not None:
        assert whole.title.startswith(part.title)
        assert part.items == whole.items[: len(part.items)]
