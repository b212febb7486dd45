"""Repairs of JSON data that cannot be sent."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock._sendable import finite, integral, is_utf8, sendable, sendable_json

TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def test_what_is_no_number_becomes_null() -> None:
    assert finite({"a": [1.5, float("nan")], "b": {"c": float("inf")}}) == {
        "a": [1.5, None],
        "b": {"c": None},
    }


def test_what_has_numbers_only_stays_the_same_object() -> None:
    value = {"a": [1.5, None, True, "x"], "b": {}}
    assert finite(value) is value


@given(DATA)
def test_sendable_data_is_utf8_and_whole_data_stays_itself(data: Any) -> None:
    made = sendable(data)
    written = json.dumps(made, ensure_ascii=False)
    assert is_utf8(written)
    if is_utf8(json.dumps(data, ensure_ascii=False)):
        assert made is data


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        (r'"\ud83d\ude00"', r'"\ud83d\ude00"'),
        (r'"\ud83d"', r'"\ufffd"'),
        (r'"\\ud83d"', r'"\\ud83d"'),
        ('"\ud83d"', '"\ufffd"'),
    ],
    ids=["a pair", "half a pair", "an escaped backslash", "half a pair, not escaped"],
)
def test_half_a_pair_in_json_text_is_replaced(text: str, fit: str) -> None:
    assert sendable_json(text) == fit


def test_whole_floats_become_ints() -> None:
    assert integral({"a": [7.0, 7.5, math.inf]}) == {"a": [7, 7.5, math.inf]}
    assert isinstance(integral([7.0]), list)
