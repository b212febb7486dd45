"""The check that conftest runs on what every test shows a model: it finds what it is there for."""

from __future__ import annotations

from typing import Any

from views import Views

from interlock.context import RunContext
from interlock.port import Request
from interlock.testing import call

USER: Any = {"role": "user", "content": "Hi"}
CALLS: Any = {"role": "assistant", "content": None, "tool_calls": [call("f", id="1")]}
ANSWER: Any = {"role": "tool", "tool_call_id": "1", "content": "ok"}


def seen(*messages: Any, of_a_run: bool = True) -> list[str]:
    views = Views()
    for _ in range(2):
        views.look(Request(messages=messages, context=RunContext(context=None) if of_a_run else None))
    return views.take()


def test_a_valid_view_is_fine_with_all_vendors() -> None:
    assert seen(USER, CALLS, ANSWER, USER) == []


def test_what_anyone_would_refuse_is_told_whenever_it_is_shown() -> None:
    told = seen(USER, ANSWER)
    assert told[0] == "anyone: message 1: orphan tool result 1"
    assert told.count(told[0]) == 2


def test_what_is_no_runs_is_not_looked_at() -> None:
    assert seen(ANSWER, of_a_run=False) == []


def test_what_was_told_is_told_once() -> None:
    views = Views()
    views.look(Request(messages=[ANSWER], context=RunContext(context=None)))
    assert views.take()
    assert views.take() == []
