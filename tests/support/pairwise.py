"""Of a matrix of cases, as few as say the same.

Most defects show with one value, or with two that meet; few need three, and a matrix of all is slow. Mark a
test with ``pairwise`` to keep such cases alone; the event loop is one of the parameters.

Of a test without that mark all cases are there, and the event loops take turns: what a message says, or which
scene is played, is nothing that one loop gets wrong and the other does not. Mark a test with ``every_loop``
where it is, as with all that is cancelled or waited for.

``ROUTELOCK_THOROUGH=1`` keeps all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

__all__ = ["in_turn", "pairwise"]

_FEW = 2
"""Such as plain and streamed: so many values of a parameter meet everything."""


def pairwise(cases: Sequence[Mapping[str, Any]], turning: str | None = None) -> list[int]:
    """Return the places of some cases that have each pair of values that any case has; always the same ones.

    Args:
        cases: each by the names of its parameters; values are told apart by what they are equal to.
        turning: a parameter whose values take turns at those of which there are many.
    """
    turns = [frozenset[tuple[Any, ...]]()] * len(cases) if turning is None else _meetings(cases, turning)
    pairs = [frozenset(_pairs(case, turning)) | met for case, met in zip(cases, turns, strict=True)]
    missing = frozenset[tuple[Any, ...]]().union(*pairs)
    kept: list[int] = []
    taken = Counter[Any]()

    def worth(place: int) -> tuple[int, int]:
        return len(pairs[place] & missing), -taken[cases[place][turning]] if turning else 0

    while missing:
        best = max(range(len(cases)), key=worth)  # the first of the best
        kept.append(best)
        missing -= pairs[best]
        if turning:
            taken[cases[best][turning]] += 1
    return sorted(kept)


def _pairs(case: Mapping[str, Any], turning: str | None) -> list[tuple[Any, ...]]:
    values = sorted((name, value) for name, value in case.items() if name != turning)
    return [*combinations(values, 2)] if len(values) > 1 else [*values]


def in_turn(cases: Sequence[Mapping[str, Any]], name: str) -> list[int]:
    """Return the places of some cases that have each combination of the other parameters, most of them once.

    The values of the parameter ``name`` take turns. Each of them meets both values of those that have two.

    Args:
        cases: each by the names of its parameters; values are told apart by what they are equal to.
        name: a parameter that all of them have.
    """
    meetings = _meetings(cases, name)
    missing = frozenset[tuple[Any, ...]]().union(*meetings)
    alike = defaultdict[tuple[Any, ...], list[int]](list)
    for place, case in enumerate(cases):
        alike[tuple(sorted((other, value) for other, value in case.items() if other != name))].append(place)
    taken = Counter[Any]()
    kept: list[int] = []
    for places in alike.values():
        best = max(places, key=lambda place: (len(meetings[place] & missing), -taken[cases[place][name]]))
        kept.append(best)
        taken[cases[best][name]] += 1
        missing -= meetings[best]
    for place, met in enumerate(meetings):
        if met & missing:
            kept.append(place)
            missing -= met
    return sorted(kept)


def _meetings(cases: Sequence[Mapping[str, Any]], name: str) -> list[frozenset[tuple[Any, ...]]]:
    """Return for each case its value of a parameter, alone and with what it has of few."""
    values = defaultdict[str, set[Any]](set)
    for case in cases:
        for other, value in case.items():
            values[other].add(value)
    few = [other for other, all_of_it in values.items() if other != name and len(all_of_it) <= _FEW]
    return [
        frozenset([(case[name],), *((case[name], other, case[other]) for other in few)]) for case in cases
    ]
