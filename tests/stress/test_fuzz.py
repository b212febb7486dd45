"""Some random runs; `make stress` plays thousands. A seed that fails plays alone: `--seed N`."""

from __future__ import annotations

import pytest
from stress.fuzz import fuzz

SEEDS = 60
PART = 30
WHAT = ("model calls", "tool runs", "transfers made", "transfers not made", "runs within runs")


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_random_runs_keep_the_promises(first: int) -> None:
    counts, failures = fuzz(range(first, first + PART))
    assert not failures, "\n".join(map(str, failures))
    assert counts["runs"] == PART
    assert all(counts[what] for what in WHAT), f"cases that end before anything happens: {counts}"
