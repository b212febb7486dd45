"""The cut that parts no call from its answers; filters and the snapshots use it, too."""

from __future__ import annotations

from typing import Any

import pytest

from routelock.history.messages import Message
from routelock.history.trim import newest, with_pairs

SYSTEM: Message = {"role": "system", "content": "s"}
USER: Message = {"role": "user", "content": "u"}


def asks(*ids: str) -> Message:
    calls: Any = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}} for one in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answers(call_id: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": "42"}


TALK = [SYSTEM, USER, asks("a", "b"), answers("a"), answers("b"), USER]


@pytest.mark.parametrize(
    ("count", "kept"),
    [(0, [0]), (1, [0, 5]), (2, [0, 5]), (3, [0, 5]), (4, [0, 2, 3, 4, 5]), (5, [0, 1, 2, 3, 4, 5])],
)
def test_calls_and_answers_go_together(count: int, kept: list[int]) -> None:
    assert newest(TALK, count) == kept


def test_last_group_is_kept_even_if_it_does_not_fit() -> None:
    assert newest(TALK[:5], 1) == [0, 2, 3, 4]


def test_system_message_does_not_separate_call_and_result() -> None:
    assert newest([USER, asks("a"), SYSTEM, answers("a")], 2) == [1, 2, 3]


def test_result_without_a_call_is_a_group() -> None:
    assert newest([answers("a"), USER], 1) == [1]
    assert newest([answers("a")], 1) == [0]


def test_empty_history_stays_empty() -> None:
    assert newest([], 5) == []


def test_pairs_are_found_wherever_they_stand() -> None:
    talk = [asks("a"), USER, answers("a"), USER]
    assert with_pairs(talk, [2, 3]) == [0, 2, 3]
    assert with_pairs(talk, [0]) == [0, 2]
    assert with_pairs(talk, [3]) == [3]


def test_repeated_id_belongs_to_the_newest_call() -> None:
    talk = [asks("a"), answers("a"), asks("a"), answers("a")]
    assert with_pairs(talk, [3]) == [2, 3]
    assert with_pairs(talk, [1]) == [0, 1]


def test_no_indexes_give_no_pairs() -> None:
    assert with_pairs(TALK, []) == []
