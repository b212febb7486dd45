"""What a client answers is checked against the form of a tool's question."""

from __future__ import annotations

import logging
from typing import Any

import pydantic
import pytest

from routelock.serving.forms import Answer, Misfit, read_answer
from routelock.tools import Interruption, ToolQuestion

BRANCH: dict[str, Any] = {
    "type": "object",
    "properties": {"branch": {"enum": ["north", "south"]}, "days": {"type": "integer", "default": 7}},
    "required": ["branch"],
}


def waits(schema: dict[str, Any] | None = None, *, asks: bool = True) -> Interruption:
    """A call that waits, for an answer of this form."""
    question = ToolQuestion(message="Which?", schema=schema) if asks else None
    return Interruption(agent="A", name="lend", arguments="{}", call_id="c", question=question)


def form(**fields: Any) -> Interruption:
    """A call that asks for these fields."""
    return waits({"type": "object", "properties": fields})


def read(one: Interruption, given: object) -> Answer:
    return read_answer(one, given, key="approved", where="payload")


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (True, Answer(True)),
        (False, Answer(False)),
        ({"approved": True, "message": "Fine."}, Answer(True)),
        ({"approved": False, "message": "No."}, Answer(False, "No.")),
        ({"approved": False, "message": None}, Answer(False)),
    ],
)
@pytest.mark.parametrize("one", [waits(asks=False), waits(), form()])
def test_call_without_fields_takes_a_yes_or_no(one: Interruption, given: object, answer: Answer) -> None:
    assert read(one, given) == answer


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"branch": "north"}, Answer(True, content={"branch": "north"})),
        ({"branch": "north", "days": 3}, Answer(True, content={"branch": "north", "days": 3})),
        ({"approved": True, "branch": "south"}, Answer(True, content={"branch": "south"})),
        ({"approved": False, "message": "No."}, Answer(False, "No.")),
        (False, Answer(False)),
    ],
)
def test_form_takes_its_fields_or_a_no(given: object, answer: Answer) -> None:
    assert read(waits(BRANCH), given) == answer


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (None, "payload"),
        ([], "payload"),
        ("north", "payload"),
        ({}, "payload.branch"),
        (True, "payload.branch"),
        ({"approved": True}, "payload.branch"),
        ({"approved": "yes", "branch": "north"}, "payload.approved"),
        ({"approved": False, "message": 5}, "payload.message"),
        ({"branch": "west"}, "payload.branch"),
        ({"branch": ["north"]}, "payload.branch"),
        ({"branch": "north", "days": "3"}, "payload.days"),
        ({"branch": "north", "days": True}, "payload.days"),
        ({"branch": "north", "days": None}, "payload.days"),
        ({"branch": "north", "colour": "red"}, "payload.colour"),
        ({"branch": "north", "x" * 9_000: 1}, f"payload.{'x' * 192}"),
    ],
)
def test_misfit_names_the_field(given: object, where: str) -> None:
    with pytest.raises(Misfit) as caught:
        read(waits(BRANCH), given)
    assert caught.value.where == where
    assert str(caught.value).startswith(f"{where}: ")


def test_fields_of_an_answer_have_the_order_of_the_form() -> None:
    content = read(waits(BRANCH), {"days": 3, "branch": "north"}).content
    assert content is not None
    assert [*content] == ["branch", "days"]


@pytest.mark.parametrize("given", [None, {}, {"approved": "yes"}, {"approved": 1}, {"message": "No."}])
def test_only_a_clear_verdict_is_one(given: object) -> None:
    with pytest.raises(Misfit):
        read(waits(asks=False), given)


def test_a_field_of_the_name_of_the_verdict_is_a_field() -> None:
    one = form(approved={"type": "boolean"}, message={"type": "string"})
    said = {"approved": False, "message": "It was declined by the bank."}
    assert read(one, said) == Answer(True, content=said)
    assert read(one, False) == Answer(False)


