"""The part of a message that every provider can read."""

from __future__ import annotations

import copy
from typing import Any

from routelock.history.messages import Message, calls_of
from routelock.history.portable import portable

CALL: Any = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


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
