"""Structured output in the text of a reply: how it is asked for, and how it is found."""

from __future__ import annotations

import json

import pytest

from routelock.handlers.structured_output import json_begun, json_in, schema_prompt


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1}',
        ' {"x": 1}\n',
        '```json\n{"x": 1}\n```',
        'Here you are:\n\n```\n{"x": 1}\n```\nIs {that} all?',
        'Sure! {"x": 1} Anything else?',
        'Done:\n\n{"x": 1}',
    ],
)
def test_json_is_found(text: str) -> None:
    assert json.loads(json_in(text)) == {"x": 1}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"x": 1}, {"x": 2}',
        '{"items": [{"x": 1}, {"x": 2}',
        '{"x": 1}\n\n{"x": 2}',
        '```json\n{"x": 1}\n```\nor\n```json\n{"x": 2}\n```',
        "None.",
        "",
        "}{",
    ],
)
def test_broken_or_ambiguous_json_is_not_extracted(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        json.loads(json_in(text))


def test_a_fence_within_the_answer_belongs_to_it() -> None:
    text = json.dumps({"x": "```\n{}\n```"})
    assert json_in(text) == text


def test_the_prompt_is_one_line_of_schema() -> None:
    assert schema_prompt({"type": "object", "title": "é\n"}).splitlines()[-1] == (
        '{"type":"object","title":"é\\n"}'
    )


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("", ""),
        ("Here it is:", ""),
        ('  {"a": 1, ', '{"a": 1, '),
        ('Here it is: {"a": ', '{"a": '),
        ('A {thing}:\n```json\n{"a"', '{"a"'),
        ("A {thing}:\n```json\n", ""),
        ('{"a": "```js\\n{', '{"a": "```js\\n{'),
    ],
)
def test_json_that_has_begun_is_found(text: str, begun: str) -> None:
    assert json_begun(text) == begun