@pytest.mark.parametrize(
    ("schema", "fits", "misfits"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab"], ["a", "abcd", 1, None]),
        ({"type": "string", "pattern": "^[a-z]+$"}, ["ab"], ["AB", ""]),
        ({"type": "number", "minimum": 0.5, "maximum": 2}, [1, 0.5, 2.0], [0, 3, "1", True]),
        ({"type": "integer", "minimum": 0.5, "exclusiveMaximum": 3}, [1, 2], [0, 3, 1.5, "1", True]),
        ({"type": "boolean"}, [True, False], [0, "true", None]),
        ({"type": "null"}, [None], [0, False]),
        ({"type": ["string", "null"]}, ["a", None], [0]),
        ({"const": "a"}, ["a"], ["b", None]),
        ({"type": "integer", "enum": [0, 1]}, [0, 1], [2, True]),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, ["a", "b"], ["c", "A"]),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [1.5, []]),
        ({"allOf": [{"type": "integer"}, {"enum": [1, 2]}]}, [1], [3, "1"]),
        (
            {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
            [["a"], ["a", "b"]],
            [[], ["c"], ["a", "a", "a"], "a", {"a": 1}],
        ),
        (
            {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
            [{"n": 1}, {"n": 1, "m": 2}],
            [{}, {"n": "1"}, [1]],
        ),
        ({"type": "object", "additionalProperties": False}, [{}], [{"n": 1}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"n": 1}], [{"n": "1"}]),
        ({"type": "date"}, ["anything"], []),
        ({"enum": []}, [], ["b"]),
        ({}, ["anything", None], []),
        (True, ["anything", None], []),
        ({"anyOf": [True]}, ["anything", None], []),
    ],
)
def test_value_is_checked_as_its_schema_says(schema: Any, fits: list[Any], misfits: list[Any]) -> None:
    one = form(value=schema)
    for value in fits:
        assert read(one, {"value": value}).content == {"value": value}
    for value in misfits:
        with pytest.raises(Misfit, match=r"^payload\.value"):
            read(one, {"value": value})


def test_misfit_names_the_place_within_a_field() -> None:
    one = form(lines={"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}})
    with pytest.raises(Misfit) as caught:
        read(one, {"lines": [{"n": 1}, {"n": "x"}]})
    assert caught.value.where == "payload.lines[1].n"


def test_schema_of_a_pydantic_model_is_checked_with_what_it_refers_to() -> None:
    class Place(pydantic.BaseModel):
        city: str
        near: list[Place] = []

    class Trip(pydantic.BaseModel):
        to: Place

    one = waits(Trip.model_json_schema())
    good = {"to": {"city": "Rome", "near": [{"city": "Ostia"}]}}
    assert read(one, good).content == good
    with pytest.raises(Misfit, match=r"^payload\.to\.near\[0\]\.city: "):
        read(one, {"to": {"city": "Rome", "near": [{"city": 1}]}})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "(?=a)"},
        {"type": "string", "minLength": -1},
        {"type": "string", "minLength": "x"},
        {"$ref": "#/elsewhere"},
        {"enum": 7},
    ],
)
def test_schema_that_cannot_be_read_is_logged_and_not_checked(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "routelock.serving"):
        assert read(form(value=schema), {"value": "b"}).approved
    assert "is not checked" in caplog.text


def test_an_answer_that_is_nested_too_deeply_is_a_misfit() -> None:
    schema = {"$defs": {"n": {"type": "object", "properties": {"in": {"$ref": "#/$defs/n"}}}}}
    one = waits({**schema, "type": "object", "properties": {"value": {"$ref": "#/$defs/n"}}})
    deep: dict[str, Any] = {"in": 7}
    for _ in range(400):
        deep = {"in": deep}
    with pytest.raises(Misfit, match=r"^payload\.value: is nested too deeply"):
        read(one, {"value": deep})


def test_a_pattern_takes_linear_time() -> None:
    one = form(value={"type": "string", "pattern": "^(a+)+$"})
    with pytest.raises(Misfit, match="does not match"):
        read(one, {"value": "a" * 100 + "!"})


def test_no_address_in_a_schema_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    assert read(form(value={"$ref": "http://127.0.0.1:9/schema"}), {"value": 1}).approved
    assert "is not checked" in caplog.text


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(Misfit) as caught:
        read(form(value={"type": "integer"}), {"value": "x" * 9_000})
    assert len(str(caught.value)) < 300
