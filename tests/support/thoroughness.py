"""How much is tried: little in the suite, all of it in `make stress`, and by hand as much as you like.

ROUTELOCK_EXAMPLES=20000 python -m pytest tests/history/test_repair_always.py --hypothesis-seed=1
ROUTELOCK_THOROUGH=1 python -m pytest tests/run/test_cancelled_anywhere.py
"""

from __future__ import annotations

import os

from hypothesis import settings

THOROUGH = bool(os.environ.get("ROUTELOCK_THOROUGH"))
"""Whether tests that go through a run step by step take every step, and leave none out."""


def how_many(quick: int) -> int:
    """Return how many examples hypothesis tries: ``quick`` unless the environment wants another number."""
    return int(os.environ.get("ROUTELOCK_EXAMPLES") or quick)


def examples(quick: int) -> settings:
    """Return the settings of a property that is to be tried with so many examples in the suite."""
    return settings(max_examples=how_many(quick))
