"""Messages and items: their calls, their text and their copies."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from routelock._json import detached, unshared
from routelock.history.messages import Message, RunItem, call_ids, calls_of, text_of

USER: Message = {"role": "user", "content": "Hi"}
CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# -- to_messages --


# -- detached --


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
