"""JSON of vendors is read leniently, and written for every reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.vendor_json import encode_json, json_object, json_or_none


def test_object_of_a_text() -> None:
    assert json_object('{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", ["[1]", "null", "<html>", "[" * 100_000])
def test_text_without_an_object(text: str) -> None:
    assert json_object(text) == {}


def test_half_a_surrogate_pair_can_be_written() -> None:
    assert json_object(encode_json({"a": "\ud83d"})) == {"a": "\ud83d"}


def test_text_that_is_not_json() -> None:
    assert json_or_none("<html>") is None
    assert json_or_none(b"\xff") is None
    assert json_or_none("[1]") == [1]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.builds(json.dumps, VALUES, indent=st.none() | st.just(1), ensure_ascii=st.just(True))


def by_the_standard_library(text: str) -> object:
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


@given(
    text=TEXTS, place=st.integers(0, 40), put=st.sampled_from(["", "{", "1e999", "-", "\x00", " ", "é", "\\"])
)
def test_json_is_read_like_the_standard_library_does(text: str, place: int, put: str) -> None:
    for each in (text, text[:place] + put + text[place:], text[place:]):
        assert repr(json_or_none(each)) == repr(by_the_standard_library(each))
        assert repr(json_or_none(each.encode())) == repr(by_the_standard_library(each))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300 + "]" * 300,
        "[" * 100_000,
        '{"a": 1, "a": 2}',
        "1" * 4000,
        "NaN",
        "[Infinity, -Infinity]",
        "",
    ],
)
def test_odd_json_is_read_like_the_standard_library_does(text: str) -> None:
    assert json_or_none(text) == by_the_standard_library(text)
