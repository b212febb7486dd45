"""``routelock trace``: the steps of a run, from its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from terminals import app_in

from routelock import Agent, GuardrailResult, RunConfig, Runner, function_tool, tool
from routelock.cli.main import main
from routelock.errors import HandlerError, MaxTurnsExceeded, OutputGuardrailTripped
from routelock.history import Citation, Compact, VendorCall
from routelock.testing import ScriptedHandler, call, reply
from routelock.tracing.file import TraceFile


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with app_in(tmp_path, monkeypatch) as name:
        yield name


def test_a_trace_is_stepped_through(app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "runs.jsonl")
    assert main(["run", f"{app}:triage", "Hi", "--trace", file]) == 0
    assert main(["run", f"{app}:echo", "Second", "--trace", file]) == 0
    capsys.readouterr()
    assert main(["trace", file, "--run", "1"]) == 0
    told = [line[11:] for line in capsys.readouterr().out.splitlines()]
    assert told[0] == "run 1 begins with triage"
    assert "> refund(order=7)" in told
    assert "< refund: refunded order 7" in told
    assert "=> triage -> refunds, COMPLETED: money" in told or "=> triage -> refunds, COMPLETED" in told
    assert main(["trace", file, "--run", "-1", "--seen"]) == 0
    assert "      user: Second\n" in capsys.readouterr().out
    assert main(["trace", file, "--run", "3"]) == 2


@function_tool
def boom(word: str) -> str:
    """Fail."""
    raise ValueError(word)


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"{amount} paid"


def _stepped(
    file: Path,
    agent: Agent[Any],
    capsys: pytest.CaptureFixture[str],
    *,
    content: bool = True,
    max_turns: int = 9,
) -> list[str]:
    """Run an agent, and return the lines that its trace is stepped through in, without their times."""
    where = {"type": "function", "function": {"name": "where"}}
    config = RunConfig(trace=TraceFile(file, content=content), external_tools=[where])
    with suppress(HandlerError, MaxTurnsExceeded, OutputGuardrailTripped):
        Runner.run_sync(agent, "Hi", max_turns=max_turns, run_config=config)
    assert main(["trace", str(file), "--seen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.strip().rpartition(" s  ")[2] for line in lines]


def test_a_trace_without_content_has_error_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedHandler([call("boom", {"word": "quince"}), RuntimeError("quince")])
    agent = Agent("A", model=model, tools=[boom])
    told = _stepped(tmp_path / "t.jsonl", agent, capsys, content=False)
    assert "! boom: ValueError" in told
    assert "! A: ValueError" in told
    assert "! RuntimeError" in told
    assert any(line.startswith("run 1 ends, error: HandlerError (") for line in told)
    assert "quince" not in "".join(told)


def test_a_trace_shows_what_a_model_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    agent = Agent("A", model=ScriptedHandler([refused]))
    assert "replied: I will not." in _stepped(tmp_path / "t.jsonl", agent, capsys)


def test_a_trace_shows_what_the_vendor_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Citation(url="https://a.example/rain", title="Rain")
    searched = VendorCall(tool="web_search", input={"query": "rain"}, sources=[page])
    model = ScriptedHandler([reply("It rains.", vendor_calls=[searched], citations=[page])])
    told = _stepped(tmp_path / "t.jsonl", Agent("A", model=model), capsys)
    search = told.index('> web_search(query="rain"), run by the vendor: 1 source')
    assert told[search - 1].startswith("answered (")
    assert told[search + 1] == "- cites Rain, https://a.example/rain"


def test_a_trace_shows_what_guardrails_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def polite(context: Any, agent: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=False, output_info={"score": 0.2})

    def short(context: Any, agent: Any, value: Any) -> GuardrailResult:
        return GuardrailResult(tripwire_triggered=True)

    agent = Agent("A", model=ScriptedHandler(["Hi."]), input_guardrails=[polite], output_guardrails=[short])
    told = _stepped(tmp_path / "t.jsonl", agent, capsys)
    assert '- guardrail polite of A passed: {"score": 0.2}' in told
    assert "! guardrail short of A stopped the run" in told


def test_a_trace_of_a_run_that_waits_says_for_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedHandler([[call("pay", {"amount": 4}), call("where")]])
    told = _stepped(tmp_path / "t.jsonl", Agent("A", model=model, tools=[pay]), capsys)
    assert "waits for approval: pay(amount=4), asked for by A" in told
    assert "waits for the caller: where()" in told
    assert "replied: pay(amount=4), where()" in told


def test_a_trace_shows_what_was_compacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedHandler([*[call("boom", {"word": str(n)}) for n in range(4)], "Done."])
    compact = Compact(at_messages=6, keep_turns=1, rest=lambda messages: "It was quince.")
    told = _stepped(tmp_path / "t.jsonl", Agent("A", model=model, tools=[boom], compact=compact), capsys)
    assert "- A compacted: 4 messages became 1 (summarised)" in told
    bare = _stepped(tmp_path / "b.jsonl", Agent("A", model=ScriptedHandler(["Hi."])), capsys)
    assert not any("compacted" in line for line in bare)


def test_an_unfinished_handoff_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is written again at the end of the run, with what it has cost."""
    model = ScriptedHandler([call("transfer_to_b")])
    agent = Agent("A", model=model, handoffs=[Agent("B", model=model)])
    told = _stepped(tmp_path / "t.jsonl", agent, capsys, max_turns=1)
    assert [line for line in told if line.startswith("=>")] == ["=> A -> B, ACCEPTED"]


def test_control_sequences_of_a_trace_are_escaped(
    app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "runs.jsonl")
    assert main(["run", f"{app}:hostile", "\x1b[2J", "--trace", file]) == 0
    assert main(["trace", file, "--seen"]) == 0
    assert "\x1b" not in capsys.readouterr().out.partition("begins")[2]


def test_a_wrong_trace_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["trace", str(tmp_path / "empty.jsonl")]) == 2
    assert "empty.jsonl has no run" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
