"""The schema says what the checks admit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.handoffs.context import HandoffContext, deserialize_context
from routelock.handoffs.context_fields import check_fields, context_schema, kind_of

USER = {"role": "user", "content": "Hi"}


def test_the_schema_is_a_draft_07_of_the_three_fields() -> None:
    schema = HandoffContext.json_schema()
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert schema["title"] == "HandoffContext"
    assert schema["required"] == ["conversation_history", "tool_state", "metadata"]
    assert schema["properties"]["tool_state"]["additionalProperties"] is True
    assert schema["properties"]["metadata"]["additionalProperties"] is True


def test_the_schema_knows_calls_and_content_that_is_no_text() -> None:
    """Sw4rm's schema forbids both."""
    entry = context_schema()["properties"]["conversation_history"]["items"]["properties"]
    assert entry["content"]["type"] == ["string", "array", "null"]
    assert "tool_calls" in entry


def test_each_schema_is_a_fresh_one() -> None:
    context_schema()["properties"].clear()
    assert context_schema()["properties"]


CASES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"conversation_history": [USER]}, True),
    ({"conversation_history": [{**USER, "timestamp": "2025-01-15T10:30:00Z", "metadata": {"a": 1}}]}, True),
    ({"conversation_history": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}, True),
    ({"conversation_history": [{"role": "assistant", "content": None, "tool_calls": None}]}, True),
    ({"conversation_history": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]}, True),
    ({"tool_state": {"anything": [1, None, {}]}, "metadata": {"more": True}}, True),
    ({"unknown": 1}, True),
    ({"format_version": 0}, False),
    ({"format_version": "1"}, False),
    ({"conversation_history": {}}, False),
    ({"conversation_history": ["text"]}, False),
    ({"conversation_history": [{"content": "no role"}]}, False),
    ({"conversation_history": [{"role": "critic", "content": "x"}]}, False),
    ({"conversation_history": [{"role": "user"}]}, False),
    ({"conversation_history": [{"role": "system", "content": None}]}, False),
    ({"conversation_history": [{"role": "assistant", "content": 5}]}, False),
    ({"conversation_history": [{"role": "assistant", "content": ["x"]}]}, False),
    ({"conversation_history": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, False),
    ({"conversation_history": [{"role": "assistant", "tool_calls": {}}]}, False),
    ({"conversation_history": [{"role": "tool", "tool_call_id": 5}]}, False),
    ({"conversation_history": [{**USER, "metadata": []}]}, False),
    ({"conversation_history": [{**USER, "timestamp": 5}]}, False),
    *(
        ({"conversation_history": [{**USER, "timestamp": text}]}, fits)
        for text, fits in (
            ("2025-01-15", True),
            ("2025-01-15T10:30", True),
            ("2025-01-15 10:30:00.123456+01:00", True),
            ("yesterday", False),
            ("1736937000", False),
            ("2025-13-01T10:30:00Z", False),
            ("", False),
        )
    ),
    ({"tool_state": []}, False),
    ({"metadata": None}, False),
]


@pytest.mark.parametrize(("fields", "fits"), CASES, ids=[json.dumps(fields)[:80] for fields, _ in CASES])
def test_the_schema_and_the_reader_agree(fields: dict[str, Any], fits: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    whole: dict[str, Any] = {"conversation_history": [], "tool_state": {}, "metadata": {}, **fields}
    assert jsonschema.Draft7Validator(context_schema()).is_valid(whole) == fits
    if fits:
        assert deserialize_context(json.dumps(whole).encode())
    else:
        with pytest.raises(ValueError, match="Failed to deserialize"):
            deserialize_context(json.dumps(whole).encode())


def test_fields_that_are_not_there_are_not_checked() -> None:
    check_fields({})


@pytest.mark.parametrize(
    ("value", "kind"),
    [({}, "an object"), ([], "a list"), ("", "text"), (True, "a bool"), (None, "null"), (1.5, "a number")],
)
def test_types_are_told_in_the_words_of_json(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
