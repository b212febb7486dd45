"""The input of a run is checked before anything is asked."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, cast

import pytest
from pydantic import BaseModel

from routelock.errors import ConfigError
from routelock.history.input import to_messages
from routelock.history.marked import KIND, ORIGIN
from routelock.history.messages import Message, calls_of, text_of

USER: Message = {"role": "user", "content": "Hi"}
CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_text_is_a_user_message() -> None:
    assert to_messages("Hi") == [USER]


def test_to_messages_keeps_a_list_of_messages() -> None:
    given: list[Message] = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]},
    ]
    assert to_messages(given) == given


@pytest.mark.parametrize("make", [tuple, iter, list])
def test_any_sequence_of_messages_will_do(make: Callable[[list[Message]], Any]) -> None:
    assert to_messages(make([USER])) == [USER]


def test_any_mapping_is_a_message() -> None:
    assert to_messages([MappingProxyType({"role": "user", "content": "Hi"})]) == [USER]


def test_unknown_keys_survive() -> None:
    """A provider gets back the fields that it sent."""
    assert to_messages([{**USER, "vendor_says": 1}]) == [{**USER, "vendor_says": 1}]


def test_nan_becomes_null() -> None:
    """A history that was kept by an app may have one, and must not be lost for it."""
    given = {**USER, "vendor_says": [{"score": float("nan")}, 1.5]}
    assert to_messages([given]) == [{**USER, "vendor_says": [{"score": None}, 1.5]}]


def test_private_keys_are_dropped_except_the_family_mark() -> None:
    """Private keys never reach a provider."""
    given = {"role": "assistant", "content": "x", "_note": 1, ORIGIN: "anthropic"}
    assert to_messages([given]) == [{"role": "assistant", "content": "x", ORIGIN: "anthropic"}]


def test_the_callers_messages_are_not_changed_and_not_kept() -> None:
    given = {"role": "user", "content": "Hi", "_note": 1}
    (taken,) = to_messages([given])
    taken["content"] = "changed"
    assert given == {"role": "user", "content": "Hi", "_note": 1}


def test_parts_and_calls_are_copied() -> None:
    """What the caller edits after a run must not reach back into its transcript."""
    given: Any = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [copy.deepcopy(CALL)]},
    ]
    taken = to_messages(given)
    given[0]["content"][0]["text"] = given[1]["tool_calls"][0]["function"]["name"] = "changed"
    assert text_of(taken[0]) == "Hi"
    assert calls_of(taken[1]) == [CALL]


def test_only_a_nudge_keeps_its_kind() -> None:
    given: Any = [{**USER, KIND: "nudge"}, {**USER, KIND: "summary"}, {**USER, ORIGIN: None}]
    assert to_messages(given) == [{**USER, KIND: "nudge"}, USER, USER]


class Foreign(BaseModel):
    """A message as other libraries have it: an object whose fields can be iterated over."""

    content: str = "Hi"


@pytest.mark.parametrize("value", [None, 5, USER, b"Hi", object(), Foreign()])
def test_input_must_be_text_or_a_list(value: Any) -> None:
    with pytest.raises(ConfigError, match="Input must be text or a list of messages, not"):
        to_messages(value)


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("Hi", "Input message 1 must be a dict with a role, not str"),
        (None, "Input message 1 must be a dict with a role, not NoneType"),
        ({}, "Input message 1 has role None; use user"),
        ({"content": "Hi"}, "Input message 1 has role None; use user"),
        ({"role": "human", "content": "Hi"}, "Input message 1 has role 'human'; use user"),
        ({"type": "function_call", "call_id": "c"}, "Items of the Responses API are read by a session"),
        ({"role": ["user"]}, "Input message 1 has role"),
        ({"role": "user", "content": 5}, "Input message 1: content must be text, a list of parts or None"),
        (
            {"role": "user", "content": ["Hi"]},
            "Input message 1: content must be text, a list of parts or None",
        ),
        ({"role": "user"}, "Input message 1: content of a user message must be text or a list of parts"),
        ({"role": "system", "content": None}, "Input message 1: content of a system message must be text"),
        ({"role": "tool", "tool_call_id": 7, "content": "x"}, "Input message 1: tool_call_id must be text"),
        ({"role": "user", "name": ["Ada"], "content": "x"}, "Input message 1: name must be text"),
        ({"role": "user", "content": "Hi", "tool_calls": [CALL]}, "Input message 1: tool_calls belong to an"),
        ({"role": "assistant", "tool_calls": [{**CALL, "id": 7}]}, "Input message 1: the id in tool_calls"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            "Input message 1: the arguments in tool_calls must be JSON text",
        ),
        ({"role": "assistant", "tool_calls": "f"}, "Input message 1: tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": ["f"]}, "Input message 1: tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": [{"id": "a"}]}, "Input message 1: tool_calls must be a list"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]},
            "Input message 1: tool_calls must be a list",
        ),
    ],
)
def test_invalid_message_is_named_with_its_index(message: Any, wrong: str) -> None:
    """The error names the index and what is wrong, before any model is called."""
    with pytest.raises(ConfigError, match=wrong):
        to_messages([USER, message])


def test_an_error_about_input_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="Input message 0"):
        to_messages([cast(Any, {})])


def test_a_call_without_an_id_is_left_to_repair() -> None:
    bare = {"function": {"name": "f", "arguments": ""}}
    given: Any = {"role": "assistant", "content": None, "tool_calls": [bare]}
    assert to_messages([given]) == [given]


@pytest.mark.parametrize("bare", [{}, {"arguments": None}, {"arguments": {}}])
def test_a_call_without_arguments_has_empty_ones(bare: Any) -> None:
    """Some libraries write no arguments at all; a run accepts such replies, so the next run must accept them
    too."""
    given: Any = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", **bare}}]}
    (taken,) = to_messages([given])
    assert calls_of(taken)[0]["function"] == {"name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": "", "tool_calls": None, "name": None},
        {"role": "tool", "content": "orphan"},
        {"role": "tool", "content": "orphan", "tool_call_id": None},
        {"role": "user", "content": "Hi", "tool_calls": []},
    ],
)
def test_repairable_message_is_accepted(message: Any) -> None:
    """A history from other tools loads."""
    assert to_messages([message]) == [message]
