"""The loop guard: what counts as progress, and what as repetition."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.run.progress import Progress

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


# -- handoffs --


def test_same_handoff_without_progress_is_repeated() -> None:
    """From A to B, back, and to B again without a new result in between."""
    progress = Progress()
    assert not progress.is_repeated("a", "b")
    progress.handed_over("a", "b")
    progress.handed_over("b", "a")
    assert progress.is_repeated("a", "b")


def test_handoff_with_other_data_is_not_repeated() -> None:
    """Data that is passed along is information; only the same data repeats a handoff."""
    progress = Progress()
    progress.handed_over("a", "b", '{"order": 1}')
    progress.handed_over("b", "a")
    assert not progress.is_repeated("a", "b", '{"order": 2}')
    assert progress.is_repeated("a", "b", '{ "order":1 }')
    progress.handed_over("a", "b", '{"order": 2}')
    assert not progress.is_repeated("b", "a")
    progress.handed_over("b", "a")
    assert progress.is_repeated("a", "b", '{"order": 1}')
    assert progress.is_repeated("a", "b", '{"order": 2}')


def test_handoff_back_and_to_another_agent_is_not_repeated() -> None:
    """The path A, B, A, C is legitimate."""
    progress = Progress()
    progress.handed_over("a", "b")
    assert not progress.is_repeated("b", "a")
    progress.handed_over("b", "a")
    assert not progress.is_repeated("a", "c")


def test_new_result_allows_every_handoff_again() -> None:
    progress = Progress()
    progress.handed_over("a", "b")
    progress.refused = 1
    progress.tool_results(SAME)
    assert not progress.is_repeated("a", "b")
    assert progress.refused == 0


def test_same_result_allows_no_handoff_again() -> None:
    progress = Progress()
    progress.tool_results(SAME)
    progress.handed_over("a", "b")
    progress.refused = 1
    progress.tool_results(SAME)
    assert progress.is_repeated("a", "b")
    assert progress.refused == 1


def test_handoff_request_of_a_tool_is_no_progress() -> None:
    """A tool that returned a `HandoffRequest` has no result yet."""
    progress = Progress()
    progress.handed_over("a", "b")
    progress.tool_results([], requests=SAME)
    assert progress.is_repeated("a", "b")


def test_repeated_handoff_requests_need_a_nudge() -> None:
    progress, told = Progress(), list[bool]()
    for _ in range(4):
        progress.tool_results([], requests=SAME)
        told.append(progress.needs_nudge)
    assert told == [False, False, True, False]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=30))
def test_without_progress_no_handoff_happens_twice(edges: list[tuple[str, str]]) -> None:
    """So ping-pong ends after as many transfers as there are edges, not at ``max_turns``."""
    progress = Progress()
    taken = []
    for source, target in edges:
        if not progress.is_repeated(source, target):
            progress.handed_over(source, target)
            taken.append((source, target))
    assert len(taken) == len(set(taken)) == len(set(edges))


# -- cycles of calls --


def test_third_same_call_nudges_and_sixth_ends_the_run() -> None:
    assert judged([SAME] * 9) == {3: NUDGE, 6: STOP}


def test_same_call_is_allowed_twice() -> None:
    assert judged([SAME] * 2) == {}


@pytest.mark.parametrize("period", range(1, 8))
def test_cycle_is_nudged_in_its_third_round_and_ended(period: int) -> None:
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


def test_polling_with_new_results_is_progress() -> None:
    assert judged(once("poll", f"{percent} %") for percent in range(100)) == {}


def test_alternating_result_is_progress() -> None:
    """The same call has another result each time, such as a switch."""
    assert judged(once("turn", "on" if number % 2 else "off") for number in range(100)) == {}


def test_poll_is_counted_from_its_last_change() -> None:
    progressing = [once("poll", f"{percent} %") for percent in range(10)]
    assert judged([*progressing, *[once("poll", "9 %")] * 9]) == {12: NUDGE, 15: STOP}


def test_one_changed_result_makes_a_turn_progress() -> None:
    turns = [[*SAME, *once("poll", str(number))] for number in range(50)]
    assert judged(turns) == {}


def test_unchanged_call_beside_a_changed_one_is_not_counted() -> None:
    """It may be made twice more, as after any other progress."""
    turns = [[*SAME, *once("poll", str(number))] for number in range(9)]
    assert judged([*turns, SAME]) == {}


def test_new_call_after_the_nudge_resets_the_count() -> None:
    turns = [*[SAME] * 3, once("else"), *[SAME] * 2, once("more")]
    assert judged(turns) == {3: NUDGE}


def test_second_repetition_after_progress_is_nudged_again() -> None:
    assert judged([*[SAME] * 3, once("else"), *[SAME] * 9]) == {3: NUDGE, 7: NUDGE, 10: STOP}


def test_another_cycle_after_the_nudge_gains_no_turns() -> None:
    turns = [once("a"), once("b"), once("b"), once("b"), once("a"), once("b"), once("a")]
    assert judged(turns) == {4: NUDGE, 7: STOP}


def test_order_of_parallel_calls_does_not_matter() -> None:
    there, back = [*SAME, *once("search")], [*once("search"), *SAME]
    assert judged([there, back] * 9) == {3: NUDGE, 6: STOP}


def test_same_call_twice_in_a_turn_counts_once() -> None:
    turn = [*once("roll", "1"), *once("roll", "6")]
    assert judged([turn, turn[::-1]] * 9) == {3: NUDGE, 6: STOP}


def test_spelling_of_arguments_does_not_matter() -> None:
    one, other = once("f", arguments='{"a": 1, "b": 2}'), once("f", arguments='{"b":2,"a":1}')
    assert judged([one, other] * 9) == {3: NUDGE, 6: STOP}


@pytest.mark.parametrize("broken", ["", "{", "[" * 100_000, "9" * 5_000, '{"a": "\\ud800"}', "null"])
def test_arguments_may_be_broken(broken: str) -> None:
    assert judged([once("f", arguments=broken)] * 9) == {3: NUDGE, 6: STOP}


def test_repetitions_of_the_source_do_not_count_for_the_target() -> None:
    """Each agent may look the same thing up: a filter may have hidden it from the next."""
    progress = Progress()
    for _ in range(5):
        progress.tool_results(SAME)
    progress.handed_over("a", "b")
    for _ in range(2):
        progress.tool_results(SAME)
        assert not progress.needs_nudge
        assert not progress.is_stuck
    progress.tool_results(SAME)
    assert progress.needs_nudge


def test_results_may_come_from_a_generator() -> None:
    assert judged((result for result in SAME) for _ in range(9)) == {3: NUDGE, 6: STOP}


def test_turn_without_calls_is_not_counted() -> None:
    assert judged([*[SAME] * 2, *[[]] * 9]) == {}


def test_repeated_tools_are_named() -> None:
    progress = Progress()
    for number in range(5):
        progress.tool_results(once("ab"[number % 2]))
    assert progress.needs_nudge
    assert progress.repeated_tools == "a, b"


def test_only_five_repeated_tools_are_named() -> None:
    progress = Progress()
    for _ in range(3):
        progress.tool_results([(f"t{number}", "{}", "same") for number in range(8)])
    assert progress.repeated_tools == "t0, t1, t2, t3, t4, 3 more"


# -- whatever the calls --

SMALL = st.sampled_from("abc")
WORLD = st.dictionaries(st.tuples(SMALL, SMALL), SMALL, min_size=1, max_size=5)
"""The constant result of each call."""


@given(st.data())
def test_run_without_progress_is_stopped(data: st.DataObject) -> None:
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
def test_every_cycle_ends(circle: list[list[str]], before: int) -> None:
    """Of any length and with parallel calls, after any number of turns that were good."""
    good = [once("good", str(number)) for number in range(before)]
    loop = [[(name, "{}", "same") for name in made] for made in circle]
    told = judged([*good, *loop * 99])
    assert max(told) <= before + 2 * len(circle) + 4 + len(circle)
    assert told[max(told)] == STOP


STEPS = st.sampled_from(["new call", "new arguments", "new result", "new beside old", "old", "a transfer"])


@given(st.lists(STEPS, max_size=80))
def test_run_with_progress_is_never_stopped(steps: list[str]) -> None:
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
            assert not progress.is_repeated(str(agents[-1]), str(there))
            progress.handed_over(str(agents[-1]), str(there))
            agents.append(there)
        assert not progress.needs_nudge
        assert not progress.is_stuck


@given(st.lists(st.tuples(SMALL, SMALL, SMALL), max_size=60))
def test_memory_grows_with_different_calls_only(made: list[tuple[str, str, str]]) -> None:
    progress = Progress()
    for one in made:
        progress.tool_results([one])
    different = len({(name, arguments) for name, arguments, _ in made})
    assert len(progress.answers) == different
    assert len(progress.times) <= different


def test_repetition_is_counted_after_a_long_time_of_progress() -> None:
    progress = Progress()
    for number in range(1500):
        progress.tool_results(once("poll", f"answer {number}"))
    for number in range(2):
        progress.tool_results(once("poll", "answer 1499"))
        assert progress.idle == number + 1


@given(st.lists(st.lists(st.tuples(SMALL, SMALL, SMALL), min_size=1, max_size=3), max_size=30))
def test_digests_count_as_whole_texts_would(turns: list[list[tuple[str, str, str]]]) -> None:
    progress, answers, idle = Progress(), dict[tuple[str, str], set[str]](), 0
    for made in turns:
        found = dict[tuple[str, str], set[str]]()
        for name, arguments, output in made:
            found.setdefault((name, arguments), set()).add(output)
        is_new = any(answers.get(call) != outputs for call, outputs in found.items())
        idle = 0 if is_new else idle + 1
        answers |= found
        progress.tool_results(made)
        assert progress.idle == idle
