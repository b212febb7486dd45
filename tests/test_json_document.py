"""JSON as bytes: what is written is what is read, and nothing else is."""

from __future__ import annotations

import gzip
import sys
from collections import OrderedDict
from enum import IntEnum
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, TypeAdapter, ValidationError

from routelock._json_document import MAX_BYTES, check_json, decode, encode, misfit_text


class Level(IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1, 10**30, 1.5, -0.0, "", "é\u2028\x00😀", [], {}, [[{"": [None]}]], OrderedDict(a=1)],
)
def test_what_json_gives_back_passes(value: Any) -> None:
    check_json(value)
    assert decode(encode(value)) == value


def test_a_kind_of_number_comes_back_as_an_equal_number() -> None:
    check_json({"level": Level.HIGH})
    assert decode(encode({"level": Level.HIGH})) == {"level": Level.HIGH}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ((1,), "^the whole: tuple is no JSON type; use a list$"),
        ({"a": {"b": [0, {1}]}}, r"^a\.b\[1\]: set is no JSON type; use a list$"),
        ({"a": 1 + 2j}, "^a: complex is no JSON type$"),
        ({"a\nb": object()}, r"^a\\nb: object is no JSON type$"),
        ({"k" * 200: b""}, f"^{'k' * 60}: bytes is no JSON type$"),
        ([float("nan")], r"^\[0\]: nan is no JSON number$"),
        ({True: 1}, "^the whole: a key must be text, not bool$"),
        ([["\udc80"]], r"^\[0\]\[0\]: half a surrogate pair"),
    ],
)
def test_what_json_would_change_is_named_with_its_place(value: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_json(value)


def test_the_depth_counts_lists_and_dicts() -> None:
    check_json([[1]], max_depth=2)
    with pytest.raises(ValueError, match="lists and objects are nested more than 2 deep"):
        check_json([[[]]], max_depth=2)


def test_how_deep_the_caller_is_does_not_matter_to_the_check() -> None:
    value: Any = 1
    for _ in range(sys.getrecursionlimit() * 2):
        value = [value]
    check_json(value, max_depth=sys.getrecursionlimit() * 3)


@pytest.mark.parametrize("limit", [100, 10**6])
def test_what_is_too_deep_for_the_parser_is_an_error_like_any_other(limit: int) -> None:
    with pytest.raises(ValueError, match="are nested more than"):
        decode(b"[" * 200_000 + b"]" * 200_000, max_depth=limit)


def test_a_key_that_is_there_twice_can_be_allowed() -> None:
    assert decode(b'{"a":1,"a":2}', unique_keys=False) == {"a": 2}


def test_an_escaped_pair_is_one_character() -> None:
    """As writers send it that escape all that is not ASCII."""
    assert decode(b'"\\ud83d\\ude00"') == "😀"


def test_exactly_the_limit_is_allowed() -> None:
    data = b'"' + b"x" * 98 + b'"'
    assert decode(data, max_bytes=100) == decode(gzip.compress(data), max_bytes=100) == "x" * 98


def test_many_values_are_counted_outside_of_text_only() -> None:
    limit = 1_000_000
    text = "[,{" * limit
    assert decode(encode(text)) == text
    assert decode(b"[" + b"1," * (limit - 1) + b"1]", max_bytes=MAX_BYTES)
    with pytest.raises(ValueError, match="more than 1000000 values"):
        decode(b"[" + b"1," * limit + b"1]")
    with pytest.raises(ValueError, match="more than 1000000 values"):
        encode([1] * (limit + 1))


def test_a_text_without_an_end_does_not_take_for_ever() -> None:
    """Nor does one of escaped quotes only, of which each could begin a text."""
    with pytest.raises(ValueError, match="Unterminated"):
        decode(b'"' + b'\\",' * 2_000_000)


@given(st.recursive(st.floats() | st.text(st.characters()) | st.tuples(), st.lists, max_leaves=5))
def test_what_passes_the_check_survives(value: Any) -> None:
    """Whatever it is."""
    try:
        check_json(value)
    except ValueError:
        return
    assert decode(encode(value)) == value


def test_misfits_name_the_places_and_no_value() -> None:
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(dict[str, int]).validate_python({"a": "s3cret", "b": "s3cret", "c": 1})
    assert misfit_text(raised.value, 1) == (
        "a: Input should be a valid integer, unable to parse string as an integer; and 1 more"
    )


def test_what_a_validator_says_is_not_shown() -> None:
    def refuse(value: str) -> str:
        raise ValueError(value)

    with pytest.raises(ValidationError) as raised:
        TypeAdapter(Annotated[str, AfterValidator(refuse)]).validate_python("s3cret")
    assert misfit_text(raised.value) == "the whole: value error"
