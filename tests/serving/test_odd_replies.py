"""Unusual replies of an app's handler are the same for clients, streamed and whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest
from served_apps import ask, deltas_of, events_of, post, served, text_in

from routelock import Agent, Request, handler
from routelock.handlers.events import ReasoningDelta

EMOJI = "\U0001f600"
FIRST, SECOND = "\ud83d", "\ude00"
"""The two halves of it, as UTF-16 has them."""


def said(*pieces: Any) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return a handler's reply as clients see it, streamed and whole."""

    @handler
    async def odd(request: Request) -> AsyncGenerator[Any]:
        for piece in pieces:
            yield piece

    with served(Agent("A", model=odd)) as url:
        deltas = deltas_of(events_of(post(url, ask(stream=True))))
        response = post(url, ask())
    assert response.status_code == 200, response.text
    message = response.json()["choices"][0]["message"]
    keys = ("content", "reasoning_content", "refusal")
    return {key: text_in(deltas, key) for key in keys}, {key: message.get(key) or "" for key in keys}


@pytest.mark.parametrize(
    "more",
    [
        {"thinking_blocks": 7},
        {"thinking_blocks": [7, None]},
        {"reasoning_details": "hm"},
        {"function_call": 7},
        {"reasoning_content": ["hm"]},
    ],
    ids=lambda more: str(*more),
)
def test_fields_of_unknown_shape_are_not_shown(more: Mapping[str, Any]) -> None:
    streamed, whole = said({"role": "assistant", "content": "Hi", **more})
    assert streamed == whole == {"content": "Hi", "reasoning_content": "", "refusal": ""}


def test_a_refusal_of_another_type_is_shown_as_text() -> None:
    streamed, whole = said({"role": "assistant", "content": None, "refusal": 7})
    assert streamed == whole == {"content": "", "reasoning_content": "", "refusal": "7"}


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]},
        {"reasoning": "hm"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "h"}, {"type": "thinking", "thinking": "m"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "Hi"]},
    ],
    ids=["both", "reasoning", "blocks", "details", "parts"],
)
def test_reasoning_is_shown_once_wherever_it_is(more: Mapping[str, Any]) -> None:
    parts: Any = more.get("content", "Hi")
    content = parts if isinstance(parts, str) else [parts[0], {"type": "text", "text": parts[1]}]
    streamed, whole = said({"role": "assistant", **more, "content": content})
    assert streamed == whole == {"content": "Hi", "reasoning_content": "hm", "refusal": ""}


@pytest.mark.parametrize(
    ("pieces", "content"),
    [
        ([f"a{FIRST}", f"{SECOND}b"], f"a{EMOJI}b"),
        ([f"a{FIRST}"], "a\ufffd"),
        ([f"a{FIRST}", "b"], "a\ufffdb"),
        ([FIRST], "\ufffd"),
        ([{"choices": [{"delta": {"content": f"a{FIRST}"}, "finish_reason": "stop"}]}], "a\ufffd"),
    ],
    ids=["cut in two", "at the end", "in the middle", "alone", "at the end of a chunk"],
)
def test_half_a_character_is_the_same_streamed_and_whole(pieces: Sequence[Any], content: str) -> None:
    streamed, whole = said(*pieces)
    assert streamed["content"] == whole["content"] == content


def test_a_thought_that_was_cut_inside_a_character_is_whole_again() -> None:
    streamed, whole = said(ReasoningDelta(f"a{FIRST}"), ReasoningDelta(f"{SECOND}b"), "Hi")
    assert streamed["reasoning_content"] == whole["reasoning_content"] == f"a{EMOJI}b"
