"""The strict form keeps the meaning of a schema, or there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.tools.schema import strict_schema

EMPTY = {"additionalProperties": False, "type": "object", "properties": {}, "required": []}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def strict_property(schema: dict[str, Any]) -> Any:
    strict = strict_schema(an_object(it=schema))
    return None if strict is None else strict["properties"]["it"]


@pytest.mark.parametrize("schema", [{}, {"type": "object", "properties": {}}, EMPTY])
def test_no_arguments_have_exactly_one_strict_form(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) == EMPTY


def test_strict_objects_are_closed_and_fully_required() -> None:
    schema = an_object(inner=an_object(a={"type": "string"}), many={"type": "array", "items": an_object()})
    assert strict_schema(schema) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["inner", "many"],
        "properties": {
            "inner": {
                "type": "object",
                "additionalProperties": False,
                "required": ["a"],
                "properties": {"a": {"type": "string"}},
            },
            "many": {"type": "array", "items": EMPTY},
        },
    }


def test_a_default_moves_into_the_description() -> None:
    schema = {
        "type": "object",
        "properties": {"limit": {"type": "integer", "default": 10, "description": "How many"}},
    }
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["required"] == ["limit"]
    assert strict["properties"]["limit"] == {"type": "integer", "description": "How many (default: 10)"}


def test_null_default_is_not_described() -> None:
    null_or_text = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"note": {**null_or_text, "default": None}}}
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["properties"]["note"] == null_or_text


def test_optional_property_without_default_has_no_strict_form() -> None:
    """Demanding it would make the model invent a value."""
    assert strict_schema({"type": "object", "properties": {"note": {"type": "string"}}}) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {}, "patternProperties": {"^a": {}}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"type": "string", "not": {"const": "a"}},
        {"type": "string", "nullable": True},
        {"type": "string", "someKeyword": 1},
        {"allOf": [{"type": "string"}, {"minLength": 2}]},
        {"allOf": []},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"type": "object", "anyOf": [{"type": "object", "properties": {}}]},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/missing"},
        {"enum": [{"an": "object"}]},
        {"enum": []},
        {},
        True,
        an_object() | {"required": ["unknown"]},
    ],
)
def test_unsupported_schema_has_no_strict_form(schema: Any) -> None:
    assert strict_property(schema) is None


@pytest.mark.parametrize(
    "schema", [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, {"anyOf": [an_object()]}]
)
def test_the_root_must_be_an_object(schema: dict[str, Any]) -> None:
    assert strict_schema(schema) is None


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "title": "It", "x-order": 1}, {"type": "string"}),
        ({"type": "string", "description": None}, {"type": "string"}),
        (
            {"type": "string", "minLength": 2, "maxLength": 3},
            {"type": "string", "description": "(minLength: 2; maxLength: 3)"},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "format": "date"}),
        ({"type": "string", "format": "uri"}, {"type": "string", "description": '(format: "uri")'}),
        ({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}),
        ({"type": "string", "pattern": "(?=a)"}, {"type": "string", "description": '(pattern: "(?=a)")'}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": ["integer", "null"]}, {"type": ["integer", "null"]}),
        ({"const": "a"}, {"const": "a", "type": "string"}),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["null", "string"]}),
        ({"enum": [True, 1, 1.5]}, {"enum": [True, 1, 1.5], "type": ["boolean", "integer", "number"]}),
        ({"allOf": [{"type": "string"}], "description": "It"}, {"type": "string", "description": "It"}),
    ],
)
def test_strict_form_of_each_keyword(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert strict_property(schema) == expected


def test_a_union_with_a_discriminator_becomes_any_of() -> None:
    """OpenAI refuses `oneOf`; with a discriminator `anyOf` means the same."""
    cat, dog = ({"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in "cd")
    schema = an_object(
        it={
            "oneOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}],
            "discriminator": {"propertyName": "k", "mapping": {"c": "#/$defs/C", "d": "#/$defs/D"}},
        }
    )
    strict = strict_schema(schema | {"$defs": {"C": cat, "D": dog}})
    assert strict is not None
    assert strict["properties"]["it"] == {"anyOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}]}
    assert strict["$defs"]["C"]["properties"]["k"] == {"const": "c", "type": "string"}


def test_a_reference_with_words_beside_it_is_written_out() -> None:
    """OpenAI refuses a reference that has other keys beside it."""
    schema = an_object(it={"$ref": "#/$defs/D", "description": "My"}) | {
        "$defs": {"D": {"type": "string", "description": "Its"}}
    }
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["properties"]["it"] == {"type": "string", "description": "My"}
    assert "$defs" not in strict


@pytest.mark.parametrize("key", ["$defs", "definitions"])
def test_a_model_that_contains_itself_keeps_its_definition(key: str) -> None:
    ref = {"$ref": f"#/{key}/Node"}
    node = an_object(name={"type": "string"}, children={"type": "array", "items": ref})
    strict = strict_schema(ref | {key: {"Node": node, "Unused": {"type": "string"}}})
    closed = {"additionalProperties": False, **node}
    assert strict == {**closed, key: {"Node": closed}}


def test_a_reference_to_the_root_stays() -> None:
    schema = an_object(children={"type": "array", "items": {"$ref": "#"}})
    assert strict_schema(schema) == {**schema, "additionalProperties": False}


def test_circular_references_have_no_strict_form() -> None:
    assert strict_schema({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}) is None


def test_definition_without_a_strict_form_makes_the_schema_loose() -> None:
    assert strict_schema(an_object(it={"$ref": "#/$defs/D"}) | {"$defs": {"D": {"type": "object"}}}) is None


WORDS = st.sampled_from(["a", "b", "$ref", "default", "title"])
LEAVES = st.sampled_from(
    [
        {"type": "string", "minLength": 2},
        {"type": "integer", "default": 3},
        {"type": "string", "title": "T", "default": None},
        {"enum": ["a", 1]},
        {"$ref": "#/$defs/D"},
        {"$ref": "#/$defs/D", "description": "words"},
        {"type": "object"},
    ]
)


def _objects(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": required(properties),
        },
        st.dictionaries(WORDS, children, max_size=4),
        st.sampled_from([list, lambda properties: [name for name in properties if len(name) > 1]]),
    )


SCHEMAS = _objects(
    st.recursive(
        LEAVES,
        lambda children: st.one_of(
            _objects(children),
            st.builds(lambda items: {"type": "array", "items": items}, children),
            st.builds(lambda choices: {"anyOf": choices}, st.lists(children, min_size=1, max_size=3)),
        ),
        max_leaves=12,
    )
).map(lambda schema: schema | {"$defs": {"D": {"type": "number"}}})


def _nodes(schema: Any) -> list[dict[str, Any]]:
    inner = [
        *schema.get("properties", {}).values(),
        *schema.get("$defs", {}).values(),
        *schema.get("anyOf", []),
    ]
    inner += [schema["items"]] if "items" in schema else []
    return [schema, *(node for each in inner for node in _nodes(each))]


@given(SCHEMAS)
def test_strict_form_is_complete_and_idempotent(schema: dict[str, Any]) -> None:
    before = copy.deepcopy(schema)
    strict = strict_schema(schema)
    assert schema == before, "the input is not changed"
    if strict is None:
        return
    assert strict_schema(strict) == strict
    for node in _nodes(strict):
        assert not node.keys() & {"default", "title", "minLength", "oneOf", "allOf"}
        assert "$ref" not in node or node.keys() == {"$ref"}
        if "properties" in node:
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
