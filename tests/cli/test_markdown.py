"""Growing Markdown: printed parts do not change, and nothing is lost."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from routelock.cli.markdown import last_lines, lines, settled

PARTS = st.sampled_from(
    [
        "a",
        "\n",
        "\n\n",
        "```",
        "~~~",
        "```py\n",
        "- b",
        "    c",
        " ",
        "| x |",
        "\n|---|\n",
        "1. ",
        "> ",
        "# ",
        "===",
    ]
)
TEXTS = st.lists(PARTS).map("".join)

EVERYTHING = (Path(__file__).parent / "everything.md").read_text()


def shown(text: str, *, width: int = 80, gap: bool = False) -> str:
    console = Console(width=width, file=(out := io.StringIO()), highlight=False, markup=False, emoji=False)
    console.print(lines(console, text, gap=gap))
    return out.getvalue()


@given(TEXTS, TEXTS)
def test_settled_blocks_do_not_change(text: str, more: str) -> None:
    end = settled(text)
    done = shown(text[:end])
    assert done + shown((text + more)[end:], gap=bool(done)) == shown(text + more)


@given(st.lists(st.sampled_from(["a", "b c", "\n", "\n\n", "- d", "> e", "[f]: g", "h\n===\n"])).map("".join))
def test_no_letter_is_lost(text: str) -> None:
    assert "".join(filter(str.isalpha, shown(text))) == "".join(filter(str.isalpha, text))


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one\n\ntwo", ""),
        ("one\n\ntwo\n", "one\n\n"),
        ("one\ntwo\n", ""),
        ("```\na\n\nb\n```\n\nend\n", "```\na\n\nb\n```\n\n"),
        ("~~~\n```\n\nx\n", ""),
        ("- a\n\n  b\n\nc\n", "- a\n\n  b\n\n"),
        ("1. a\n\n2", ""),
        ("# A\nb\n", "# A\n"),
        ("\n\n \n", ""),
    ],
)
def test_the_last_block_may_still_change(text: str, done: str) -> None:
    assert text[: settled(text)] == done


@pytest.mark.parametrize("width", [12, 20, 40, 80])
def test_no_terminal_is_too_narrow(width: int) -> None:
    kept = shown(EVERYTHING, width=width)
    assert sorted(filter(str.isalnum, kept)) == sorted(filter(str.isalnum, EVERYTHING))


def test_a_picture_and_a_definition_show_where_they_lead() -> None:
    text = shown("![a map](https://maps.test/1.png)\n\n[1]: https://notes.test/\n")
    assert "a map (https://maps.test/1.png)" in text
    assert "[1]: https://notes.test/" in text


def test_one_empty_line_is_between_blocks() -> None:
    text = shown("one\n\n\n\n```\nx\n\ny\n```\n\n- b\n\n\nEnd\n")
    assert text.split("\n") == ["one", "", " x", "", " y", "", " • b", "", "End", ""]


@pytest.mark.parametrize("size", [10, 5000])
def test_the_end_of_a_growing_text_is_drawn(size: int) -> None:
    console = Console(width=80, file=(out := io.StringIO()))
    console.print(last_lines(console, "\n\n".join(f"line {n}" for n in range(size)), 3))
    assert out.getvalue().split("\n")[-4:] == [f"line {size - 2}", "", f"line {size - 1}", ""]
