"""Markdown in pieces: nothing is lost, and a fence of code stays whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.cli.blocks import Blocks

PARTS = st.sampled_from(["a", "\n", "\n\n", "```", "~~~", "```py\n", "- b", "    c", " ", "| x |"])


def _cut(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    return [*(block for piece in pieces for block in blocks.feed(piece)), *blocks.end()]


@given(st.lists(PARTS))
def test_nothing_is_lost_and_the_pieces_do_not_matter(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert "\n".join(_cut(pieces)).split() == text.split()
    assert _cut(pieces) == _cut([text]) == _cut(list(text))


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\n\ntwo", ["one", "two"]),
        ("one\ntwo", ["one\ntwo"]),
        ("```\na\n\nb\n```\n\nend", ["```\na\n\nb\n```", "end"]),
        ("~~~\n```\n\nx\n~~~\n\nend", ["~~~\n```\n\nx\n~~~", "end"]),
        ("- a\n\n  b\n\nc", ["- a\n\n  b", "c"]),
        ("```\nopen\n\nstill", ["```\nopen\n\nstill"]),
        ("\n\n \n", []),
    ],
)
def test_blocks_end_where_markdown_ends_them(text: str, blocks: list[str]) -> None:
    assert _cut([text]) == blocks
