"""``routelock chat``: through a pipe, and in a terminal with Ctrl-C and colours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import APP, Terminal, routelock

CTRL_C = "\x03"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def test_each_line_of_a_pipe_is_a_message(folder: Path) -> None:
    done = routelock("chat", "app:triage", cwd=folder, stdin="Hi\n\nAgain\n")
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
    done = routelock("chat", "app:priced", cwd=folder, stdin="Hi\nHi\n")
    lines = done.stdout.splitlines()
    assert lines[-1].split(" | ")[1:] == [
        "800 in (300 cached), 40 out, $0.0012",
        "in all 1,680 tokens, $0.0024",
    ]


def test_the_conversation_survives_a_turn_that_fails(folder: Path) -> None:
    done = routelock("chat", "app:broken", cwd=folder, stdin="one\ntwo\n")
    assert "no shop today" in done.stdout
    assert "broken: 2 from you" in done.stdout
    assert done.returncode == 1, "a script is told"


def test_new_forgets_the_conversation(folder: Path) -> None:
    done = routelock("chat", "app:stuck", cwd=folder, stdin="/new\n/quit\nnever\n")
    assert "forgotten" in done.stdout
    assert "never" not in done.stdout


def test_control_sequences_of_a_model_are_escaped(folder: Path) -> None:
    done = routelock("chat", "app:hostile", cwd=folder, stdin="Hi\n")
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


def test_rich_escapes_control_sequences_too(folder: Path) -> None:
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


def test_ctrl_c_stops_only_the_reply(folder: Path) -> None:
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


# Calls that wait for approval


def lines_of(stdout: str) -> list[str]:
    return [line for line in stdout.splitlines() if " | in all " not in line]


def test_each_waiting_call_is_asked_about(folder: Path) -> None:
    done = routelock("chat", "app:payer", cwd=folder, stdin="Hi\ny\ntoo much\n\nalways\n")
    assert lines_of(done.stdout) == [
        "you: Hi",
        "  ? payer wants to call pay(amount=4)",
        "Allow it? y, n, always, or why not: y",
        "  ? payer wants to call pay(amount=5)",
        "Allow it? y, n, always, or why not: too much",
        "  > pay(amount=4)",
        "  < pay: 4 paid",
        "  ! pay: This call was not approved: too much",
        "  ? payer wants to call pay(amount=6)",
        "Allow it? y, n, always, or why not: ",
        "Allow it? y, n, always, or why not: always",
        "  > pay(amount=6)",
        "  < pay: 6 paid",
        "  > pay(amount=6)",
        "  < pay: 6 paid",
        "payer: 1 from you",
    ]
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].endswith("60 tokens, cost unknown"), "no turn counts twice"


@pytest.mark.parametrize("end", ["", "/quit\nnever\n"])
def test_an_undecided_call_is_not_made(folder: Path, end: str) -> None:
    done = routelock("chat", "app:payer", cwd=folder, stdin=f"Hi\ny\n{end}")
    assert "4 paid" not in done.stdout
    said = "None of these calls was made: pay(amount=4), pay(amount=5)."
    assert said in done.stdout, "the one that was approved is named as well"
    assert "never" not in done.stdout
    assert done.returncode == 3, "a script is told"


def test_fields_of_a_question_are_asked_for(folder: Path) -> None:
    done = routelock("chat", "app:librarian", cwd=folder, stdin="Hi\ny\nnorth\ntwo\n2\n\n")
    assert lines_of(done.stdout)[1:] == [
        '  > lend(title="Emma")',
        '  ? librarian wants to call lend(title="Emma")',
        "  ? Which branch?",
        "Answer it? y, n, or why not: y",
        "branch (north, south): north",
        "copies [1]: two",
        "copies [1]: 2",
        "gift: ",
        '  > lend(title="Emma")',
        "  < lend: Emma: {'copies': 2, 'branch': 'north'}",
        "librarian: 1 from you",
    ]


def test_a_question_may_be_declined(folder: Path) -> None:
    done = routelock("chat", "app:librarian", cwd=folder, stdin="Hi\nnot today\n")
    assert "  < lend: Emma: not today" in done.stdout


def test_a_call_is_shown_whole_before_approval(folder: Path) -> None:
    done = routelock("chat", "app:hiding", cwd=folder, stdin="Hi\n")
    assert 'a to Mallory")' in done.stdout
    assert "\x1b" not in done.stdout


def test_ctrl_d_at_an_approval_makes_no_call(folder: Path) -> None:
    terminal = Terminal("chat", "app:payer", cwd=folder)
    terminal.wait_for("you>")
    terminal.type("Hi\n")
    terminal.wait_for("why not>")
    terminal.type("y\n")
    terminal.wait_for("why not>")
    terminal.type("\x04")
    terminal.wait_for("None of these calls was made: pay(amount=4), pay(amount=5).")
    terminal.wait_for("you>")
    terminal.type("Go on\n")
    terminal.wait_for("pay(amount=6)")
    terminal.wait_for("why not>")
    terminal.type("n\n")
    terminal.wait_for("not approved")
    assert "4 paid" not in terminal.shown
    assert "Traceback" not in terminal.shown
    terminal.wait_for("why not>")
    terminal.type("\x04")
    assert terminal.leave() == 0


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_text_of_before_the_question_approves_nothing(folder: Path, plain: tuple[str, ...]) -> None:
    asks = "why not: " if plain else "why not>"
    terminal = Terminal("chat", "app:late", *plain, cwd=folder)
    terminal.wait_for("you: " if plain else "you>")
    terminal.type("Hi\n")
    terminal.wait_for("late answers")
    terminal.type("yes\n")
    (folder / "go").touch()
    terminal.wait_for(asks)
    terminal.type("n\n")
    terminal.wait_for("not approved")
    terminal.wait_for("in all")
    assert "4 paid" not in terminal.shown
    assert terminal.leave() == 0


# Kept in a file


def test_a_kept_conversation_continues_with_its_agent(folder: Path) -> None:
    def chat(*lines: str) -> str:
        text = "".join(f"{line}\n" for line in lines)
        done = routelock("chat", "app:front", "--session", "chat.db", cwd=folder, stdin=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "billing: You said: Hi" in chat("Hi")
    stayed, forgotten = chat("And?", "/new", "Hi").split("/new")
    assert "The conversation continues after 4 messages; billing answers." in stayed
    assert "billing: You said: And?" in stayed
    assert "=>" not in stayed
    assert "=> front -> billing" in forgotten
    assert "continues after 4 messages; billing answers" in chat()


def test_a_wrong_session_file_is_an_error(folder: Path) -> None:
    done = routelock("chat", "app:front", "--session", ".", cwd=folder, stdin="Hi\n")
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


# Without rich


@pytest.fixture
def poor(tmp_path: Path) -> str:
    """Return the path of a Python that has all packages but rich and what it needs."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for each in map(Path, sys.path):
        if each.name == "site-packages":
            for package in each.iterdir():
                if not package.name.startswith(("rich", "pygments", "markdown_it")):
                    (packages / package.name).symlink_to(package)
    rest = [each for each in sys.path if each and Path(each).name != "site-packages"]
    return os.pathsep.join([*map(str, map(Path.resolve, map(Path, rest))), str(packages)])


def test_without_rich_a_terminal_gets_plain_text(folder: Path, poor: str) -> None:
    bare = [sys.executable, "-S", "-c", "import rich"]
    missing = subprocess.run(bare, env={**os.environ, "PYTHONPATH": poor}, capture_output=True, text=True)
    assert "No module named 'rich'" in missing.stderr
    terminal = Terminal("chat", "app:painter", cwd=folder, python=["-S"], PYTHONPATH=poor)
    terminal.wait_for("you: ")
    terminal.type("Hi\n")
    shown = terminal.wait_for("in all")
    assert "painter: A **bold** word." in shown
    assert "\x1b[1m" not in shown
    assert terminal.leave() == 0
    assert "Traceback" not in terminal.shown
