"""A store in memory has bounds of number, bytes and time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from routelock.serving.bounded_store import BoundedStore, Bounds

Key = tuple[str, str]
A, B, C = (("me", name) for name in "abc")
OTHER: Key = ("other", "d")


def store(
    *,
    is_used: Callable[[str], bool] | None = None,
    is_held: Callable[[str], bool] | None = None,
    **bounds: Any,
) -> BoundedStore[Key, str]:
    def never(value: str) -> bool:
        return False

    made = Bounds(**{"most": 10, "size": 1000, "ttl": 60.0, "clock": lambda: 0.0, **bounds})
    return BoundedStore(made, is_used=is_used or never, is_held=is_held or never)


def test_the_least_recently_used_value_is_dropped() -> None:
    kept = store(most=2)
    kept.put(A, "A", 1)
    kept.put(B, "B", 1)
    assert kept.get(A) == "A"
    assert kept.put(C, "C", 1) == [(B, "B")]
    assert kept.get(B) is None


def test_bytes_are_bounded() -> None:
    kept = store(size=10)
    kept.put(A, "A", 6)
    assert kept.put(B, "B", 6) == [(A, "A")]
    assert kept.put(C, "C", 11) == [(B, "B"), (C, "C")]
    assert len(kept) == 0


def test_a_value_that_is_put_again_replaces_its_size() -> None:
    kept = store(size=10)
    for _ in range(3):
        assert kept.put(A, "A", 6) == []


def test_expired_values_are_dropped_before_used_ones() -> None:
    now = [0.0]
    kept = store(most=2, clock=lambda: now[0])
    kept.put(A, "A", 1)
    now[0] = 30
    kept.put(B, "B", 1)
    kept.get(A)
    now[0] = 60
    assert kept.put(C, "C", 1) == [(A, "A")]
    assert len(kept) == 2


def test_a_value_in_use_is_not_dropped() -> None:
    kept = store(most=1, is_used=lambda value: value == "A")
    kept.put(A, "A", 1)
    assert kept.put(B, "B", 1) == [(B, "B")]
    assert kept.get(A) == "A"


def test_the_owner_that_has_the_most_drops_a_value() -> None:
    kept = store(most=2)
    kept.put(OTHER, "D", 1)
    kept.put(A, "A", 1)
    assert kept.put(B, "B", 1) == [(A, "A")]
    assert kept.get(OTHER) == "D"


def test_the_owner_that_has_the_most_bytes_drops_a_value() -> None:
    kept = store(size=10)
    kept.put(OTHER, "D", 2)
    kept.put(A, "A", 8)
    assert kept.put(("other", "e"), "E", 2) == [(A, "A")]


def test_another_owner_drops_a_value_if_the_first_has_only_used_ones() -> None:
    kept = store(most=2, is_used=lambda value: value in "AB")
    kept.put(OTHER, "D", 1)
    kept.put(A, "A", 1)
    assert kept.put(B, "B", 1) == [(OTHER, "D")]


def test_a_held_value_is_dropped_if_its_owner_has_no_other() -> None:
    kept = store(most=2, is_held=lambda value: value in "AB")
    kept.put(A, "A", 1)
    kept.put(C, "C", 1)
    assert kept.put(B, "B", 1) == [(C, "C")]
    assert kept.put(OTHER, "D", 1) == [(A, "A")]


def test_a_held_value_outlives_its_time() -> None:
    now = [0.0]
    kept = store(clock=lambda: now[0], is_held=lambda value: value == "A")
    kept.put(A, "A", 1)
    now[0] = 60
    assert kept.get(A) == "A"


def test_a_touched_value_is_kept_for_its_whole_time() -> None:
    now = [0.0]
    kept = store(clock=lambda: now[0])
    kept.put(A, "A", 1)
    now[0] = 30
    assert kept.touch(A) == []
    assert kept.touch(B) == []
    now[0] = 80
    assert kept.get(A) == "A"
    assert len(kept) == 1


def test_a_new_value_is_dropped_last() -> None:
    kept = store(most=1, is_held=lambda value: value == "A")
    kept.put(A, "A", 1)
    assert kept.put(OTHER, "D", 1) == [(A, "A")]
