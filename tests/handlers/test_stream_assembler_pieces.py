"""Values that arrive in pieces are whole at the end, and nothing of the sender's is changed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.handlers.stream_assembler import add_blocks, join_surrogates, joined, merge


def merged(*pieces: object, key: str = "x") -> Any:
    into: dict[str, Any] = {}
    for piece in pieces:
        merge(into, key, piece)
    return joined(into).get(key)


@given(st.text(st.characters(min_codepoint=0xFFFF), max_size=6), st.text(max_size=3), st.data())
def test_split_character_is_joined(wide: str, more: str, data: st.DataObject) -> None:
    text = wide + more + wide
    units = text.encode("utf-16-le")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(units) // 2))))
    ends = zip([0, *cuts], [*cuts, len(units) // 2], strict=True)
    pieces = [units[2 * a : 2 * b].decode("utf-16-le", "surrogatepass") for a, b in ends]
    assert join_surrogates(pieces) == text


def test_half_a_character_that_stays_alone_is_left() -> None:
    assert join_surrogates(["a\ud83d", "b"]) == "a\ud83db"


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (("a", "b", "", None, "c"), "abc"),
        (([1], [2, 3], []), [1, 2, 3]),
        (({"a": "x", "b": 1}, {"a": "y", "c": [1]}, {"c": [2]}), {"a": "xy", "b": 1, "c": [1, 2]}),
        ((1, 2), 2),
        ((0,), 0),
        ((False,), False),
        (("a", ["b"]), ["b"]),
        ((["a"], "b"), "b"),
        (("a", "b", {"c": 1}), {"c": 1}),
        (({}, None, "", []), None),
        (({"refusal": None, "more": {"empty": ""}},), None),
    ],
)
def test_merging(pieces: tuple[object, ...], whole: object) -> None:
    assert merged(*pieces) == whole


def test_repeated_labels_are_not_joined() -> None:
    assert merged("a", "a", "b", key="id") == "b"


@given(st.lists(st.text()))
def test_text_is_the_sum_of_its_pieces(pieces: list[str]) -> None:
    assert (merged(*pieces) or "") == "".join(pieces)


@given(st.lists(st.lists(st.integers() | st.dictionaries(st.text(), st.integers()))))
def test_lists_are_the_sum_of_their_pieces(pieces: list[list[object]]) -> None:
    before = copy.deepcopy(pieces)
    assert (merged(*pieces) or []) == [item for piece in pieces for item in piece]
    assert pieces == before


def test_blocks_without_a_signature_grow_and_signed_ones_end() -> None:
    blocks: list[dict[str, Any]] = []
    said = [
        {"type": "thinking", "thinking": text, "signature": sign} for text, sign in [("a", None), ("b", "S")]
    ]
    told = add_blocks(blocks, [*said, {"type": "thinking", "thinking": "c"}], "thinking")
    assert told == "abc"
    assert [joined(block) for block in blocks] == [
        {"type": "thinking", "thinking": "ab", "signature": "S"},
        {"type": "thinking", "thinking": "c"},
    ]


def test_blocks_of_another_index_or_kind_are_their_own() -> None:
    blocks: list[dict[str, Any]] = []
    said = [
        {"type": "reasoning.text", "text": "a", "index": 0},
        {"type": "reasoning.text", "text": "b", "index": 1},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
        {"type": "reasoning.encrypted", "data": "y", "index": 1},
    ]
    add_blocks(blocks, said, "text")
    assert [joined(block) for block in blocks] == said


def test_none_adds_no_blocks() -> None:
    blocks: list[dict[str, Any]] = []
    assert add_blocks(blocks, None, "thinking") == ""
    assert blocks == []
