"""The short way gives what the long way gives, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.handlers.stream_assembler import completion_done
from routelock_providers.chat_completions.plain_replies import plain_reply

USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def whole(message: Any, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {"id": "r", "model": "m", "choices": [choice], "usage": USAGE, **more}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Hi", "refusal": None, "annotations": []},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL, {**CALL, "id": "b"}]},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
    ],
)
def test_ordinary_replies(message: Any) -> None:
    done = plain_reply(whole(message))
    assert done is not None
    assert done == completion_done(whole(message))


texts = st.sampled_from(["", "x", "}{", "srvtoolu_1", "a__thought__b", '{"x": 1}{"x": 1}', "{}", None, 5])
functions = st.fixed_dictionaries({"name": texts, "arguments": texts}, optional={"strange": texts})
calls = st.fixed_dictionaries(
    {"id": texts, "type": st.sampled_from(["function", "custom", None]), "function": functions},
    optional={"index": st.integers(0, 2), "provider_specific_fields": st.just({"a": 1})},
)
messages = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.sampled_from(["", "Hi", None, [{"type": "text", "text": "Hi"}]]),
    },
    optional={
        "tool_calls": st.lists(calls, max_size=3),
        "reasoning_content": texts,
        "refusal": texts,
        "function_call": st.just({"name": "f", "arguments": "{}"}),
        "thinking_blocks": st.just([{"type": "thinking", "thinking": "x"}]),
    },
)


@given(
    message=st.none() | messages,
    finish=st.sampled_from(["stop", "tool_calls", "length", "error", "", None]),
    more=st.fixed_dictionaries(
        {},
        optional={
            "usage": st.just(None),
            "error": st.just({"message": "no"}),
            "choices": st.sampled_from([[], None, 5]),
            "model": st.just(None),
        },
    ),
)
def test_never_anything_else_than_the_long_way(
    message: Any, finish: str | None, more: dict[str, Any]
) -> None:
    completion = whole(message, finish, **more)
    done = plain_reply(completion)
    if done is not None:
        assert done == completion_done(completion)
        assert not completion.get("error")


def test_the_message_is_not_the_completions() -> None:
    completion = whole({"role": "assistant", "content": None, "tool_calls": [CALL]})
    done = plain_reply(completion)
    assert done is not None
    (call,) = done.message.get("tool_calls") or []
    assert call is not CALL
    assert call["function"] is not CALL["function"]
