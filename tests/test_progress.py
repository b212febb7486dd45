"""What counts as progress, and what as going round."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.progress import Progress

SAME = [("look_up", "{}", "not found")]


def test_a_transfer_made_again_goes_round() -> None:
    """A to B, back, and to B again with nothing new in between (pain 10)."""
    progress = Progress()
    assert not progress.goes_round("a", "b")
    progress.transferred("a", "b")
    progress.transferred("b", "a")
    assert progress.goes_round("a", "b")


def test_going_back_and_on_to_somebody_else_is_progress() -> None:
    """A, B, A, C is a legitimate path (pain 10)."""
    progress = Progress()
    progress.transferred("a", "b")
    assert not progress.goes_round("b", "a")
    progress.transferred("b", "a")
    assert not progress.goes_round("a", "c")


def test_a_new_result_makes_every_transfer_possible_again() -> None:
    progress = Progress()
    progress.transferred("a", "b")
    progress.refused = 1
    progress.tool_results(SAME)
    assert not progress.goes_round("a", "b")
    assert progress.refused == 0


def test_a_result_seen_before_is_no_progress() -> None:
    progress = Progress()
    progress.tool_results(SAME)
    progress.transferred("a", "b")
    progress.refused = 1
    progress.tool_results(SAME)
    assert progress.goes_round("a", "b")
    assert progress.refused == 1


@pytest.mark.parametrize(
    "other",
    [
        [("look_up", "{}", "found")],
        [("look_up", '{"page": 2}', "not found")],
        [("search", "{}", "not found")],
        [*SAME, ("search", "{}", "nothing")],
    ],
)
def test_other_calls_or_other_results_are_no_repetition(other: list[tuple[str, str, str]]) -> None:
    progress = Progress()
    for _ in range(2):
        progress.tool_results(SAME)
    progress.tool_results(other)
    assert progress.repeats == 1


def test_repetition_is_first_told_and_then_ends() -> None:
    progress, seen = Progress(), list[tuple[bool, bool]]()
    for _ in range(6):
        progress.tool_results(SAME)
        seen.append((progress.needs_nudge, progress.is_stuck))
    assert seen == [(False, False)] * 2 + [(True, False)] * 3 + [(True, True)]


def test_what_the_source_repeated_is_not_held_against_the_target() -> None:
    """Each agent may look the same thing up: a filter may have hidden it from the next."""
    progress = Progress()
    for _ in range(5):
        progress.tool_results(SAME)
    progress.transferred("a", "b")
    assert not progress.needs_nudge
    progress.tool_results(SAME)
    assert progress.repeats == 1


def test_results_may_come_from_a_generator() -> None:
    progress = Progress()
    progress.tool_results(result for result in SAME)
    assert progress.repeats == 1
    assert progress.results


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=30))
def test_without_new_results_no_transfer_is_allowed_twice(edges: list[tuple[str, str]]) -> None:
    """So ping-pong ends after as many transfers as there are edges, not at ``max_turns``."""
    progress = Progress()
    taken = []
    for source, target in edges:
        if not progress.goes_round(source, target):
            progress.transferred(source, target)
            taken.append((source, target))
    assert len(taken) == len(set(taken)) == len(set(edges))
