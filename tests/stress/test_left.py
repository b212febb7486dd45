"""A few random runs that are left and cancelled all the time; `make stress` plays thousands."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from stress.left import left_and_gone_on_with

SEEDS = 16


def test_a_run_that_is_left_anywhere_runs_no_tool_twice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "routelock")
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        left_and_gone_on_with(seed, counts)
    assert counts["pieces"] > 4 * SEEDS
    assert counts["done"] > SEEDS // 3
