"""What is kept of a matrix."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairwise import in_turn, pairwise


def matrix(*sizes: int) -> list[dict[str, int]]:
    return [dict(zip("abcdef", values, strict=False)) for values in product(*map(range, sizes))]


def pairs(cases: list[dict[str, int]]) -> set[tuple[object, object]]:
    return {pair for case in cases for pair in combinations(sorted(case.items()), 2)}


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.randoms())
def test_every_pair_of_values_is_kept(sizes: list[int], dice: object) -> None:
    cases = matrix(*sizes)
    assert pairs([cases[place] for place in pairwise(cases)]) == pairs(cases)


def test_pairs_that_do_not_exist_are_not_made() -> None:
    cases = [{"loop": 0, "library": 0, "stream": n} for n in (0, 1)] + [
        {"loop": 1, "library": 1, "stream": 0}
    ]
    assert pairwise(cases) == [0, 1, 2]


@pytest.mark.parametrize(("sizes", "most"), [((61, 6, 2), 366), ((10, 10, 2, 2), 100), ((3, 2, 2), 6)])
def test_no_more_is_kept_than_the_two_longest_need(sizes: tuple[int, ...], most: int) -> None:
    assert len(pairwise(matrix(*sizes))) <= most * 1.05


def test_of_one_parameter_every_value_is_kept() -> None:
    assert pairwise(matrix(3)) == [0, 1, 2]
    assert pairwise([]) == []


def test_loops_take_turns() -> None:
    cases = matrix(2, 5)
    kept = [cases[place] for place in in_turn(cases, "a")]
    assert [(case["a"], case["b"]) for case in kept] == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3)]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_whoever_takes_turns_meets_all_of_two_and_leaves_no_combination_out(sizes: list[int]) -> None:
    cases = matrix(2, *sizes)
    kept = [cases[place] for place in in_turn(cases, "a")]

    def others(some: list[dict[str, int]]) -> set[tuple[int, ...]]:
        return {tuple(value for name, value in case.items() if name != "a") for case in some}

    assert others(kept) == others(cases)
    assert {case["a"] for case in kept} == {0, 1}
    for name in [name for name, size in zip("bcde", sizes, strict=False) if size <= 2]:
        assert {(case["a"], case[name]) for case in kept} == {(case["a"], case[name]) for case in cases}


def test_a_test_of_two_loops_and_two_ways_is_played_in_full() -> None:
    assert in_turn(matrix(2, 2), "a") == [0, 1, 2, 3]
    assert in_turn(matrix(2), "a") == [0, 1]
    assert in_turn(matrix(1, 5), "a") == [0, 1, 2, 3, 4]


def test_who_takes_turns_meets_what_there_are_two_of() -> None:
    cases = matrix(2, 2, 5, 3)
    kept = [cases[place] for place in pairwise(cases, "a")]
    assert len(kept) == 15
    assert pairs([{**case, "a": 0} for case in kept]) == pairs([{**case, "a": 0} for case in cases])
    assert {(case["a"], case["b"]) for case in kept} == {(0, 0), (0, 1), (1, 0), (1, 1)}
