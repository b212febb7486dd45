"""Chat requests are parsed, or refused with an explanation."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.serving.errors import Refusal
from routelock.serving.requests import parse

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def read(**body: Any) -> Any:
    return parse(json.dumps({"messages": HI, **body}).encode())


def refused(body: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value


def test_a_request_needs_no_more_than_messages() -> None:
    asked = read()
    assert (asked.messages, asked.model, asked.stream, asked.tools, asked.hops) == (HI, "", False, (), 0)


def test_unknown_keys_are_ignored() -> None:
    more = {
        "temperature": 3,
        "max_tokens": -1,
        "response_format": {"type": "x"},
        "stop": 7,
        "new_in_2030": {},
    }
    assert read(**more) == read()


def test_null_means_left_out() -> None:
    names = ("model", "stream", "stream_options", "n", "tools", "tool_choice", "user", "handoff_context")
    assert read(**dict.fromkeys(names)) == read()


def test_unknown_keys_of_messages_are_kept() -> None:
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}], "z": 1}
    assert read(messages=[message]).messages == [message]


def test_extra_keys_of_returned_replies_are_removed() -> None:
    """As `message.model_dump()` of OpenAI's client gives it; vendors refuse what they do not know."""
    dumped = {
        "role": "assistant",
        "content": "Hi.",
        "refusal": None,
        "tool_calls": None,
        "audio": None,
        "reasoning_content": "Hm.",
        "x_agent": {"agent": "A"},
    }
    assert read(messages=[*HI, dumped]).messages[1] == {"role": "assistant", "content": "Hi."}


def test_internal_keys_of_clients_are_removed() -> None:
    forged = {"role": "assistant", "content": "x", "_origin": "anthropic", "_kind": "nudge"}
    assert read(messages=[*HI, forged]).messages[1] == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"messages": []}, "messages", "at least 1 item"),
        ({}, "messages", "required"),
        ({"messages": "Hi"}, "messages", "valid"),
        ({"messages": [7]}, "messages[0]", "object"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages", "messages[0] has role 'boss'"),
        ({"messages": [{"content": "x"}]}, "messages", "role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages", "content"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": 1}]}]}, "messages", "tool_calls"),
        ({"messages": HI * 20_001}, "messages", "at most"),
        ({"messages": HI, "n": 2}, "n", "one answer"),
        ({"messages": HI, "n": 0}, "n", "one answer"),
        ({"messages": HI, "model": 7}, "model", "string"),
        ({"messages": HI, "stream": "maybe"}, "stream", "boolean"),
        ({"messages": HI, "tools": {"look": TOOL}}, "tools", "array"),
        ({"messages": HI, "tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        ({"messages": HI, "tools": [{"type": "function"}]}, "tools[0].function", "required"),
        (
            {"messages": HI, "tools": [{"type": "function", "function": {"name": "a b"}}]},
            "tools[0].function.name",
            "pattern",
        ),
        ({"messages": HI, "tools": [TOOL, TOOL]}, "tools[1]", "Two tools"),
        ({"messages": HI, "tools": [TOOL] * 2000}, "tools", "at most"),
        ({"messages": HI, "tool_choice": {"function": {"name": "look"}}}, "tool_choice", "'look'"),
        ({"messages": HI, "handoff_context": []}, "handoff_context", "object"),
        ({"messages": HI, "handoff_context": {"hops": -1}}, "handoff_context.hops", "greater"),
        ({"messages": HI, "handoff_context": {"hops": "many"}}, "handoff_context.hops", "integer"),
        ({"messages": HI, "handoff_context": {"note": "x" * 70_000}}, "handoff_context", "longer"),
    ],
)
def test_a_bad_request_names_the_error_and_its_place(body: Any, param: str, said: str) -> None:
    refusal = refused(body)
    assert refusal.param == param
    assert said in refusal.message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"messages": NaN', b"a=b"]
)
def test_a_body_that_is_not_an_object_is_refused(body: bytes) -> None:
    assert refused(body).code in ("invalid_json", "invalid_request")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    "body",
    [
        '{"messages": [{"role": "user", "content": "Hi", "cache": %s}]}',
        '{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "n": %s}]}]}',
        '{"messages": [{"role": "user", "content": "Hi"}], "tools": [{"type": "function", "function": '
        '{"name": "f", "parameters": {"default": %s}}}]}',
    ],
)
def test_non_json_numbers_are_refused(body: str, number: str) -> None:
    assert refused((body % number).encode()).code == "invalid_json"


@pytest.mark.parametrize("opening", [b"[", b'{"messages":'])
def test_unbounded_nesting_is_refused(opening: bytes) -> None:
    assert refused(opening * 100_000).code == "invalid_json"


def test_only_the_first_error_is_reported() -> None:
    refusal = refused(b'{"messages": [' + b"1," * 1_000_000 + b"1]}")
    assert refusal.param == "messages[0]"
    assert len(refusal.message) < 200


def test_tools_of_the_client_go_on_as_they_came() -> None:
    strict = {"type": "function", "function": {"name": "go", "description": "Go.", "strict": True}}
    assert read(tools=[TOOL, strict]).tools == (TOOL, strict)


def test_tool_choice_none_drops_the_tools() -> None:
    assert read(tools=[TOOL], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", None),
        ("required", "required"),
        ({"type": "function", "function": {"name": "look"}}, "look"),
    ],
)
def test_a_forced_tool_is_passed_on(choice: Any, expected: str | None) -> None:
    assert read(tools=[TOOL], tool_choice=choice).tool_choice == expected


def test_required_without_tools_forces_nothing() -> None:
    assert read(tool_choice="required").tool_choice is None


def test_a_handoff_context_is_kept_as_it_is() -> None:
    context = {"hops": 3, "session": "s", "nested": {"a": [1]}}
    asked = read(handoff_context=context)
    assert (asked.handoff_context, asked.hops) == (context, 3)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
known = st.sampled_from(
    ["messages", "model", "stream", "stream_options", "n", "tools", "tool_choice", "user", "handoff_context"]
)


@given(st.dictionaries(known, json_values))
def test_any_json_object_is_read_or_refused(body: dict[str, Any]) -> None:
    """No body of a client makes the parser raise another error."""
    with suppress(Refusal):
        parse(json.dumps(body).encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    refused(body)
