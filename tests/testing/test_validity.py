"""`assert_valid` finds what a provider would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.history.messages import Message
from routelock.testing import assert_valid, call, problems

USER: Message = {"role": "user", "content": "Hi"}
CALLS: Message = {"role": "assistant", "content": None, "tool_calls": [call("a", id="1"), call("b", id="2")]}

UNTYPED: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "{}"}}],
}


def answered(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def test_a_valid_dialogue_passes() -> None:
    assert_valid([USER, CALLS, answered("1"), answered("2"), USER])


def test_answers_may_come_in_another_order() -> None:
    assert_valid([USER, CALLS, answered("2"), answered("1")])


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([USER, CALLS, answered("1")], "2 has no answer"),
        ([USER, CALLS, answered("1"), USER, answered("2")], "2 has no answer"),
        ([USER, CALLS, answered("1"), answered("2"), answered("2")], "orphan"),
        ([USER, answered("9")], "orphan"),
        ([USER, CALLS, answered("1"), answered("2"), CALLS, answered("1"), answered("2")], "used twice"),
        ([USER, UNTYPED, answered("1")], "message 1: tool call 1 without a type"),
        ([{"role": "system", "content": "Be kind."}], "nothing to answer"),
        ([{"role": "robot", "content": "Hi"}], "unknown role 'robot'"),
        ([{"content": "Hi"}], "unknown role None"),
        ([], "nothing to answer"),
    ],
)
def test_refused_messages_are_named(messages: list[Any], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        assert_valid(messages)


def test_error_lists_the_messages() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_valid([USER, CALLS, answered("1")])
    shown = str(caught.value)
    assert "calls a#1" in shown
    assert "answers #1 ok" in shown


def test_problems_are_the_runtimes_own() -> None:
    assert problems([USER]) == []
    assert problems([USER, answered("9")]) == ["message 1: orphan tool result 9"]
