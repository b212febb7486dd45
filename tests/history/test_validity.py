"""What breaks the rules that all chat APIs share is found, one line each."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.history.validity import problems, says_nothing

USER: Any = {"role": "user", "content": "Hi"}


def calling(*ids: str) -> Any:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(call_id: str) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": "1"}


@pytest.mark.parametrize(
    ("messages", "found"),
    [
        ([USER, calling("a"), answer("a")], []),
        ([USER, calling("a")], ["at the end: tool call a has no answer"]),
        ([USER, answer("a")], ["message 1: orphan tool result a"]),
        ([USER, calling("a", "a"), answer("a"), answer("a")], ["message 1: tool call id a is used twice"]),
        ([{"role": "system", "content": "x"}], ["nothing to answer: no user, assistant or tool message"]),
    ],
)
def test_problems_of_a_list(messages: list[Any], found: list[str]) -> None:
    assert problems(messages) == found


def test_message_with_reasoning_only_says_nothing() -> None:
    assert says_nothing({"role": "assistant", "content": "", "reasoning_content": "Hm."})
