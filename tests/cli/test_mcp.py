"""``routelock mcp``: standard output has messages of the protocol and nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from terminals import environment
from waiting import PATIENCE

pytest.importorskip("mcp_types", reason="version 2 of the mcp package serves")

APP = """
import os
import subprocess
import anyio.lowlevel
from routelock import Agent, tool
from routelock.testing import ScriptedHandler, call

print("printed while it is loaded")
os.system("echo said by a child")

@tool
def look(what: str) -> str:
    print("printed by a tool")
    return subprocess.run("echo child >&2; wc -c", shell=True, capture_output=True, text=True).stdout.strip()

def seen(request):
    return f"stdin had {request.messages[-1]['content']} bytes"

@tool
async def wait() -> str:
    print("the tool waits", flush=True)
    try:
        await anyio.sleep_forever()
    finally:
        await anyio.lowlevel.cancel_shielded_checkpoint()
        print("the tool has cleaned up", flush=True)

slow = Agent("Slow", model=ScriptedHandler([call("wait", {})]), tools=[wait])

def reply(request):
    print("the model has replied", flush=True)
    return "x" * 5_000_000

long = Agent("Long", model=ScriptedHandler([reply]))

agent = Agent("A", lambda context, agent: str(context.context), tools=[look],
              model=ScriptedHandler([call("look", {"what": "x"}), seen]))
shop = "lamps"
"""

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def talk(cwd: Path, *arguments: str, said: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """Start the command, say all of it, and close its standard input when it has answered."""
    process = start(cwd, *arguments)
    assert process.stdout
    lines: list[str] = []
    for number, each in enumerate(said):
        say(process, {"id": number, **each})
        lines.append(process.stdout.readline())
    rest, errors = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(process.args, process.returncode, "".join(lines) + rest, errors)


def start(cwd: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen(
        [sys.executable, "-m", "routelock", "mcp", *arguments],
        cwd=cwd,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def say(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    """Send the command a message."""
    assert process.stdin
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    process.stdin.flush()


def test_standard_output_is_for_the_protocol_alone(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    call = {"name": "a", "arguments": {"input": "Hi"}}
    said = [{"method": "initialize", "params": HELLO}, {"method": "tools/call", "params": call}]
    done = talk(tmp_path, "app:agent", said=said)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["id"] for each in answers] == [0, 1]
    assert answers[1]["result"]["content"][0]["text"] == "stdin had 0 bytes"
    assert done.returncode == 0
    for printed in ("printed while it is loaded", "said by a child", "printed by a tool"):
        assert printed in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["app:nothing"], "'app' has no 'nothing'"),
        (["app:agent", "--max-concurrent", "0"], "max_concurrent must be more than 0"),
        (["app:agent", "--context", "app:nothing"], "'app' has no 'nothing'"),
    ],
)
def test_a_mistake_ends_it_with_one_line(tmp_path: Path, arguments: list[str], why: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    done = talk(tmp_path, *arguments, said=[])
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"import sys\nsys.modules['mcp_types'] = None\n{APP}")
    done = talk(tmp_path, "app:agent", said=[])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("routelock: Serving by MCP needs version 2.2 ")


def calling(cwd: Path, name: str, *, until: str) -> subprocess.Popen[str]:
    """Start the command, and call an agent; the call goes on until the program has printed this."""
    process = start(cwd, f"app:{name}")
    assert process.stdout
    assert process.stderr
    say(process, {"id": 0, "method": "initialize", "params": HELLO})
    process.stdout.readline()
    say(process, {"method": "notifications/initialized"})
    call = {"name": name, "arguments": {"input": "Hi"}}
    say(process, {"id": 1, "method": "tools/call", "params": call})
    while process.stderr.readline() != until:
        pass
    return process


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_tools_clean_up(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "app.py").write_text(APP)
    process = calling(tmp_path, "slow", until="the tool waits\n")
    process.send_signal(sent)
    assert process.wait(PATIENCE) == -sent, "standard input is still open"
    _, said = process.communicate()
    assert "the tool has cleaned up" in said
    assert "Traceback" not in said


def test_a_signal_ends_it_though_its_host_does_not_read(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    process = calling(tmp_path, "long", until="the model has replied\n")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == -signal.SIGTERM
    process.communicate()
