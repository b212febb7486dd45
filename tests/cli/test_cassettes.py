"""``routelock`` itself, and graph, doctor, trace, record and replay."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from servers import HELLO_STREAM, USAGE, Server, said
from terminals import APP, app_in, routelock

from routelock import Agent, RunConfig, Runner, function_tool, tool
from routelock.cli.main import main
from routelock.errors import HandlerError, MaxTurnsExceeded
from routelock.testing import ScriptedHandler, call
from routelock.tracing.file import TraceFile

COMMANDS = ("chat", "run", "serve", "dev", "graph", "record", "replay", "trace", "doctor")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with app_in(tmp_path, monkeypatch) as name:
        yield name


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _help(capsys)
    listed = re.findall(r"^    (\w+) +[A-Z]", shown, re.MULTILINE)
    assert tuple(listed) == COMMANDS
    assert [int(code) for code in re.findall(r"^  (\d+) ", shown, re.MULTILINE)] == [0, 1, 2, 3, 130, 141]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"examples:\n  routelock {command}" in _help(capsys, command).replace("run app", f"{command} app")


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("routelock ")


def test_a_graph_is_mermaid(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{app}:triage"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "flowchart LR",
        '    n0(["triage"]):::start',
        '    n1["refunds"]',
        "    n0 --> n1",
        "    classDef start stroke-width:3px",
    ]


def test_a_graph_is_a_picture(app: str, tmp_path: Path) -> None:
    assert main(["graph", f"{app}:triage", "--svg", "-o", str(tmp_path / "team.svg")]) == 0
    assert (tmp_path / "team.svg").read_text("utf-8").startswith("<svg ")


def test_a_graph_is_a_table(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{app}:triage", "--table"]) == 0
    assert "| triage | refunds | handoff | the conversation |" in capsys.readouterr().out


def test_doctor_names_keys_and_never_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-very-secret")
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "  SHOP_API_KEY\n" in shown
    assert "very-secret" not in shown
    assert re.search(r"  pydantic \d", shown)
    assert re.search(r"  cli: rich \d", shown)


@pytest.mark.filterwarnings("ignore")
def test_doctor_says_what_would_be_called(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://someone:hidden@127.0.0.1:9/v1")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    assert main(["doctor", "openai/gpt-4o-mini"]) == 0
    shown = capsys.readouterr().out
    assert "127.0.0.1:9/v1" in shown
    assert "hidden" not in shown
    assert main(["doctor", "anthropic/claude-haiku-4-5"]) == 1
    assert "missing: set ANTHROPIC_API_KEY" in capsys.readouterr().out
    assert main(["doctor", "nonsense"]) == 1
    assert "No provider is known" in capsys.readouterr().out


ASKERS = """
from routelock import Agent
from routelock_providers import OpenAICompatible
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.chat_completions.openai import OpenAI
from routelock_providers.remote.agent import RemoteAgent

