"""Messages: what a run may start from, and what of a message every provider can read."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, cast

import pytest

from routelock._json import detached, unshared
from routelock.errors import ConfigError
from routelock.history.messages import (
    KIND,
    ORIGIN,
    Message,
    RunItem,
    call_ids,
    calls_of,
    item_of,
    portable,
    text_of,
    to_messages,
)

USER: Message = {"role": "user", "content": "Hi"}
CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# -- to_messages --


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


@pytest.mark.parametrize("value", [None, 5, USER, b"Hi", object()])
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


# -- item_of, detached --


def test_private_keys_become_fields_of_the_item() -> None:
    written: Any = {"role": "assistant", "content": "x", ORIGIN: "anthropic"}
    assert item_of(written, 3, "input") == RunItem(
        id=3, kind="input", message={"role": "assistant", "content": "x"}, origin="anthropic"
    )
    nudge: Any = {**USER, KIND: "nudge"}
    assert item_of(nudge, 4, "filter") == RunItem(id=4, kind="nudge", message=USER)


def test_a_message_without_private_keys_stays_the_same_object() -> None:
    assert item_of(USER, 0, "input").message is USER


def test_detached_message_shares_no_container() -> None:
    message: Any = {"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [CALL]}
    copied = detached(message)
    assert copied == message
    copied["content"][0]["text"] = copied["tool_calls"][0]["function"]["name"] = "changed"
    assert message["content"] == [{"type": "text", "text": "x"}]
    assert message["tool_calls"] == [CALL]


# -- calls_of, text_of --


@pytest.mark.parametrize("message", [USER, {**USER, "tool_calls": []}, {**USER, "tool_calls": None}])
def test_an_empty_list_of_calls_is_no_calls(message: Message) -> None:
    """Providers send ``tool_calls: []`` beside text."""
    assert calls_of(message) == []


def test_calls_come_as_they_were_made() -> None:
    assert calls_of({"role": "assistant", "tool_calls": [CALL]}) == [CALL]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        (None, ""),
        ("", ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "text", "text": None}, {"type": "text"}, {}], ""),
    ],
)
def test_the_text_of_a_message(content: Any, text: str) -> None:
    assert text_of({"role": "user", "content": content}) == text


def test_a_message_without_content_has_no_text() -> None:
    assert text_of({"role": "assistant"}) == ""


def test_the_ids_of_calls_and_of_answers_are_found() -> None:
    """Each counts alone: a call may lack its answer, an answer its call."""
    asks: Message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    answer: Message = {"role": "tool", "tool_call_id": "b", "content": "42"}
    assert call_ids([USER, asks, answer]) == {"a", "b"}
    assert call_ids([]) == set()


# -- portable --


def test_portable_drops_private_fields() -> None:
    """Thinking and signatures of one vendor make another refuse the request."""
    message: Any = {
        "role": "assistant",
        "content": "Hm.",
        "refusal": None,
        "name": "billing",
        "reasoning_content": "r",
        "thinking_blocks": [{"signature": "s"}],
        "reasoning_items": [{"id": "rs_1"}],
        "provider_specific_fields": {"x": 1},
        "tool_calls": [{**CALL, "provider_specific_fields": {"thought_signature": "s"}, "index": 0}],
    }
    before = copy.deepcopy(message)
    assert portable(message) == {
        "role": "assistant",
        "content": "Hm.",
        "refusal": None,
        "name": "billing",
        "tool_calls": [CALL],
    }
    assert message == before


THOUGHTS: Any = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "reasoning", "summary": []},
]


def test_portable_drops_thoughts_among_the_parts() -> None:
    """Some vendors write them into the content, signature and all."""
    message: Message = {"role": "assistant", "content": [*THOUGHTS, {"type": "text", "text": "Hi"}]}
    assert portable(message) == {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}
    assert portable({"role": "assistant", "content": THOUGHTS}) == {"role": "assistant", "content": None}


def test_portable_leaves_the_parts_of_others_alone() -> None:
    odd: Message = {"role": "user", "content": THOUGHTS}
    assert portable(odd) == odd


def test_portable_call_has_only_id_name_and_arguments() -> None:
    """Streams put a signature into the function itself; and null is no JSON text."""
    made: Any = {**CALL, "function": {"name": "f", "arguments": None, "provider_specific_fields": {"s": 1}}}
    (call,) = calls_of(portable({"role": "assistant", "content": None, "tool_calls": [made]}))
    assert call["function"] == {"name": "f", "arguments": "{}"}


def test_portable_keeps_which_call_an_answer_belongs_to() -> None:
    answer: Message = {"role": "tool", "tool_call_id": "a", "content": "42"}
    assert portable(answer) == answer


def test_portable_leaves_a_call_without_an_id_to_repair() -> None:
    bare: Any = {"function": {"name": "f", "arguments": "{}"}}
    (call,) = calls_of(portable({"role": "assistant", "content": None, "tool_calls": [bare]}))
    assert call == {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# -- RunItem --


def test_an_item_is_frozen() -> None:
    item = RunItem(id=0, kind="input", message=USER)
    with pytest.raises(dataclasses.FrozenInstanceError):
        item.kind = "model"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert dataclasses.replace(item, kind="model") != item


def test_an_edited_item_keeps_its_id() -> None:
    item = RunItem(id=7, kind="model", message=USER, agent="a", origin="openai")
    edited = dataclasses.replace(item, message={"role": "user", "content": "Bye"})
    assert (edited.id, edited.kind, edited.agent, edited.origin) == (7, "model", "a", "openai")


# -- unshared --


def test_copied_data_shares_no_container() -> None:
    """However they are inside one another."""
    data: dict[str, Any] = {"list": [{"a": {1}}], "tuple": ([1],)}
    copied = unshared(data)
    copied["list"][0]["a"].add(2)
    copied["tuple"][0].append(2)
    assert data == {"list": [{"a": {1}}], "tuple": ([1],)}


def test_an_object_in_it_stays_itself() -> None:
    thing = object()
    assert unshared({"thing": thing})["thing"] is thing


def test_copied_container_keeps_its_type() -> None:
    counts = Counter(a=1)
    copied = unshared({"counts": counts})["counts"]
    copied["a"] += 1
    assert type(copied) is Counter
    assert counts["a"] == 1


def test_self_reference_is_copied() -> None:
    data: dict[str, Any] = {"list": []}
    data["list"].append(data)
    copied = unshared(data)
    assert copied["list"][0] is copied
    assert copied is not data


def test_data_nested_too_deep_is_not_copied() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert unshared(deep) is deep
