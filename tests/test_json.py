"""JSON in one line, and values that pydantic lets pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter

from routelock._json import AnyObject, OrDefault, dicts_in, json_line, recordable
from routelock.history.messages import Message


@pytest.mark.parametrize(("value", "dicts"), [([{"a": 1}, "b", None], [{"a": 1}]), ("text", []), (None, [])])
def test_dicts_in_foreign_data(value: object, dicts: object) -> None:
    assert dicts_in(value) == dicts


def test_json_line_escapes_the_line_separators_of_unicode() -> None:
    assert json_line({"a": "x\u2028y\né"}) == '{"a": "x\\u2028y\\né"}'


@dataclass
class Stored:
    message: Annotated[Message, AnyObject()]
    count: Annotated[int, OrDefault(0, ge=0)] = 0
    name: Annotated[str, OrDefault("")] = ""


STORED = TypeAdapter(Stored)


@pytest.mark.parametrize("wrong", [{"count": -1}, {"count": "5"}, {"count": None}, {"name": 7}])
def test_value_that_does_not_fit_is_read_as_the_default(wrong: dict[str, Any]) -> None:
    read = STORED.validate_python({"message": {}, "count": 5, "name": "x", **wrong})
    (name,) = wrong
    assert getattr(read, name) == {"count": 0, "name": ""}[name]


def test_any_object_keeps_keys_that_its_type_does_not_know() -> None:
    assert STORED.validate_python({"message": {"unknown": 1}}).message == {"unknown": 1}


@dataclass
class Found:
    text: str
    score: float = 0.5


HALF = "half \ud83d"


@pytest.mark.parametrize(
    ("value", "recorded"),
    [
        ({HALF: [HALF, 1]}, {"half \ufffd": ["half \ufffd", 1]}),
        (Found(HALF, float("nan")), {"text": "half \ufffd", "score": "NaN"}),
        ({"found": (Found(HALF),)}, {"found": [{"text": "half \ufffd", "score": 0.5}]}),
        (ValueError(HALF), "half \ufffd"),
    ],
)
def test_half_a_character_does_not_make_text_of_data(value: object, recorded: object) -> None:
    assert recordable(value) == recorded


def test_data_that_refers_to_itself_is_recorded_as_text() -> None:
    circle: list[object] = [HALF]
    circle.append(circle)
    assert recordable(circle) == repr(circle)
