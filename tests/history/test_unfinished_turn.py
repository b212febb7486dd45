"""What a turn still asks for is read off the transcript."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from routelock.history.messages import ItemKind, RunItem
from routelock.history.unfinished_turn import LeftOver, left_over

CALLS: list[Any] = [
    {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for call_id in ("a", "b")
]


def item(place: int, kind: ItemKind, message: Any, origin: str | None = None) -> RunItem:
    return RunItem(id=place, kind=kind, message=message, origin=origin)


def said(place: int, origin: str | None = "x", **more: Any) -> RunItem:
    return item(place, "model", {"role": "assistant", "content": "Hi.", **more}, origin)


def answer(place: int, call_id: str) -> RunItem:
    return item(place, "tool", {"role": "tool", "tool_call_id": call_id, "content": "Done."})


USER = item(0, "input", {"role": "user", "content": "Hi"})


def left(items: Sequence[RunItem], waiting: Collection[str] = (), turn: int = 1) -> LeftOver:
    found = left_over(items, 1, turn, waiting)
    return replace(found, calls=tuple(found.calls), cut_off=tuple(found.cut_off))


def test_nothing_is_left_over_before_the_first_turn() -> None:
    assert left([USER], turn=0) == LeftOver()


def test_turn_without_a_reply_needs_a_model_call() -> None:
    assert left([USER]) == LeftOver(call_again=True)


def test_broken_off_reply_is_hidden_from_the_next_attempt() -> None:
    broken = said(1, origin=None)
    assert left([USER, broken]) == LeftOver(call_again=True, cut_off=(broken,))


def test_a_reply_without_calls_is_still_to_be_taken() -> None:
    assert left([USER, said(1)]) == LeftOver(reply=said(1))


def test_calls_that_nobody_answered_are_left() -> None:
    items = [USER, said(1, tool_calls=CALLS), answer(2, "a")]
    assert left(items) == LeftOver(calls=tuple(CALLS[1:]))


def test_call_that_waits_for_an_agent_is_not_left_over() -> None:
    assert left([USER, said(1, tool_calls=CALLS)], ["a", "b"]) == LeftOver()


def test_turn_with_all_results_is_complete() -> None:
    items = [USER, said(1, tool_calls=CALLS), answer(2, "a"), answer(3, "b")]
    assert left(items) == LeftOver()
