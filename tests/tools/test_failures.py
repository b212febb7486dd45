"""The text with which a model is told of a failure."""

from __future__ import annotations

from routelock.tools.failures import reason_of


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
