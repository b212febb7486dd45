"""How many examples hypothesis tries: few in the suite, many by hand.

INTERLOCK_EXAMPLES=20000 python -m pytest tests/test_repair_always.py --hypothesis-seed=1
"""

from __future__ import annotations

import os

from hypothesis import settings


def examples(quick: int) -> settings:
    """Return the settings for a property: ``quick`` examples unless the environment wants another number."""
    return settings(max_examples=int(os.environ.get("INTERLOCK_EXAMPLES") or quick))
