"""A client's own tools: functions, custom tools and namespaces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.serving.errors import Refusal
from routelock.serving.responses.tools import CallForm, read_tools

LOOK = {"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "patch", "description": "Changes files."}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"+'}
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


def crm(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"type": "namespace", "name": "crm", "description": "The customers.", "tools": [*tools], **more}


def functions(*tools: Any) -> list[Any]:
    """The functions that a model is offered."""
    return [spec["function"] for spec in read_tools(tools).specs]


def test_a_function_is_offered_as_it_is() -> None:
    assert functions(LOOK) == [{key: value for key, value in LOOK.items() if key != "type"}]


def test_a_custom_tool_is_a_function_with_one_text() -> None:
    assert functions(PATCH) == [{"name": "patch", "description": "Changes files.", "parameters": PARAMETERS}]


def test_a_model_is_told_the_grammar_of_a_custom_tool() -> None:
    [function] = functions({**PATCH, "format": GRAMMAR})
    told = function["parameters"]["properties"]["input"]["description"]
    assert told == 'Text in this lark grammar:\nstart: "x"+'


def test_a_text_format_says_nothing() -> None:
    assert functions({**PATCH, "format": {"type": "text"}}) == functions(PATCH)


def test_a_tool_of_a_namespace_has_it_in_its_name() -> None:
    names = [each["name"] for each in functions(crm(LOOK, PATCH), LOOK)]
    assert names == ["crm__look", "crm__patch", "look"]


def test_the_first_tool_of_a_namespace_describes_it() -> None:
    first, second = functions(crm(LOOK, PATCH))
    assert first["description"] == "About all tools crm__*: The customers.\n\nLooks."
    assert second["description"] == "Changes files."


def test_a_namespace_needs_no_description() -> None:
    [function] = functions(crm(LOOK, description=""))
    assert function["description"] == "Looks."


def test_calls_have_the_form_of_their_tools() -> None:
    forms = read_tools([LOOK, PATCH, crm(LOOK, PATCH)]).forms
    assert forms == {
        "patch": CallForm(name="patch", custom=True),
        "crm__look": CallForm(name="look", namespace="crm"),
        "crm__patch": CallForm(name="patch", namespace="crm", custom=True),
    }


@pytest.mark.parametrize("arguments", ['{"text": "x"}', '{"input": 7}', "x", "[7]"])
def test_arguments_without_the_text_are_the_text(arguments: str) -> None:
    assert CallForm(name="patch", custom=True).text(arguments) == arguments


def test_the_text_of_a_custom_tool_is_its_input() -> None:
    assert CallForm(name="patch", custom=True).text(json.dumps({"input": "a\n\u00e9"})) == "a\n\u00e9"


@pytest.mark.parametrize(
    ("tools", "param", "said"),
    [
        ([{"type": "web_search"}], "tools[0].type", "runs no 'web_search'"),
        ([crm({"type": "web_search"})], "tools[0].tools[0].type", "runs no 'web_search'"),
        ([crm(crm(LOOK))], "tools[0].tools[0].type", "no namespace in another"),
        ([crm(LOOK, new=1)], "tools[0].new", "not support"),
        ([crm({**LOOK, "defer_loading": True})], "tools[0].tools[0].defer_loading", "not support"),
        ([{**PATCH, "format": {"type": "xml"}}], "tools[0].format.type", "should be"),
        ([{**PATCH, "format": {**GRAMMAR, "new": 1}}], "tools[0].format.new", "not support"),
        ([crm({**LOOK, "name": "a" * 62})], "tools[0].tools[0].name", "64 characters"),
        ([crm(LOOK), {**LOOK, "name": "crm__look"}], "tools[1]", "Two tools"),
        ([crm(*[LOOK] * 2000)], "tools[0].tools", "at most"),
        ([crm(*[LOOK] * 700), crm(*[LOOK] * 700)], "tools", "at most"),
        ([crm(7)], "tools[0].tools[0]", "object"),
    ],
)
def test_a_tool_that_is_not_supported_is_refused_at_its_place(tools: Any, param: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_tools(tools)
    assert caught.value.param == param
    assert said in caught.value.message
