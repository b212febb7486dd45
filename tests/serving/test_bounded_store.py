"""A store in memory has bounds of number, bytes and time."""

from __future__ import annotations

from typing import Any

from routelock.serving.bounded_store import BoundedStore


def store(**options: Any) -> BoundedStore[str, str]:
    return BoundedStore(**{"most": 10, "size": 1000, "ttl": 60.0, "clock": lambda: 0.0, **options})


def test_the_least_recently_used_value_is_dropped() -> None:
    kept = store(most=2)
    kept.put("a", "A", 1)
    kept.put("b", "B", 1)
    assert kept.get("a") == "A"
    assert kept.put("c", "C", 1) == [("b", "B")]
    assert kept.get("b") is None


def test_bytes_are_bounded() -> None:
    kept = store(size=10)
    kept.put("a", "A", 6)
    assert kept.put("b", "B", 6) == [("a", "A")]
    assert kept.put("c", "C", 11) == [("b", "B"), ("c", "C")]
    assert len(kept) == 0


def test_a_value_that_is_put_again_replaces_its_size() -> None:
    kept = store(size=10)
    for _ in range(3):
        assert kept.put("a", "A", 6) == []


def test_expired_values_are_dropped_before_used_ones() -> None:
    now = [0.0]
    kept = store(most=2, clock=lambda: now[0])
    kept.put("a", "A", 1)
    now[0] = 30
    kept.put("b", "B", 1)
    kept.get("a")
    now[0] = 60
    assert kept.put("c", "C", 1) == [("a", "A")]
    assert len(kept) == 2


def test_a_value_in_use_is_not_dropped() -> None:
    kept = store(most=1, is_used=lambda value: value == "A")
    kept.put("a", "A", 1)
    assert kept.put("b", "B", 1) == [("b", "B")]
    assert kept.get("a") == "A"
