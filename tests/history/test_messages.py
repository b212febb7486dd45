"""Messages: what a run may start from, and what of a message every provider can read."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from typing import Any

import pytest

from routelock._json import detached, unshared
from routelock.history.marked import KIND, ORIGIN, item_of
from routelock.history.messages import Message, RunItem, call_ids, calls_of, text_of
from routelock.history.portable import portable

USER: Message = {"role": "user", "content": "Hi"}
CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# -- to_messages --


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
