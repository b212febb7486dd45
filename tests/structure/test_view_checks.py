"""The check that conftest runs on what every test shows a model: it finds what it is there for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from paths import TESTS
from view_checks import Views

from routelock.handlers.port import REQUEST_OBSERVER, Request
from routelock.testing import call

USER: Any = {"role": "user", "content": "Hi"}
CALLS: Any = {"role": "assistant", "content": None, "tool_calls": [call("f", id="1")]}
ANSWER: Any = {"role": "tool", "tool_call_id": "1", "content": "ok"}


def seen(*messages: Any) -> list[str]:
    views = Views()
    for _ in range(2):
        views.look(Request(messages=messages))
    return views.take()


def test_a_valid_view_is_fine_with_all_vendors() -> None:
    assert seen(USER, CALLS, ANSWER, USER) == []


def test_what_anyone_would_refuse_is_told_whenever_it_is_shown() -> None:
    told = seen(USER, ANSWER)
    assert told[0] == "anyone: message 1: orphan tool result 1"
    assert told.count(told[0]) == 2


def test_words_make_no_difference_but_whether_there_are_any_does() -> None:
    views = Views()
    for text in ("Hi", "Hello", ""):
        asked: list[Any] = [{**USER, "content": text}, CALLS, {**ANSWER, "content": text}]
        views.look(Request(messages=asked))
    assert len(views.fine) == 2


def test_what_was_told_is_told_once() -> None:
    views = Views()
    views.look(Request(messages=[ANSWER]))
    assert views.take()
    assert views.take() == []


def settings_of_the_process() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


@pytest.fixture
def same_watcher() -> Iterator[None]:
    """A suite within a test sets a watcher of its own."""
    token = REQUEST_OBSERVER.set(None)
    yield
    REQUEST_OBSERVER.reset(token)


@pytest.mark.usefixtures("same_watcher")
def test_conftest_fails_a_test_whose_run_shows_what_is_refused(pytester: pytest.Pytester) -> None:
    """Whatever answers: here the request goes the way on which the loop sends all of them."""
    pytester.makeconftest((TESTS / "conftest.py").read_text("utf-8"))
    pytester.makepyfile(
        """
        import anyio
        from routelock import Retry, function_handler
        from routelock.handlers.port import Request
        from routelock.run.model_call import attempts

        async def answer(request):
            return "Hi"

        async def ask(*messages):
            events = attempts(function_handler(answer), Request(messages=messages), Retry())
            assert [event async for event in events]

        def test_fine():
            anyio.run(ask, {"role": "user", "content": "Hi"})

        def test_refused():
            anyio.run(ask, {"role": "tool", "tool_call_id": "1", "content": "ok"})
        """
    )
    before = settings_of_the_process()
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    # the next test of this process must find what it would have found
    assert settings_of_the_process() == before
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*anyone: message 0: orphan tool result 1*"])
