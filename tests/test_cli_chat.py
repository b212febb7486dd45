"""``interlock chat``: through a pipe, and in a terminal with Ctrl-C and colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from terminals import APP, Terminal, interlock

CTRL_C = "\x03"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def test_each_line_of_a_pipe_is_a_message(folder: Path) -> None:
    done = interlock("chat", "app:triage", cwd=folder, stdin="Hi\n\nAgain\n")
    assert done.returncode == 0
    assert re.sub(r"\d+\.\d s", "0.1 s", done.stdout).splitlines() == [
        "you: Hi",
        '  => triage -> refunds (reason="money")',
        "  > refund(order=7)",
        "  < refund: refunded order 7",
        "refunds: Order 7 is refunded.",
        "0.1 s | 30 in, 15 out, cost unknown | in all 45 tokens, cost unknown",
        "you: ",
        "you: Again",
        '  => triage -> refunds (reason="money")',
        "  > refund(order=7)",
        "  < refund: refunded order 7",
        "refunds: Order 7 is refunded.",
        "0.1 s | 30 in, 15 out, cost unknown | in all 90 tokens, cost unknown",
    ]
    assert done.stderr == ""


def test_tokens_and_money_of_each_answer_and_in_all(folder: Path) -> None:
    done = interlock("chat", "app:priced", cwd=folder, stdin="Hi\nHi\n")
    lines = done.stdout.splitlines()
    assert lines[-1].split(" | ")[1:] == [
        "800 in (300 cached), 40 out, $0.0012",
        "in all 1,680 tokens, $0.0024",
    ]


def test_the_conversation_survives_a_turn_that_fails(folder: Path) -> None:
    done = interlock("chat", "app:broken", cwd=folder, stdin="one\ntwo\n")
    assert "no shop today" in done.stdout
    assert "broken: 2 from you" in done.stdout
    assert done.returncode == 1, "a script is told"


def test_new_forgets_the_conversation(folder: Path) -> None:
    done = interlock("chat", "app:stuck", cwd=folder, stdin="/new\n/quit\nnever\n")
    assert "forgotten" in done.stdout
    assert "never" not in done.stdout


def test_no_terminal_obeys_what_a_model_writes(folder: Path) -> None:
    done = interlock("chat", "app:hostile", cwd=folder, stdin="Hi\n")
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert r"\u001b[2J\u001b]0;evil\u0007 \u202egnp.exe <b>List<int></b>" + "\nend\n" in done.stdout


def test_a_terminal_may_have_plain_text(folder: Path) -> None:
    terminal = Terminal("chat", "app:painter", "--plain", cwd=folder)
    terminal.wait_for("you: ")
    terminal.type("Hi\n")
    assert "painter: A **bold** word." in terminal.wait_for("in all")
    assert terminal.leave() == 0


def test_a_terminal_gets_markdown_and_colours(folder: Path) -> None:
    terminal = Terminal("chat", "app:painter", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    shown = terminal.wait_for("in all")
    assert "\x1b[1;36mpainter\x1b[0m" in shown
    assert "\x1b[1mbold\x1b[0m" in shown
    assert "```" not in shown.rsplit("\x1b[2K", 1)[-1]
    assert terminal.leave() == 0


def test_no_color_is_obeyed(folder: Path) -> None:
    terminal = Terminal("chat", "app:painter", cwd=folder, NO_COLOR="1")
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    assert "\x1b[1;36m" not in terminal.wait_for("in all")
    assert terminal.leave() == 0


def test_rich_does_not_obey_a_model_either(folder: Path) -> None:
    terminal = Terminal("chat", "app:hostile", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    shown = terminal.wait_for("in all")
    assert r"\u001b[2J\u001b]0;evil\u0007 \u202egnp.exe <b>List<int></b>" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b]0;" not in shown
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown
    assert terminal.leave() == 0


def test_ctrl_c_stops_the_reply_and_the_chat_goes_on(folder: Path) -> None:
    terminal = Terminal("chat", "app:stuck", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    terminal.wait_for("Half a")
    terminal.type(CTRL_C)
    terminal.wait_for("Stopped.")
    terminal.wait_for("you>")
    terminal.type("And now?\n")
    terminal.wait_for("2 from you")
    assert terminal.leave() == 0
    assert "Traceback" not in terminal.shown


def test_a_second_ctrl_c_ends_the_chat(folder: Path) -> None:
    terminal = Terminal("chat", "app:stuck", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    terminal.wait_for("Half a")
    terminal.type(CTRL_C)
    terminal.wait_for("you>")
    assert terminal.ended_by(CTRL_C) == 0
    assert "Traceback" not in terminal.shown


def test_a_tool_that_cannot_be_stopped_holds_up_nothing(folder: Path) -> None:
    terminal = Terminal("chat", "app:napper", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    terminal.wait_for("nap runs")
    terminal.type(CTRL_C)
    terminal.wait_for("Stopped.")
    terminal.wait_for("you>")
    terminal.type("And now?\n")
    terminal.wait_for("2 from you")
    assert terminal.leave() == 0
    assert "Traceback" not in terminal.shown
