"""Where each vendor says what about a reply; `test_response_filter.py` has the dialects from end to end."""

from __future__ import annotations

from typing import Any

import pytest

from routelock_providers.litellm.response_filter import counts, ends, has_strange_calls, is_whole, talks


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
def test_a_part_of_a_reply_talks(event: dict[str, Any]) -> None:
    assert talks(event)
    assert not ends(event)


@pytest.mark.parametrize("event", [{}, {"done": True}, {"type": "ping"}, {"type": 5}, {"detail": "x"}])
def test_anything_else_does_not(event: dict[str, Any]) -> None:
    assert not talks(event)


def test_no_reason_is_no_end() -> None:
    assert not ends({"choices": [{"finish_reason": None}, {"finish_reason": ""}], "done": False})
    assert not ends({"type": "response.output_text.delta", "delta": "stop_reason"})
    assert not ends({"promptFeedback": None})


@pytest.mark.parametrize("event", [{"choices": 5}, {"choices": ["x"]}, {"promptFeedback": "x"}])
def test_another_shape_than_any_vendors_raises(event: dict[str, Any]) -> None:
    with pytest.raises((AttributeError, TypeError)):
        ends(event)


def test_a_choice_may_hold_the_usage() -> None:
    assert counts({"choices": [{"usage": {"a": 1}}]})
    assert not counts({"choices": [{"delta": {"usage": {"a": 1}}}], "usage": None, "message": "x"})


def test_a_whole_completion_is_told_from_a_chunk() -> None:
    assert is_whole({"choices": [{"message": {}}]})
    assert not is_whole({"choices": [{"message": {}, "delta": {}}]})
    assert not is_whole({"choices": []})
    assert not is_whole({"message": {}, "done": True})


def test_calls_may_lack_what_they_have_not_got_yet() -> None:
    piece = {"index": 0, "id": None, "function": {"name": None, "arguments": {"a": 1}}}
    assert not has_strange_calls({"choices": [{"delta": {"tool_calls": [piece, {"index": 1}]}}]})
    assert has_strange_calls({"choices": [{"message": {"tool_calls": [{"id": 7}]}}]})
