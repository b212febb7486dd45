"""``routelock record`` and ``routelock replay``: agents and scripts with their traffic in a file."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from servers import HELLO_STREAM, USAGE, Server, said, served_by
from terminals import APP, routelock

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


def test_a_recording_is_replayed(tmp_path: Path) -> None:
    """A script records from a true server; when that is gone, its answer is still there."""
    (tmp_path / "ask.py").write_text(SCRIPT)
    with served_by(_Server) as server:
        url = f"{server}/hello"
        recorded = routelock("record", "a.yaml", "ask.py", url, "--fast", cwd=tmp_path)
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
def test_a_recording_without_streaming_is_replayed(arguments: list[str], tmp_path: Path) -> None:
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


def test_a_streamed_recording_is_replayed_streamed(tmp_path: Path) -> None:
    with Server(HELLO_STREAM) as server:
        (tmp_path / "asking.py").write_text(ASKING.replace("URL", repr(server.url)))
        recorded = routelock("record", "a.yaml", "asking:asking", "Hi", cwd=tmp_path)
    assert recorded.stdout == "Hello\n", recorded.stderr
    replayed = routelock("replay", "a.yaml", "asking:asking", "Hi", cwd=tmp_path)
    assert replayed.stdout == "Hello\n", replayed.stderr


def test_a_missing_cassette_is_an_error(tmp_path: Path) -> None:
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


def test_an_existing_cassette_is_kept_if_nothing_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    request = {"method": "GET", "uri": "http://a.example/", "body": None, "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": "hi"}}
    text = json.dumps({"version": 1, "interactions": [{"request": request, "response": response}]})
    (tmp_path / "b.yaml").write_text(text)
    done = routelock("record", "b.yaml", "app:echo", "Hi", cwd=tmp_path)
    assert done.stderr == "routelock: no request was made, so b.yaml is as it was\n"
    assert (tmp_path / "b.yaml").read_text() == text