local = OpenAICompatible("m1", base_url="http://ann:pw-hidden@127.0.0.1:9/v1?key=q-hidden")
groq = OpenAICompatible("m2", base_url="https://api.groq.com/openai/v1")
passed = OpenAICompatible("m3", base_url="https://api.groq.com/openai/v1", api_key="a-hidden")
headed = OpenAICompatible("m4", headers={"Authorization": "Bearer h-hidden"})
gpt = OpenAICompatible("m5")
library = OpenAI("m6", base_url="https://api.mistral.ai/v1")
lite = LiteLLM("openai/m7", api_base="http://127.0.0.1:8/v1", api_key="l-hidden")
elsewhere = RemoteAgent("https://agents.example.com/v1", model="wine", api_key="r-hidden")
names = "local groq passed headed library lite elsewhere"
agents = [Agent(name, model=globals()[name]) for name in names.split()]
keyless = Agent("keyless", model=gpt)
"""


@pytest.mark.filterwarnings("ignore")
def test_doctor_says_whom_a_handler_would_ask_and_with_which_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOCAL", "MISTRAL", "OPENAI"):
        monkeypatch.delenv(f"{name}_API_KEY", raising=False)
    monkeypatch.setenv("GROQ_API_KEY", "g-hidden")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "askers_of_doctor.py").write_text(ASKERS)
    assert main(["doctor", "askers_of_doctor:agents"]) == 0
    shown = capsys.readouterr().out
    said = {
        each.partition(":")[0]: dict(line.strip().split(None, 1) for line in each.splitlines()[1:])
        for each in shown.split("\nagent ")[1:]
    }
    assert "hidden" not in shown
    assert said["local"] == {
        "provider": "local",
        "model": "m1",
        "address": "http://127.0.0.1:9/v1/chat/completions?key=[redacted]",
        "key": "none, so none is sent (LOCAL_API_KEY is not set)",
    }
    assert said["groq"]["address"] == "https://api.groq.com/openai/v1/chat/completions"
    assert {name: each["key"] for name, each in said.items() if name != "local"} == {
        "groq": "there, from GROQ_API_KEY",
        "passed": "there, passed as api_key",
        "headed": "there, in headers as authorization",
        "library": "none, so none is sent (MISTRAL_API_KEY is not set)",
        "lite": "there, or not needed",
        "elsewhere": "there, passed to it",
    }
    assert said["lite"]["address"] == "http://127.0.0.1:8/v1"
    assert said["elsewhere"]["model"] == "wine"
    assert main(["doctor", "askers_of_doctor:keyless"]) == 1
    assert "key       missing: set OPENAI_API_KEY" in capsys.readouterr().out


def test_doctor_names_the_agents_of_a_graph(app: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{app}:triage"]) == 0
    shown = capsys.readouterr().out
    assert "agent triage: scripted" in shown
    assert "agent refunds: scripted" in shown


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
    with suppress(HandlerError, MaxTurnsExceeded):
        Runner.run_sync(agent, "Hi", max_turns=max_turns, run_config=config)
    assert main(["trace", str(file), "--seen"]) == 0
    lines = capsys.readouterr().out.splitlines()
    return [line.strip().rpartition(" s  ")[2] for line in lines]


def test_a_trace_without_content_says_what_kind_of_error_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_a_trace_of_a_run_that_waits_says_for_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedHandler([[call("pay", {"amount": 4}), call("where")]])
    told = _stepped(tmp_path / "t.jsonl", Agent("A", model=model, tools=[pay]), capsys)
    assert "waits for approval: pay(amount=4), asked for by A" in told
    assert "waits for the caller: where()" in told
    assert "replied: pay(amount=4), where()" in told


def test_a_transfer_whose_work_is_not_done_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is written again at the end of the run, with what it has cost."""
    model = ScriptedHandler([call("transfer_to_b")])
    agent = Agent("A", model=model, handoffs=[Agent("B", model=model)])
    told = _stepped(tmp_path / "t.jsonl", agent, capsys, max_turns=1)
    assert [line for line in told if line.startswith("=>")] == ["=> A -> B, ACCEPTED"]


def test_no_terminal_obeys_a_trace(app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "runs.jsonl")
    assert main(["run", f"{app}:hostile", "\x1b[2J", "--trace", file]) == 0
    assert main(["trace", file, "--seen"]) == 0
    assert "\x1b" not in capsys.readouterr().out.partition("begins")[2]


