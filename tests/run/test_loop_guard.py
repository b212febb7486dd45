"""What counts as progress, and what as going round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.run.loop_guard import Progress

Made = list[tuple[str, str, str]]
SAME: Made = [("look_up", "{}", "not found")]
NUDGE, STOP = "nudge", "stop"


def once(name: str, output: str = "same", arguments: str = "{}") -> Made:
    """A turn with one call."""
    return [(name, arguments, output)]


def judged(turns: Any) -> dict[int, str]:
    """What the run would do after which turn, counted from 1; it ends with a stop."""
    progress, told = Progress(), dict[int, str]()
    for number, made in enumerate(turns, 1):
        progress.tool_results(made)
        if progress.is_stuck:
            return {**told, number: STOP}
        if progress.needs_nudge:
            told[number] = NUDGE
    return told


# -- transfers --


def test_a_transfer_made_again_goes_round() -> None:
    """A to B, back, and to B again with nothing new in between."""
    progress = Progress()
    assert not progress.goes_round("a", "b")
    progress.transferred("a", "b")
    progress.transferred("b", "a")
    assert progress.goes_round("a", "b")


def test_a_transfer_with_other_data_is_another_one() -> None:
    """What is passed along is information; only the same once more is going round."""
    progress = Progress()
    progress.transferred("a", "b", '{"order": 1}')
    progress.transferred("b", "a")
    assert not progress.goes_round("a", "b", '{"order": 2}')
    assert progress.goes_round("a", "b", '{ "order":1 }')
    progress.transferred("a", "b", '{"order": 2}')
    assert not progress.goes_round("b", "a")
    progress.transferred("b", "a")
    assert progress.goes_round("a", "b", '{"order": 1}')
    assert progress.goes_round("a", "b", '{"order": 2}')


def test_going_back_and_on_to_somebody_else_is_progress() -> None:
    """A, B, A, C is a legitimate path."""
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


def test_asking_to_hand_over_finds_nothing_out() -> None:
    """A tool that returned a `HandoffRequest` was not answered yet."""
    progress = Progress()
    progress.transferred("a", "b")
    progress.tool_results([], requests=SAME)
    assert progress.goes_round("a", "b")


def test_asking_to_hand_over_again_and_again_goes_round() -> None:
    progress, told = Progress(), list[bool]()
    for _ in range(4):
        progress.tool_results([], requests=SAME)
        told.append(progress.needs_nudge)
    assert told == [False, False, True, False]


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


# -- circles of calls --


def test_the_same_call_is_told_the_third_time_and_ends_the_sixth() -> None:
    assert judged([SAME] * 9) == {3: NUDGE, 6: STOP}


def test_a_call_may_be_made_twice_with_one_result() -> None:
    assert judged([SAME] * 2) == {}


@pytest.mark.parametrize("period", range(1, 8))
def test_a_circle_is_told_when_it_begins_the_third_time_and_ends_three_turns_later(period: int) -> None:
    """Three calls in a circle end in turn 10, which is the last that ``max_turns`` allows by default."""
    circle = [once(f"tool {number % period}") for number in range(40)]
    assert judged(circle) == {2 * period + 1: NUDGE, 2 * period + 4: STOP}


@pytest.mark.parametrize(
    "other",
    [
        [("look_up", "{}", "found")],
        [("look_up", '{"page": 2}', "not found")],
        [("search", "{}", "not found")],
        [*SAME, ("search", "{}", "nothing")],
    ],
)
def test_other_calls_or_other_results_are_progress(other: Made) -> None:
    assert judged([SAME, SAME, other, SAME, SAME]) == {}


def test_polling_is_progress_as_long_as_the_answer_changes() -> None:
    assert judged(once("poll", f"{percent} %") for percent in range(100)) == {}


def test_an_answer_that_changes_to_and_fro_is_progress() -> None:
    """The same call, another result: a switch that is turned on and off."""
    assert judged(once("turn", "on" if number % 2 else "off") for number in range(100)) == {}


def test_a_poll_that_came_to_rest_is_counted_from_there() -> None:
    progressing = [once("poll", f"{percent} %") for percent in range(10)]
    assert judged([*progressing, *[once("poll", "9 %")] * 9]) == {12: NUDGE, 15: STOP}


def test_one_changing_answer_makes_a_turn_progress() -> None:
    turns = [[*SAME, *once("poll", str(number))] for number in range(50)]
    assert judged(turns) == {}


def test_what_did_not_change_beside_what_did_is_not_held_against_it() -> None:
    """Twice more is fine, as after any other turn that brought something new."""
    turns = [[*SAME, *once("poll", str(number))] for number in range(9)]
    assert judged([*turns, SAME]) == {}


def test_a_new_call_after_the_nudge_makes_up_for_it() -> None:
    turns = [*[SAME] * 3, once("else"), *[SAME] * 2, once("more")]
    assert judged(turns) == {3: NUDGE}


def test_who_goes_round_again_after_progress_is_told_again() -> None:
    assert judged([*[SAME] * 3, once("else"), *[SAME] * 9]) == {3: NUDGE, 7: NUDGE, 10: STOP}


def test_another_circle_after_the_nudge_does_not_win_more_turns() -> None:
    turns = [once("a"), once("b"), once("b"), once("b"), once("a"), once("b"), once("a")]
    assert judged(turns) == {4: NUDGE, 7: STOP}


def test_parallel_calls_are_the_same_in_any_order() -> None:
    there, back = [*SAME, *once("search")], [*once("search"), *SAME]
    assert judged([there, back] * 9) == {3: NUDGE, 6: STOP}


def test_one_call_twice_in_a_turn_with_two_answers_is_one_thing() -> None:
    turn = [*once("roll", "1"), *once("roll", "6")]
    assert judged([turn, turn[::-1]] * 9) == {3: NUDGE, 6: STOP}


def test_arguments_are_the_same_in_any_spelling() -> None:
    one, other = once("f", arguments='{"a": 1, "b": 2}'), once("f", arguments='{"b":2,"a":1}')
    assert judged([one, other] * 9) == {3: NUDGE, 6: STOP}


@pytest.mark.parametrize("broken", ["", "{", "[" * 100_000, "9" * 5_000, '{"a": "\\ud800"}', "null"])
def test_arguments_may_be_broken(broken: str) -> None:
    assert judged([once("f", arguments=broken)] * 9) == {3: NUDGE, 6: STOP}


def test_what_the_source_repeated_is_not_held_against_the_target() -> None:
    """Each agent may look the same thing up: a filter may have hidden it from the next."""
    progress = Progress()
    for _ in range(5):
        progress.tool_results(SAME)
    progress.transferred("a", "b")
    for _ in range(2):
        progress.tool_results(SAME)
        assert not progress.needs_nudge
        assert not progress.is_stuck
    progress.tool_results(SAME)
    assert progress.needs_nudge


def test_results_may_come_from_a_generator() -> None:
    assert judged((result for result in SAME) for _ in range(9)) == {3: NUDGE, 6: STOP}


def test_a_turn_without_any_call_is_nothing() -> None:
    assert judged([*[SAME] * 2, *[[]] * 9]) == {}


def test_what_repeats_is_named() -> None:
    progress = Progress()
    for number in range(5):
        progress.tool_results(once("ab"[number % 2]))
    assert progress.needs_nudge
    assert progress.what == "a, b"


def test_not_everything_that_repeats_is_named() -> None:
    progress = Progress()
    for _ in range(3):
        progress.tool_results([(f"t{number}", "{}", "same") for number in range(8)])
    assert progress.what == "t0, t1, t2, t3, t4, 3 more"


# -- whatever the calls --

SMALL = st.sampled_from("abc")
WORLD = st.dictionaries(st.tuples(SMALL, SMALL), SMALL, min_size=1, max_size=5)
"""What each call is answered, for ever."""


@given(st.data())
def test_whoever_finds_nothing_new_is_stopped(data: st.DataObject) -> None:
    """With n different calls, at most 2n + 4 turns after the last that brought something new."""
    world = data.draw(WORLD)
    calls = sorted(world)
    turn = st.lists(st.sampled_from(calls), min_size=1, max_size=3)
    bound = 2 * len(calls) + 4
    turns = data.draw(st.lists(turn, min_size=bound, max_size=3 * bound))
    last = max(
        min(place for place, made in enumerate(turns, 1) if one in made) for one in set().union(*turns)
    )
    turns += [turns[-1]] * bound
    told = judged([(name, arguments, world[name, arguments]) for name, arguments in made] for made in turns)
    stop = max(told)
    assert told[stop] == STOP
    assert NUDGE in told.values()
    assert stop <= last + bound


@given(
    circle=st.lists(st.lists(SMALL, min_size=1, max_size=3), min_size=1, max_size=6),
    before=st.integers(0, 9),
)
def test_every_circle_ends(circle: list[list[str]], before: int) -> None:
    """Of any length and with parallel calls, after any number of turns that were good."""
    good = [once("good", str(number)) for number in range(before)]
    loop = [[(name, "{}", "same") for name in made] for made in circle]
    told = judged([*good, *loop * 99])
    assert max(told) <= before + 2 * len(circle) + 4 + len(circle)
    assert told[max(told)] == STOP


STEPS = st.sampled_from(["new call", "new arguments", "new result", "new beside old", "old", "a transfer"])


@given(st.lists(STEPS, max_size=80))
def test_whoever_gets_on_is_never_stopped(steps: list[str]) -> None:
    """Every turn brings something new, or is one look back between two that do."""
    progress, agents, fresh = Progress(), [0], 0
    for number, step in enumerate(steps):
        new, old = f"new {number}", once("old")
        match step:
            case "new call":
                made = once(new)
            case "new arguments":
                made = once("f", arguments=f'{{"n": {number}}}')
            case "new result":
                made = once("poll", new)
            case "new beside old":
                made = [*old, *once("poll", new)]
            case _:
                made = old if fresh else once(new)
        fresh = 0 if made == old else fresh + 1
        progress.tool_results(made)
        if step == "a transfer":
            progress.tool_results(once("poll", f"{new} as well"))
            there = (agents[-1] + number) % 4
            assert not progress.goes_round(str(agents[-1]), str(there))
            progress.transferred(str(agents[-1]), str(there))
            agents.append(there)
        assert not progress.needs_nudge
        assert not progress.is_stuck


@given(st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=60))
def test_what_is_kept_grows_with_different_calls_alone(made: list[tuple[str, str, str]]) -> None:
    progress = Progress()
    for one in made:
        progress.tool_results([one])
    progress.read_all()
    different = len({(name, arguments) for name, arguments, _ in made})
    assert len(progress.answers) == different
    assert len(progress.times) <= different


def test_calls_that_are_surely_new_wait_to_be_read_and_not_for_ever() -> None:
    progress = Progress()
    for number in range(1500):
        progress.tool_results(once("poll", f"answer {number}"))
        assert len(progress.unread) <= 1000
    assert progress.outputs == set()
    for number in range(2):
        progress.tool_results(once("poll", "answer 1499"))
        assert progress.idle == number + 1


@given(st.lists(st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=3), max_size=30))
def test_reading_late_or_at_once_comes_to_the_same(turns: list[list[tuple[str, str, str]]]) -> None:
    late, at_once = Progress(), Progress()
    for made in turns:
        late.tool_results(made)
        at_once.outputs.clear()
        at_once.tool_results(made)
        at_once.read_all()
        for name in ("idle", "told", "names", "needs_nudge", "is_stuck"):
            assert getattr(late, name) == getattr(at_once, name)
    late.read_all()
    assert (late.answers, late.times) == (at_once.answers, at_once.times)
