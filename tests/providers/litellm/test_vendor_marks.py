"""The marks of each vendor's events; `test_response_filter.py` tests the formats from end to end."""

from __future__ import annotations

from typing import Any

import pytest

from routelock_providers.litellm.response_filter import (
    has_odd_calls,
    has_usage,
    is_completion,
    is_reply_end,
    is_reply_part,
)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": []},
        {"candidates": [{}]},
        {"done": False},
        {"type": "message_start"},
        {"type": "response.created"},
        {"type": "content-delta"},
    ],
)
def test_part_of_a_reply(event: dict[str, Any]) -> None:
    assert is_reply_part(event)
    assert not is_reply_end(event)


@pytest.mark.parametrize("event", [{}, {"done": True}, {"type": "ping"}, {"type": 5}, {"detail": "x"}])
def test_other_events_are_no_part_of_a_reply(event: dict[str, Any]) -> None:
    assert not is_reply_part(event)


def test_event_without_a_reason_is_no_end() -> None:
    assert not is_reply_end({"choices": [{"finish_reason": None}, {"finish_reason": ""}], "done": False})
    assert not is_reply_end({"type": "response.output_text.delta", "delta": "stop_reason"})
    assert not is_reply_end({"promptFeedback": None})


@pytest.mark.parametrize("event", [{"choices": 5}, {"choices": ["x"]}, {"promptFeedback": "x"}])
def test_unknown_shape_raises(event: dict[str, Any]) -> None:
    with pytest.raises((AttributeError, TypeError)):
        is_reply_end(event)


def test_choice_may_hold_the_usage() -> None:
    assert has_usage({"choices": [{"usage": {"a": 1}}]})
    assert not has_usage({"choices": [{"delta": {"usage": {"a": 1}}}], "usage": None, "message": "x"})


def test_completion_differs_from_a_chunk() -> None:
    assert is_completion({"choices": [{"message": {}}]})
    assert not is_completion({"choices": [{"message": {}, "delta": {}}]})
    assert not is_completion({"choices": []})
    assert not is_completion({"message": {}, "done": True})


def test_incomplete_calls_are_not_odd() -> None:
    piece = {"index": 0, "id": None, "function": {"name": None, "arguments": {"a": 1}}}
    assert not has_odd_calls({"choices": [{"delta": {"tool_calls": [piece, {"index": 1}]}}]})
    assert has_odd_calls({"choices": [{"message": {"tool_calls": [{"id": 7}]}}]})
