"""The text with which a model is told of a failure."""

from __future__ import annotations

import pytest

from routelock.errors import ToolTimeout
from routelock.tools.failures import failure_text, reason_of
from routelock.tools.outcome import NoTextError


def test_a_reason_is_the_class_and_the_message() -> None:
    assert reason_of(ValueError("no such key")) == "ValueError: no such key"
    assert reason_of(KeyError()) == "KeyError"


def test_reason_of_a_group_lists_its_members() -> None:
    group = ExceptionGroup("g", [ValueError("a"), ExceptionGroup("h", [KeyError("b")])])
    assert reason_of(group) == "ValueError: a; KeyError: 'b'"
    many = ExceptionGroup("g", [ValueError(str(n)) for n in range(9)])
    assert reason_of(many).endswith("ValueError: 2; and 6 more")


def test_a_reason_is_bounded() -> None:
    assert len(reason_of(ValueError("x" * 10_000))) < 600


def test_error_without_a_message_is_still_reported() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reason_of(Broken()) == "Broken: its message raised RuntimeError"


@pytest.mark.parametrize("kind", [ValueError, ToolTimeout, NoTextError])
def test_no_report_has_a_secret(kind: type[Exception]) -> None:
    """Code of the app raises errors of our classes, too, and a lazy result raises when it is read."""
    told = failure_text("f", kind("no answer from postgres://app:hunter2@db"))
    assert "no answer from postgres://" in told
    assert "hunter2" not in told
