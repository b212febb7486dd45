"""A thought at the head of a text is a thought, however it is cut."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.chat_completions.thinking_tags import LeadingThought


def told(*pieces: str) -> tuple[str, str]:
    """Return the reasoning and the text of a stream."""
    leading = LeadingThought()
    reasoning = text = ""
    for piece in pieces:
        delta: dict[str, Any] = {"content": piece}
        leading.move(delta)
        reasoning += delta.get("reasoning_content", "")
        text += delta["content"]
    rest = leading.rest()
    return reasoning + rest.get("reasoning_content", ""), text + rest.get("content", "")


@pytest.mark.parametrize(
    ("whole", "reasoning", "text"),
    [
        ("<think>Hm</think>Yes", "Hm", "Yes"),
        ("<thinking>Hm\n</thinking>\nYes", "Hm\n", "\nYes"),
        ("<think>a < b</think>c", "a < b", "c"),
        ("<think></think>c", "", "c"),
        ("Yes", "", "Yes"),
        ("Yes <think>no</think>", "", "Yes <think>no</think>"),
        ("<thin", "", "<thin"),
        ("<", "", "<"),
        ("<b>bold</b>", "", "<b>bold</b>"),
        ("<think>Hm</think><think>again</think>", "Hm", "<think>again</think>"),
    ],
)
def test_cut_anywhere_it_is_told_apart(whole: str, reasoning: str, text: str) -> None:
    assert told(whole) == (reasoning, text)
    assert told(*whole) == (reasoning, text)


def test_a_thought_without_an_end_stays_a_thought() -> None:
    assert told("<think>H", "m") == ("Hm", "")
    assert told(*"<think>I reckon a <") == ("I reckon a <", "")


@pytest.mark.parametrize(
    "content", ["<think>I reckon a <", "<think>Hm</thi", "<think>Hm</think>Yes", "<thin", "Yes"]
)
def test_a_whole_message_says_what_the_stream_says(content: str) -> None:
    message: dict[str, Any] = {"content": content}
    LeadingThought().move_all(message)
    assert (message.get("reasoning_content", ""), message["content"]) == told(*content)


def test_what_was_held_back_is_text_when_the_vendor_tells_thoughts_apart() -> None:
    leading = LeadingThought()
    leading.move({"content": "<thi"})
    delta = {"reasoning_content": "Hm", "content": "s>"}
    leading.move(delta)
    assert delta == {"reasoning_content": "Hm", "content": "<this>"}
    assert leading.rest() == {}


def test_a_vendor_that_tells_thoughts_apart_is_not_read_again() -> None:
    leading = LeadingThought()
    leading.move({"reasoning_content": "Hm"})
    delta = {"content": "<think>x</think>"}
    leading.move(delta)
    assert delta == {"content": "<think>x</think>"}


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think", ">", "a", " "]), max_size=8),
    st.data(),
)
def test_it_is_what_litellm_makes_of_the_whole(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    match = re.match(r"<(?:think|thinking)>(.*?)</(?:think|thinking)>(.*)", whole, re.DOTALL)
    if match:
        assert told(*pieces) == (match[1], match[2])
    elif not whole.startswith("<think>"):
        assert told(*pieces) == ("", whole)
