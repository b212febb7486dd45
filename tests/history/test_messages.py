"""Messages and items: their calls and their text."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from routelock.history.messages import Message, RunItem, call_ids, calls_of, text_of

USER: Message = {"role": "user", "content": "Hi"}
CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


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