def test_a_trace_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    assert main(["trace", str(tmp_path / "empty.jsonl")]) == 2
    assert "There is no run" in capsys.readouterr().err
    assert main(["trace", str(tmp_path / "none.jsonl")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


SCRIPT = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as reply:
    print(reply.read().decode(), *sys.argv[2:])
"""


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the server")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    """A script records from a true server; when that is gone, its answer is still there."""
    (tmp_path / "ask.py").write_text(SCRIPT)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/hello"
        recorded = routelock("record", "a.yaml", "ask.py", url, "--fast", cwd=tmp_path)
        server.shutdown()
        thread.join()
    assert recorded.stdout == "from the server --fast\n", recorded.stderr
    assert recorded.stderr == "routelock: recorded 1 request in a.yaml\n"
    replayed = routelock("replay", "a.yaml", "ask.py", url, "--fast", cwd=tmp_path)
    assert replayed.stdout == "from the server --fast\n"
    assert replayed.stderr == "routelock: answered 1 of 1 request from a.yaml\n"
    missed = routelock("replay", "a.yaml", "ask.py", url + "/else", cwd=tmp_path)
    assert missed.returncode == 1
    assert f"{url}/else is not in a.yaml" in missed.stderr
    assert "Traceback" not in missed.stderr


SIGNED = """
from routelock import Agent, Runner
print(Runner.run_sync(Agent("a", model="bedrock/converse/amazon.nova-lite-v1:0"), "Hi").final_output)
"""


def test_no_key_is_needed_where_requests_are_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for Bedrock: without a key its client asks the network for one."""
    pytest.importorskip("boto3")
    (tmp_path / "ask.py").write_text(SIGNED)
    url = "https://bedrock-runtime.us-east-1.amazonaws.com/model/amazon.nova-lite-v1%3A0/converse"
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    said = {"message": {"role": "assistant", "content": [{"text": "Hi."}]}}
    body = json.dumps({"output": said, "stopReason": "end_turn", "usage": usage})
    response = {
        "status": {"code": 200, "message": "OK"},
        "headers": {"content-type": ["application/json"]},
        "body": {"string": body},
    }
    played = {"request": {"method": "POST", "uri": url, "body": None, "headers": {}}, "response": response}
    (tmp_path / "a.yaml").write_text(json.dumps({"interactions": [played], "version": 1}))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    here = {"AWS_REGION": "us-east-1", "HOME": str(tmp_path)}
    done = routelock("replay", "--any-body", "a.yaml", "ask.py", cwd=tmp_path, **here)
    assert done.stdout == "Hi.\n", done.stderr


ASKING = """
import sys
from routelock import Agent, Runner, function_tool
from routelock_providers import OpenAICompatible

def look(page: int) -> str:
    "Look at a page."
    return f"page {page}"

asking = Agent("asking", model=OpenAICompatible("m", base_url=URL, api_key="k"), tools=[function_tool(look)])
if __name__ == "__main__":
    print(Runner.run_sync(asking, sys.argv[1]).final_output)
"""


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--steps"]], ids=["plain", "json", "steps"])
def test_what_a_test_recorded_without_streaming_is_replayed(arguments: list[str], tmp_path: Path) -> None:
    """Tests record what `Runner.run` asks for, and the command asked for streams."""
    function = {"name": "look", "arguments": '{"page": 1}'}
    made = {"id": "call_1", "type": "function", "function": function}
    with Server(
        said({"content": None, "tool_calls": [made]}, usage=USAGE), said({"content": "One."})
    ) as server:
        (tmp_path / "asking.py").write_text(ASKING.replace("URL", repr(server.url)))
        recorded = routelock("record", "a.yaml", "asking.py", "Hi", cwd=tmp_path)
    assert recorded.stdout == "One.\n", recorded.stderr
    replayed = routelock("replay", "a.yaml", "asking:asking", "Hi", *arguments, cwd=tmp_path)
    assert "One." in replayed.stdout, replayed.stderr
    assert "answered 2 of 2 requests" in replayed.stderr


def test_what_was_recorded_streamed_is_replayed_streamed(tmp_path: Path) -> None:
    with Server(HELLO_STREAM) as server:
        (tmp_path / "asking.py").write_text(ASKING.replace("URL", repr(server.url)))
        recorded = routelock("record", "a.yaml", "asking:asking", "Hi", cwd=tmp_path)
    assert recorded.stdout == "Hello\n", recorded.stderr
    replayed = routelock("replay", "a.yaml", "asking:asking", "Hi", cwd=tmp_path)
    assert replayed.stdout == "Hello\n", replayed.stderr


def test_a_cassette_that_is_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = routelock("replay", "none.yaml", "app:echo", "Hi", cwd=tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "routelock: There is no cassette none.yaml. Record it first: routelock record none.yaml ...\n"
    )


def test_an_agent_is_recorded_as_it_is_run(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = routelock("record", "b.yaml", "app:echo", "Hi", cwd=tmp_path)
    assert done.stdout == "You said: Hi\n"
    assert done.stderr == "routelock: no request was made, so b.yaml is not written\n"


def test_a_cassette_that_was_there_stays_if_nothing_is_recorded_and_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    request = {"method": "GET", "uri": "http://a.example/", "body": None, "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": "hi"}}
    text = json.dumps({"version": 1, "interactions": [{"request": request, "response": response}]})
    (tmp_path / "b.yaml").write_text(text)
    done = routelock("record", "b.yaml", "app:echo", "Hi", cwd=tmp_path)
    assert done.stderr == "routelock: no request was made, so b.yaml is as it was\n"
    assert (tmp_path / "b.yaml").read_text() == text
