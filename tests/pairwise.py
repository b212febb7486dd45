"""Of a matrix of cases, as few as have every pair of values together.

Most defects show with one value, or with two that meet; few need three, and a matrix of all is slow. Mark a
test with ``pairwise`` to keep such cases alone; the event loop is one of the parameters.
``INTERLOCK_THOROUGH=1`` keeps all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

__all__ = ["pairwise"]


def pairwise(cases: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of some cases that have each pair of values that any case has; always the same ones.

    Args:
        cases: each by the names of its parameters; values are told apart by what they are equal to.
    """
    pairs = [frozenset(_pairs(case)) for case in cases]
    missing = frozenset[tuple[Any, ...]]().union(*pairs)
    kept: list[int] = []
    while missing:
        best = max(range(len(cases)), key=lambda place: len(pairs[place] & missing))  # the first of the best
        kept.append(best)
        missing -= pairs[best]
    return sorted(kept)


def _pairs(case: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    values = sorted(case.items())
    return [*combinations(values, 2)] if len(values) > 1 else [*values]
