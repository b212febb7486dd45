"""Thoughts between tags become reasoning, and repeated thoughts are removed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.litellm.thoughts import LeadingThought, RepeatedThoughts


def read(*pieces: str) -> tuple[str, str]:
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
def test_thought_is_found_however_the_text_is_cut(whole: str, reasoning: str, text: str) -> None:
    assert read(whole) == (reasoning, text)
    assert read(*whole) == (reasoning, text)


def test_thought_without_an_end_stays_a_thought() -> None:
    assert read("<think>H", "m") == ("Hm", "")
    assert read(*"<think>I reckon a <") == ("I reckon a <", "")


@pytest.mark.parametrize(
    "content", ["<think>I reckon a <", "<think>Hm</thi", "<think>Hm</think>Yes", "<thin", "Yes"]
)
def test_whole_message_equals_the_stream(content: str) -> None:
    message: dict[str, Any] = {"content": content}
    LeadingThought().move_all(message)
    assert (message.get("reasoning_content", ""), message["content"]) == read(*content)


def test_held_text_returns_when_the_vendor_sends_reasoning() -> None:
    leading = LeadingThought()
    leading.move({"content": "<thi"})
    delta = {"reasoning_content": "Hm", "content": "s>"}
    leading.move(delta)
    assert delta == {"reasoning_content": "Hm", "content": "<this>"}
    assert leading.rest() == {}


def test_text_of_a_vendor_with_reasoning_is_not_split() -> None:
    leading = LeadingThought()
    leading.move({"reasoning_content": "Hm"})
    delta = {"content": "<think>x</think>"}
    leading.move(delta)
    assert delta == {"content": "<think>x</think>"}


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think", ">", "a", " "]), max_size=8),
    st.data(),
)
def test_stream_equals_what_litellm_makes_of_a_whole_reply(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    match = re.match(r"<(?:think|thinking)>(.*?)</(?:think|thinking)>(.*)", whole, re.DOTALL)
    if match:
        assert read(*pieces) == (match[1], match[2])
    elif not whole.startswith("<think>"):
        assert read(*pieces) == ("", whole)


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"thinking_blocks": [{"type": "thinking", "thinking": text, **more}]}


def thoughts_of(*deltas: dict[str, Any]) -> list[str]:
    repeated = RepeatedThoughts()
    for delta in deltas:
        repeated.remove(delta)
    return [block["thinking"] for delta in deltas for block in delta.get("thinking_blocks", ())]


def test_thought_repeated_with_its_signature_is_removed() -> None:
    deltas = [thought("Hm"), thought(", yes"), thought("Hm, yes", signature="s1")]
    assert thoughts_of(*deltas) == ["Hm", ", yes", ""]
    assert deltas[2]["thinking_blocks"][0]["signature"] == "s1"


def test_each_thought_is_repeated_for_itself() -> None:
    kept = thoughts_of(thought("a"), thought("a", signature="1"), thought("b"), thought("b", signature="2"))
    assert kept == ["a", "", "b", ""]


def test_thought_that_comes_with_its_signature_stays() -> None:
    assert thoughts_of(thought("Hm", signature="s1")) == ["Hm"]
    assert thoughts_of(thought("Hm"), thought("other", signature="s1")) == ["Hm", "other"]


def test_copy_in_provider_specific_fields_is_removed() -> None:
    delta = thought("Hm") | {"provider_specific_fields": {"thinking_blocks": [1], "citation": 2}}
    RepeatedThoughts().remove(delta)
    assert delta["provider_specific_fields"] == {"citation": 2}


def test_delta_without_thoughts_stays_unchanged() -> None:
    delta: dict[str, Any] = {"content": "x", "provider_specific_fields": {"a": 1}}
    RepeatedThoughts().remove(delta)
    assert delta == {"content": "x", "provider_specific_fields": {"a": 1}}
