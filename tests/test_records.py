"""Records: dataclasses that type checkers hold to be frozen."""

from __future__ import annotations

import dataclasses

import pytest

from interlock.records import record


@record(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def test_records_are_equal_and_hash_alike_when_they_say_the_same() -> None:
    assert Point(1) == Point(1, 0) != Point(2)
    assert len({Point(1), Point(1, 0)}) == 1


def test_a_record_is_a_dataclass() -> None:
    assert dataclasses.replace(Point(1), y=2) == Point(1, 2)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0}


def test_a_record_has_no_place_for_anything_else() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 1  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
