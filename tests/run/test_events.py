"""Events are frozen data that can be told apart by class and by word."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, get_args

import pytest

from routelock.errors import ConnectionFailed
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, TextDelta
from routelock.run import events
from routelock.run.events import RunEvent, ToolOutput

CLASSES: list[Any] = [kind for name in events.__all__ if isinstance(kind := getattr(events, name), type)]


def test_each_class_has_a_word_of_its_own() -> None:
    """Our spelling is handoff_occurred; the words are those of the classes."""
    words = {each.type for each in get_args(RunEvent)}
    assert words == {
        "agent_updated",
        "approval_requested",
        "attempt_failed",
        "compacted",
        "empty_reply",
        "handler_fallback",
        "handoff_completed",
        "handoff_returned",
        "handoff_failed",
        "handoff_occurred",
        "handoff_requested",
        "message_done",
        "nested",
        "reasoning_delta",
        "repaired",
        "run_done",
        "text_delta",
        "tool_call_delta",
        "tool_called",
        "tool_output",
    }
    assert len(words) == len(get_args(RunEvent))


def test_every_event_can_come_out_of_a_run() -> None:
    assert set(CLASSES) < set(get_args(RunEvent))
    assert set(get_args(HandlerEvent)) < set(get_args(RunEvent))


@pytest.mark.parametrize("each", get_args(RunEvent), ids=lambda each: each.__name__)
def test_events_are_frozen_slotted_and_described(each: Any) -> None:
    assert each.__dataclass_params__.frozen
    assert "__slots__" in vars(each)
    assert "type" not in {field.name for field in dataclasses.fields(each)}
    assert each.__doc__.split("(")[0] != each.__name__


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TextDelta("Hi").text = "Ho"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def test_events_match_by_class_and_by_word() -> None:
    event: HandlerEvent = TextDelta("Hi")
    match event:
        case TextDelta(text=text):
            assert (text, event.type) == ("Hi", "text_delta")
        case _:
            raise AssertionError


def test_events_are_equal_when_they_say_the_same() -> None:
    assert TextDelta("Hi") == TextDelta("Hi") != TextDelta("Ho")
    message: Any = {"role": "assistant", "content": "Hi"}
    assert MessageDone(message=message) == MessageDone(message=copy.copy(message))


def test_what_may_be_unknown_is_none() -> None:
    done = MessageDone(message={"role": "assistant", "content": "Hi"})
    assert (done.usage, done.finish_reason, done.model, done.response_id) == (None, None, None, None)
    assert ToolOutput(agent="A", call_id="c", name="look", output="seen").error is None


def test_a_failed_attempt_says_how_long_it_waits() -> None:
    event = AttemptFailed(error=ConnectionFailed("x"), attempt=2, delay=0.5)
    assert (event.attempt, event.delay) == (2, 0.5)
