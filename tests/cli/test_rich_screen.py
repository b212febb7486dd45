"""Output in a terminal of any height is complete, in order, and printed once."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import APP, Terminal, environment, let_go, lines_on
from waiting import PATIENCE

CTRL_C = "\x03"
LOW = {"LINES": "12", "COLUMNS": "60"}
WORDS = [f"word {number}." for number in range(40)]
PARAGRAPHS = "\n\n".join(WORDS)
ITEMS = "\n".join(f"- {word}" for word in WORDS)
CODE = "\n".join(["~~~", *WORDS, "~~~"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def chat_with(folder: Path, agent: str, text: str, **settings: str) -> Terminal:
    """Begin a chat with an agent that writes a text."""
    (folder / "reply").write_text(text)
    terminal = Terminal("chat", f"app:{agent}", cwd=folder, **settings)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    return terminal


def words_on(terminal: Terminal, height: int = 12) -> list[str]:
    return re.findall(r"word \d+\.", " ".join(" ".join(lines_on(terminal.shown, height)).split()))


@pytest.mark.parametrize(
    "text", [PARAGRAPHS, ITEMS, CODE, " ".join(WORDS)], ids=["many", "list", "code", "one"]
)
def test_a_reply_may_be_higher_than_the_terminal(folder: Path, text: str) -> None:
    let_go(folder)
    terminal = chat_with(folder, "writer", text, **LOW)
    terminal.wait_for("in all")
    assert terminal.leave() == 0
    assert words_on(terminal) == WORDS


def test_the_end_of_a_high_block_is_seen_while_it_grows(folder: Path) -> None:
    terminal = chat_with(folder, "writer", ITEMS, **LOW)
    terminal.wait_for(WORDS[-1])
    assert words_on(terminal)[-1] == WORDS[-1]
    let_go(folder)
    assert terminal.leave() == 0


def test_blocks_that_are_whole_can_be_scrolled_to_while_the_rest_grows(folder: Path) -> None:
    terminal = chat_with(folder, "writer", PARAGRAPHS, **LOW)
    terminal.wait_for(WORDS[-1])
    assert words_on(terminal) == WORDS
    let_go(folder)
    assert terminal.leave() == 0


def test_text_before_a_call_and_output_of_tools_stay(folder: Path) -> None:
    let_go(folder)
    terminal = chat_with(folder, "worker", PARAGRAPHS, **LOW)
    terminal.wait_for("in all")
    assert terminal.leave() == 0
    lines = [line.strip() for line in lines_on(terminal.shown, 12)]
    assert words_on(terminal) == WORDS
    for line in (
        "> mumble()",
        "a line of the tool's",
        "and half a line",
        "< mumble: mumbled",
        "That is all.",
    ):
        assert lines.count(line) == 1, line
    assert lines.index(WORDS[-1]) < lines.index("> mumble()") < lines.index("That is all.")


@pytest.mark.parametrize("text", [PARAGRAPHS, ITEMS], ids=["many", "list"])
def test_ctrl_c_keeps_the_text(folder: Path, text: str) -> None:
    terminal = chat_with(folder, "writer", text, **LOW)
    terminal.wait_for(WORDS[-1])
    terminal.type(CTRL_C)
    terminal.wait_for("Stopped.")
    assert terminal.leave() == 0
    assert words_on(terminal) == WORDS
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize("text", [PARAGRAPHS, ITEMS], ids=["many", "list"])
def test_a_failure_keeps_the_text(folder: Path, text: str) -> None:
    let_go(folder)
    terminal = chat_with(folder, "dying", text, **LOW)
    terminal.wait_for("the line is dead")
    assert terminal.leave() == 0
    assert words_on(terminal) == WORDS


def test_the_cursor_is_seen_again(folder: Path) -> None:
    terminal = chat_with(folder, "writer", PARAGRAPHS, **LOW)
    terminal.wait_for(WORDS[-1])
    terminal.type(CTRL_C)
    terminal.wait_for("Stopped.")
    assert terminal.leave() == 0
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l")


def test_no_color_removes_all_colours(folder: Path) -> None:
    let_go(folder)
    terminal = chat_with(folder, "worker", f"{PARAGRAPHS}\n\n```python\nx = 1\n```", NO_COLOR="1", **LOW)
    terminal.wait_for("in all")
    assert terminal.leave() == 0
    assert not re.search(r"\x1b\[(\d+;)*(3|4|9|10)\d(;\d+)*m", terminal.shown)


@pytest.mark.parametrize("columns", ["20", "40"])
def test_a_narrow_terminal_shows_all(folder: Path, columns: str) -> None:
    let_go(folder)
    text = f"{PARAGRAPHS}\n\n| one | two |\n|---|---|\n| supercalifragilistic | expialidocious_too |\n"
    terminal = chat_with(folder, "writer", text, LINES="12", COLUMNS=columns)
    terminal.wait_for("in all")
    assert terminal.leave() == 0
    assert words_on(terminal) == WORDS
    table = "\n".join(lines_on(terminal.shown, 12)).partition(WORDS[-1])[2]
    assert "…" not in table


def test_typed_ahead_input_is_hidden_and_kept(folder: Path) -> None:
    terminal = chat_with(folder, "writer", "Half a reply", **LOW)
    terminal.wait_for("reply")
    terminal.type("Later\n")
    let_go(folder)
    assert "Later" not in terminal.wait_for("in all")
    terminal.wait_for("2 from you")
    assert terminal.leave() == 0


# What takes more than a second


def test_slow_loading_is_named_in_a_line_that_stays(folder: Path) -> None:
    terminal = Terminal("graph", "app:slow", "--table", cwd=folder)
    terminal.wait_for("loading app:slow ...")
    let_go(folder)
    assert terminal.ended() == 0
    lines = lines_on(terminal.shown, 40)
    assert lines[:2] == ["loading app:slow ...", "a line of the app's"]
    assert lines[2].startswith("| source | target |")
    assert "\x1b" not in terminal.shown


def test_a_terminal_that_cannot_go_back_gets_a_line(folder: Path) -> None:
    terminal = Terminal("graph", "app:slow", "--table", cwd=folder, TERM="dumb")
    terminal.wait_for("loading app:slow ...\r\n")
    let_go(folder)
    assert terminal.ended() == 0
    assert "\x1b" not in terminal.shown


def test_a_plain_chat_gets_a_line(folder: Path) -> None:
    (folder / "reply").write_text("")
    terminal = Terminal("chat", "app:writer", "--plain", cwd=folder)
    terminal.wait_for("you: ")
    terminal.type("Hi\n")
    shown = terminal.wait_for("writer answers ...\r\n")
    (folder / "reply").write_text("At last.")
    let_go(folder)
    shown += terminal.wait_for("in all")
    assert "\r\nwriter: At last.\r\n" in shown
    assert "\x1b[2K" not in shown
    assert terminal.leave() == 0


def test_a_plain_chat_loads_without_anything_that_moves(folder: Path) -> None:
    terminal = Terminal("chat", "app:slow", "--plain", cwd=folder)
    assert "\x1b[2K" not in terminal.wait_for("loading app:slow ...\r\n")
    let_go(folder)
    assert terminal.leave() == 0
    assert "\x1b[2K" not in terminal.shown


def test_output_of_the_app_stays_on_stdout(folder: Path) -> None:
    """A line on stderr takes nothing from stdout, which may be a file."""
    end, terminal = pty.openpty()
    command = [sys.executable, "-m", "routelock", "run", "app:slow", "Hi"]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(TERM="xterm-256color"),
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
    ) as process:
        os.close(terminal)
        said = ""
        while "loading app:slow" not in said:
            said += os.read(end, 65536).decode()
        let_go(folder)
        stdout, _ = process.communicate(timeout=PATIENCE)
    os.close(end)
    assert stdout == "a line of the app's\nYou said: Hi\n"
