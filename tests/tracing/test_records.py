"""What a trace is made of."""

from __future__ import annotations

import pytest

from routelock.tracing.records import numbers, spans

pytestmark = pytest.mark.anyio


def test_spans_are_numbers_in_order() -> None:
    assert spans([3, 4, 7], after=((0, 2),)) == ((0, 4), (7, 7))
    assert spans([-2, 0, 1, 2, 5]) == ((-2, -2), (0, 2), (5, 5))
    assert numbers(spans([-2, 0, 1, 2, 5])) == [-2, 0, 1, 2, 5]
