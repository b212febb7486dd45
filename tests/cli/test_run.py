"""``routelock run``: its output and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import APP, app_in, environment, routelock
from waiting import PATIENCE

from routelock.cli.main import main


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module with agents, in the folder that we are in."""
    with app_in(tmp_path, monkeypatch) as name:
        yield name


def test_the_final_output_is_all_that_stdout_gets(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:triage", "Hi"]) == 0
    out, err = capsys.readouterr()
    assert out == "Order 7 is refunded.\n"
    assert err == ""


def test_steps_go_to_stderr(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:triage", "Hi", "--steps"]) == 0
    out, err = capsys.readouterr()
    assert out == "Order 7 is refunded.\n"
    assert err.splitlines() == [
        '  => triage -> refunds (reason="money")',
        "  > refund(order=7)",
        "  < refund: refunded order 7",
    ]


def test_json_is_the_whole_result(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:triage", "Hi", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["final_output"] == "Order 7 is refunded."
    assert document["last_agent"] == "refunds"
    assert document["usage"]["requests"] == 3
    assert [each["target"] for each in document["handoffs"]] == ["refunds"]
    assert document["messages"][0] == {"role": "user", "content": "Hi"}
    assert document["error"] is None


def test_json_of_a_failed_run_has_its_messages(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:broken", "Hi", "--json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert "no shop today" in document["error"]["message"]
    assert document["messages"] == [{"role": "user", "content": "Hi"}]
    assert err == ""


def test_a_typed_output_is_printed_as_json(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:typed", "Hi"]) == 0
    assert json.loads(capsys.readouterr().out) == {"order": 7}


def test_a_run_that_fails_is_one_line(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:broken", "Hi"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("routelock: ")
    assert "no shop today" in err
    assert err.count("\n") == 1
    assert "\x1b" not in err


def test_verbose_shows_where_it_failed(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:broken", "Hi", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_external_call_is_3(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:asker", "Hi", "--config", f"{app}:external", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["pending"][0]["function"]["name"] == "where"


def test_a_call_that_waits_for_approval_is_3(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:payer", "Pay"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "routelock: payer's pay(amount=4), payer's pay(amount=5) wait for approval, and were not made; "
        "use routelock chat to approve.\n"
    )


def test_json_has_the_question_of_a_tool(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:librarian", "Emma", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["interruptions"][0]["question"] == "Which branch?"


def test_json_has_the_calls_that_wait_for_approval(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:payer", "Pay", "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["stop_reason"] == "requires_action"
    assert [(one["agent"], one["name"], one["arguments"]) for one in document["interruptions"]] == [
        ("payer", "pay", '{"amount": 4}'),
        ("payer", "pay", '{"amount": 5}'),
    ]
    calls = [call["id"] for message in document["messages"] for call in message.get("tool_calls", ())]
    assert [one["call_id"] for one in document["interruptions"]] == calls


def test_a_long_call_that_waits_is_one_line_that_no_terminal_obeys(
    app: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{app}:hiding", "Pay"]) == 3
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert len(err) < 500


def test_a_recorded_run_that_waits_is_3_too(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "pay.yaml", f"{app}:payer", "Pay"]) == 3
    assert "wait for approval" in capsys.readouterr().err


def test_an_external_call_is_named(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:asker", "Hi", "--config", f"{app}:external"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "routelock: where() waits for a result of the app: see RunResult.pending.\n"


def test_the_context_is_that_of_the_spec(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:reader", "Hi", "--context", f"{app}:make_context"]) == 0
    assert capsys.readouterr().out == "from the context\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--agent", "unknown"], "There is no agent 'unknown'"),
        (["--max-turns", "0"], "--max-turns"),
        (["--config", "{}:triage"], "must be a RunConfig"),
        (["--config", "nowhere"], "module:attribute"),
    ],
)
def test_a_wrong_argument_is_2(
    app: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{app}:triage", "Hi", *(each.format(app) for each in arguments)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("options", [["--steps"], ["--max-turns", "9"], ["--agent", "triage", "--steps"]])
def test_the_text_may_stand_behind_options(
    app: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{app}:triage", *options, "Hi there"]) == 0
    assert capsys.readouterr().out == "Order 7 is refunded.\n"


@pytest.mark.parametrize("more", [["Hi", "there"], ["Hi", "--nothing"], ["--nothing"]])
def test_surplus_arguments_are_errors(app: str, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", f"{app}:triage", "--steps", *more])
    assert "unrecognized arguments" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["agent", "context"])
@pytest.mark.parametrize(
    ("function", "said"),
    [("later", "is async"), ("of_two", "has to take no arguments"), ("Needs", "has to take no arguments")],
)
def test_a_function_that_cannot_be_called_is_an_error(
    app: str, which: str, function: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A coroutine would be passed as the context, and an error of the call is not one of the function."""
    more = "async def later(): ...\ndef of_two(a, b): ...\nclass Needs:\n    def __init__(self, a): ...\n"
    with Path(f"{app}.py").open("a") as file:
        file.write(more)
    spec = f"{app}:{function}"
    given = [spec, "Hi"] if which == "agent" else [f"{app}:reader", "Hi", "--context", spec]
    assert main(["run", *given]) == 2
    err = capsys.readouterr().err
    assert (said in err, err.count("\n")) == (True, 1)


@pytest.mark.parametrize("command", [["trace", "gone"], ["graph", "{}:triage", "-o", "gone/x"]])
def test_a_missing_file_is_an_error_of_one_sentence(
    app: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([each.format(app) for each in command]) == 1
    assert capsys.readouterr().err.endswith("could not be opened: No such file or directory.\n")


def test_a_path_instead_of_a_module_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "shop/app.py:agent", "Hi"]) == 2
    assert "such as shop.app:agent" in capsys.readouterr().err


def test_another_agent_of_the_graph_may_begin(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{app}:triage", "Hi", "--agent", "refunds", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["last_agent"] == "refunds"


def test_the_agent_that_begins_may_name_the_one_it_was_found_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with app_in(tmp_path, monkeypatch) as name:
        more = 'back = Agent("back", model=ScriptedHandler([count]), handoffs=["ahead"])\n'
        more += 'ahead = Agent("ahead", model=ScriptedHandler([]), handoffs=[back])\n'
        with (tmp_path / f"{name}.py").open("a") as file:
            file.write(more)
        assert main(["run", f"{name}:ahead", "Hi", "--agent", "back"]) == 0
    assert capsys.readouterr().out == "1 from you\n"


def test_stdin_is_the_text(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = routelock("run", "app:echo", cwd=tmp_path, stdin="From a pipe.\n")
    assert (done.stdout, done.returncode) == ("You said: From a pipe.\n\n", 0)


def test_an_empty_stdin_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = routelock("run", "app:echo", cwd=tmp_path, stdin="")
    assert done.returncode == 2
    assert "stdin was empty" in done.stderr


def test_a_trace_is_written_into_its_file(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{app}:triage", "Hi", "--trace", str(tmp_path / "runs.jsonl")]) == 0
    assert '"run_end"' in (tmp_path / "runs.jsonl").read_text("utf-8")


def test_a_trace_that_cannot_be_written_is_one_line_before_the_run(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"{app}:triage", "Hi", "--trace", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "it is a folder; name a file in it" in err


def _in_a_shell(command: str, folder: Path, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which $ROUTELOCK is the program and app.py has agents."""
    (folder / "app.py").write_text(APP)
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment(ROUTELOCK=f"{sys.executable} -m routelock", PYTHONUNBUFFERED=unbuffered),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def _without_a_reader(command: str) -> str:
    """Return a line of a shell in which a command writes into a pipe that has no reader any more."""
    return f"{{ until test -e left; do sleep 0.01; done; {command}; }} | {{ exec <&-; : >left; }}"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments", ["run app:triage Hi", "graph app:triage", "run app:triage Hi --steps 2>&1"]
)
def test_a_reader_that_leaves_is_141(tmp_path: Path, arguments: str, unbuffered: str) -> None:
    ended = _in_a_shell(_without_a_reader(f"$ROUTELOCK {arguments}; echo $? >code"), tmp_path, unbuffered)
    assert (tmp_path / "code").read_text() == "141\n"
    assert ended.stderr == ""


def test_help_without_a_reader_ends_quietly(tmp_path: Path) -> None:
    assert _in_a_shell(_without_a_reader("$ROUTELOCK --help"), tmp_path).stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_1(tmp_path: Path, unbuffered: str) -> None:
    ended = _in_a_shell("$ROUTELOCK run app:triage Hi >/dev/full", tmp_path, unbuffered)
    assert ended.returncode == 1
    assert ended.stderr == "routelock: [Errno 28] No space left on device\n"


@pytest.mark.parametrize(
    ("redirected", "out"), [("2>&-", "Order 7 is refunded.\n"), (">&-", ""), ("<&- >&- 2>&-", "")]
)
def test_streams_may_be_closed(tmp_path: Path, redirected: str, out: str) -> None:
    ended = _in_a_shell(f"$ROUTELOCK run app:triage Hi --steps {redirected}", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, out)


def test_invalid_bytes_of_stdin_are_escaped(tmp_path: Path) -> None:
    line = r"printf 'caf\351' | PYTHONIOENCODING=utf-8:strict $ROUTELOCK run app:echo"
    assert _in_a_shell(line, tmp_path).stdout == "You said: caf\\xe9\n"


def test_a_model_that_cannot_be_called_is_reported_without_litellm(app: str) -> None:
    """To load litellm takes seconds, and a missing key or a wrong name makes that useless."""
    said = "Hi, --model, openai/m", "Hi, --model, opnai/gpt-4o-mini"
    script = f"""
import sys
from routelock.cli.main import main
for each in {said}:
    print(main(["run", "{app}:triage", *each.split(", ")]), "litellm" in sys.modules)
"""
    without = {name: value for name, value in environment().items() if not name.startswith("OPENAI_")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=without, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "1 False\n1 False\n"
    no_key, wrong_name = done.stderr.splitlines()
    assert "There is no key for openai" in no_key
    assert "write 'openai/gpt-4o-mini'" in wrong_name
