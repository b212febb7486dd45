"""Requests for a response are parsed, or refused with an explanation."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.serving.errors import Refusal
from routelock.serving.responses.requests import ResponseRequest, parse_response_request

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True}
FORM = {"type": "json_schema", "name": "order", "schema": {"type": "object"}, "strict": True}


def read(**body: Any) -> ResponseRequest:
    return parse_response_request(json.dumps({"input": "Hi", **body}).encode())


def test_a_request_needs_no_more_than_an_input() -> None:
    asked = read()
    assert asked.messages == [{"role": "user", "content": "Hi"}]
    assert (asked.model, asked.stream, asked.store, asked.tools, asked.settings) == ("", False, True, (), {})


def test_a_response_may_be_continued_without_an_input() -> None:
    assert read(input=None, previous_response_id="resp_1").messages == []


def test_null_means_left_out() -> None:
    names = (
        "model",
        "stream",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "store",
        "temperature",
        "include",
    )
    assert read(**dict.fromkeys(names)).settings == {}


def test_tools_are_in_the_form_of_chat_completions() -> None:
    [tool] = read(tools=[TOOL]).tools
    function = {"name": "look", "parameters": {"type": "object"}, "strict": True}
    assert tool == {"type": "function", "function": function}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("required", "required"),
        ({"type": "function", "name": "look"}, "look"),
        ({"type": "custom", "name": "patch"}, "patch"),
    ],
)
def test_a_choice_of_tools_is_read(choice: Any, expected: str | None) -> None:
    assert read(tools=[TOOL, {"type": "custom", "name": "patch"}], tool_choice=choice).tool_choice == expected


def test_a_response_repeats_tools_as_they_were_sent() -> None:
    tools = [{"type": "custom", "name": "patch"}, {"type": "namespace", "name": "crm", "tools": [TOOL]}]
    assert read(tools=tools).echo["tools"] == tools


def test_no_tool_is_offered_if_none_is_chosen() -> None:
    assert read(tools=[TOOL], tool_choice="none").tools == ()


def test_settings_have_the_names_of_handlers() -> None:
    asked = read(
        temperature=0.5,
        top_p=0.9,
        max_output_tokens=7,
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        text={"verbosity": "low", "format": FORM},
    )
    schema = {"name": "order", "schema": {"type": "object"}, "strict": True}
    assert asked.settings == {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 7,
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


def test_values_that_ask_for_nothing_are_no_settings() -> None:
    asked = read(
        background=False,
        client_metadata={"turn": "1"},
        include=["reasoning.encrypted_content"],
        max_tool_calls=None,
        parallel_tool_calls=True,
        reasoning={"summary": "auto"},
        service_tier="auto",
        stream_options={"include_obfuscation": False},
        text={"format": {"type": "text"}},
        top_logprobs=0,
        truncation="disabled",
    )
    assert asked.settings == {}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": 0.5}, "temperature"),
        ({"max_output_tokens": 7}, "max_output_tokens"),
        ({"text": {"format": FORM}}, "text.format"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
    ],
)
def test_a_strict_app_refuses_settings_by_their_names(body: Any, param: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_response_request(json.dumps({"input": "Hi", **body}).encode(), "refuse")
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"input": None}, "input", "required"),
        ({"input": 7}, "input", "text or a list"),
        ({"input": ["Hi"]}, "input[0]", "object"),
        ({"input": [{"role": "user", "content": "x"}] * 20_001}, "input", "at most"),
        ({"input": [{"role": "boss", "content": "x"}]}, "input[0].role", "should be"),
        ({"input": [{"type": "function_call", "name": "x"}]}, "input[0].call_id", "required"),
        ({"background": True}, "background", "not support"),
        ({"truncation": "auto"}, "truncation", "not support"),
        ({"conversation": "c"}, "conversation", "not support"),
        ({"prompt": {"id": "p"}}, "prompt", "not support"),
        ({"max_tool_calls": 3}, "max_tool_calls", "not support"),
        ({"top_logprobs": 3}, "top_logprobs", "not support"),
        ({"include": ["message.output_text.logprobs"]}, "include", "not support"),
        ({"service_tier": "flex"}, "service_tier", "not support"),
        ({"new_in_2030": {"a": 1}}, "new_in_2030", "not support"),
        ({"reasoning": {"summary": "detailed"}}, "reasoning.summary", "not support"),
        ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation", "not"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "runs no 'web_search'"),
        ({"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[0].type", "runs no 'mcp'"),
        ({"tools": [{**TOOL, "defer_loading": True}]}, "tools[0].defer_loading", "not support"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "pattern"),
        ({"tools": [TOOL, TOOL]}, "tools[1]", "Two tools"),
        ({"tools": [TOOL] * 2000}, "tools", "at most"),
        ({"tool_choice": {"type": "function", "name": "look"}}, "tool_choice", "'look'"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", "'function'"),
        ({"tool_choice": "some"}, "tool_choice", "object"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "required"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "should be"),
        ({"temperature": 3}, "temperature", "less"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater"),
        ({"metadata": {"a": 1}}, "metadata.a", "string"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata", "at most"),
        ({"handoff_context": {"hops": -1}}, "handoff_context.hops", "greater"),
    ],
)
def test_a_bad_request_names_the_error_and_its_place(body: Any, param: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(**body)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert said in caught.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(["input", "tools", "tool_choice", "text", "reasoning", "metadata", "stream_options"])


@given(st.dictionaries(names, json_values))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    with suppress(Refusal):
        read(**body)
