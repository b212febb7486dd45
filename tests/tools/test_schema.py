"""Python types as JSON, and errors that a model can act on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any, Literal, NotRequired, cast
from uuid import uuid4

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from routelock.errors import ConfigError, ModelBehaviorError
from routelock.tools.schema import JsonType, describe_error, plain_schema


class Reason(pydantic.BaseModel):
    reason: str


@dataclass
class Refund:
    amount: int
    tags: list[str] = field(default_factory=list[str])
    note: str | None = None


class Address(TypedDict):
    street: str
    city: NotRequired[str]


class Colour(Enum):
    RED = "red"


class Node(pydantic.BaseModel):
    name: str
    children: list[Node] = []


class Marked(pydantic.BaseModel):
    id: str = pydantic.Field(default_factory=lambda: uuid4().hex)


class Limits(pydantic.BaseModel):
    most: float = inf
    more: dict[str, str] = {}


class Tree(pydantic.BaseModel):
    notes: dict[str, str]
    branches: list[Tree] = []


class Free(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


# -- JsonType --


@pytest.mark.parametrize(
    ("of", "text", "value"),
    [
        (Reason, '{"reason": "late"}', Reason(reason="late")),
        (Refund, '{"amount": 5, "tags": ["a"], "note": null}', Refund(5, ["a"])),
        (Address, '{"street": "Main"}', {"street": "Main"}),
        (Node, '{"name": "a", "children": [{"name": "b"}]}', Node(name="a", children=[Node(name="b")])),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (list[str], '{"response": ["a"]}', ["a"]),
        (int, '{"response": 5}', 5),
        (Reason | None, '{"response": null}', None),
        (Colour, '{"response": "red"}', Colour.RED),
        (Literal["a", "b"], '{"response": "b"}', "b"),
    ],
)
def test_any_type_that_pydantic_knows_can_be_parsed(of: Any, text: str, value: Any) -> None:
    assert JsonType(of).parse(text) == value


@pytest.mark.parametrize("of", [Reason, Refund, Node, list[str], int, Reason | None, Colour])
def test_common_types_have_a_strict_schema(of: Any) -> None:
    made = JsonType(of)
    assert made.strict
    assert made.schema["type"] == "object"
    assert made.schema["additionalProperties"] is False


@pytest.mark.parametrize("of", [Address, dict[str, int], list[Any], Marked, Free, tuple[int, str]])
def test_other_types_fall_back_to_a_plain_schema(of: Any) -> None:
    made = JsonType(of)
    assert not made.strict
    assert made.schema["type"] == "object"


def test_type_that_is_not_an_object_is_wrapped() -> None:
    made = JsonType(list[str])
    assert made.wrapped
    assert made.schema["properties"] == {"response": {"type": "array", "items": {"type": "string"}}}


def test_a_wrapped_value_must_come_wrapped() -> None:
    """Strict parsing accepts only the exact types and converts nothing."""
    with pytest.raises(ModelBehaviorError, match="Expected a JSON object with response"):
        JsonType(list[str]).parse('["a"]')


def test_empty_container_is_a_default_in_the_schema() -> None:
    assert JsonType(Refund).schema["properties"]["tags"]["description"] == "(default: [])"


def test_infinite_default_is_text_in_the_schema() -> None:
    """No request with NaN or Infinity in it can be sent."""
    told = json.dumps(JsonType(Limits).schema["properties"], allow_nan=False)
    assert '"default": "Infinity"' in told


def test_recursive_type_has_an_object_as_root() -> None:
    """Providers refuse arguments whose schema is a reference."""
    made = JsonType(Tree)
    assert not made.strict
    assert made.schema["type"] == "object"
    assert "$ref" not in made.schema
    assert made.schema["properties"]["branches"]["items"] == {"$ref": "#/$defs/Tree"}
    assert made.schema["$defs"].keys() == {"Tree"}


def test_titles_that_only_repeat_names_are_left_out() -> None:
    assert "title" not in json.dumps(JsonType(Node).schema) + json.dumps(JsonType(Address).schema)


def test_strict_parsing_converts_nothing() -> None:
    made = JsonType(Reason)
    with pytest.raises(ModelBehaviorError, match="reason: Input should be a valid string"):
        made.parse('{"reason": 5}', strict=True)


def test_strict_parsing_reads_types_without_a_json_form() -> None:
    assert JsonType(Colour).parse('{"response": "red"}', strict=True) is Colour.RED
    assert JsonType(set[int]).parse('{"response": [1]}', strict=True) == {1}
    assert JsonType(Refund).parse('{"amount": 1}', strict=True) == Refund(1)


def test_lenient_parsing_is_the_default() -> None:
    assert JsonType(Refund).parse('{"amount": "5"}') == Refund(5)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"reason": ', '{"reason": "a",}', "{}", '{"reason": null}']
)
def test_mismatch_is_a_model_behavior_error(text: str) -> None:
    with pytest.raises(ModelBehaviorError) as caught:
        JsonType(Reason).parse(text)
    assert isinstance(caught.value.__cause__, pydantic.ValidationError)


@pytest.mark.parametrize("of", [Callable[[], None], object(), "Missing"])
def test_a_type_without_json_is_a_configuration_error(of: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be a JSON type"):
        JsonType(of)


# -- describe_error --


@pytest.mark.parametrize("types", [[Refund, Reason], (Refund, Reason)])
def test_list_of_types_has_an_error_that_says_union(types: Any) -> None:
    with pytest.raises(ConfigError, match=r"of several types make a union, such as A \| B\.$"):
        JsonType(types)


def complaint(of: Any, text: str) -> str:
    with pytest.raises(ModelBehaviorError) as caught:
        JsonType(of).parse(text)
    return str(caught.value)


def test_report_has_the_position_of_broken_json() -> None:
    told = complaint(Reason, '{"reason": "a",}')
    assert "trailing comma at line 1 column 16" in told
    assert 'You sent: {"reason": "a",}' in told


def test_report_has_the_path_of_a_wrong_value() -> None:
    told = complaint(Node, '{"name": "a", "children": [{"name": "b"}, {"name": []}]}')
    assert told.startswith("children[1].name: Input should be a valid string.")


def test_report_has_the_expected_fields() -> None:
    told = complaint(Refund, "{}")
    assert "amount: Field required." in told
    assert "Expected a JSON object with amount (integer, required), tags (array, required), note (" in told


def test_report_describes_choices_and_references() -> None:
    class Order(pydantic.BaseModel):
        size: Literal["s", "m"]
        only: Literal["x"]
        to: Reason
        rest: Any = None

    told = describe_error(ValueError("No"), "x", schema=plain_schema(pydantic.TypeAdapter(Order)))
    assert 'size (one of ["s", "m"], required), only (one of ["x"], required)' in told
    assert "to (object Reason, required)" in told
    assert told.endswith("rest (any).")


def test_report_describes_an_enum_by_its_values_and_not_as_an_object() -> None:
    class Paint(pydantic.BaseModel):
        colour: Colour
        other: Colour | None
        under: Node

    told = describe_error(ValueError("No"), "x", schema=plain_schema(pydantic.TypeAdapter(Paint)))
    assert 'colour (one of ["red"], required), other (one of ["red"] or null, required)' in told
    assert "under (object Node, required)" in told


def test_report_tells_the_types_of_a_union_apart() -> None:
    told = complaint(cast(Any, Refund | Reason), "{}")
    assert told.endswith("Expected a JSON object with response (object Refund or object Reason, required).")


def test_long_text_is_shown_by_its_two_ends() -> None:
    """The error of a cut-off reply is at its end."""
    told = complaint(Reason, '{"reason": "' + "x" * 5000 + " the end")
    assert '{"reason": "xxx' in told
    assert "the end (5020 characters)" in told


def test_only_the_first_of_many_problems_are_listed() -> None:
    told = complaint(list[int], json.dumps({"response": ["a"] * 50}))
    assert told.count("Input should be a valid integer") == 3
    assert "... and 47 more." in told


def test_very_many_problems_are_counted() -> None:
    assert "5000 values do not match the schema." in complaint(
        list[int], json.dumps({"response": ["a"] * 5000})
    )


def test_other_errors_are_shown_as_they_are() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    told = describe_error(caught.value, None)
    assert told.startswith("Expecting property name")
    assert told.endswith("You sent: (nothing)")


def test_report_says_that_no_fields_are_expected() -> None:
    assert describe_error(ValueError("No"), "{}", schema={}).endswith("Expected: {}, without any field.")


def test_half_a_surrogate_pair_does_not_reach_the_wire() -> None:
    complaint(Reason, '{"reason": \ud800}').encode()


JUNK = st.one_of(
    st.text(),
    st.text(alphabet=st.characters()).map(lambda text: text * 1000),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(alphabet=st.characters()),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(json.dumps),
)


@given(JUNK)
def test_the_description_is_bounded_and_can_be_sent(text: str) -> None:
    with contextlib.suppress(ModelBehaviorError):
        JsonType(Refund).parse(text)
        return
    told = complaint(Refund, text)
    assert 0 < len(told) <= 700
    told.encode()


def test_a_megabyte_of_junk_gives_a_short_answer() -> None:
    for text in (
        "x" * 1_000_000,
        "[" * 1_000_000,
        json.dumps({"k" * 1_000_000: 1}),
        json.dumps(["a"] * 250_000),
    ):
        assert len(complaint(Refund, text)) <= 700
