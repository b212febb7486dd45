"""Nothing goes anywhere unless somebody asks for it: no socket, no file, no thread, no process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE

WATCHED = ("open('f', 'w')", "__import__('socket').create_connection(('127.0.0.1', 9))")

_RUNS = """
import sys, threading
from routelock import Agent, RunConfig, RunHooks, Runner, function_tool, handoff
from routelock.testing import ScriptedHandler, call
import asyncio

traced = sys.argv[1:]
seen = []
WATCHED = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "subprocess.Popen",
           "os.posix_spawn", "os.fork", "_thread.start_new_thread", "shutil.", "os.mkdir", "os.rename")

def watch(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & 0o3:
        seen.append(f"{event} {args[0]}")
    elif event.startswith(WATCHED):
        seen.append(f"{event} {args}")

@function_tool
async def look(word: str) -> str:
    return f"seen {word}"

def desk():
    asked = [call("look", {"word": "moss"}), call("helper", {"input": "?"})]
    model = ScriptedHandler([call("transfer_to_b"), asked, "Done."])
    helper = Agent("helper", model=ScriptedHandler(["Helped."]))
    b = Agent("b", model=model, tools=[look, helper.as_tool("helper")])
    return Agent("a", model=model, handoffs=[handoff(b)])

async def main():
    config = RunConfig(trace=traced or None, nest_handoff_history=True)
    await Runner.run(desk(), "Hi", run_config=config, hooks=RunHooks())
    result = await Runner.run_streamed(desk(), "Hi", run_config=config).drain()
    assert result.final_output == "Done.", result
    result.state().to_json()

async def once():
    await Runner.run(Agent("a", model=ScriptedHandler(["Hi."])), "Hi")  # whatever is loaded late

asyncio.run(once())
threads = threading.active_count()
sys.addaudithook(watch)
asyncio.run(main())
assert threading.active_count() == threads
print("\\n".join(sorted(set(seen))))
"""


def _seen(*traced: str, cwd: Path) -> list[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _RUNS, *traced]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1] if done.stdout.strip() else []


def test_a_run_opens_nothing(tmp_path: Path) -> None:
    assert _seen(cwd=tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_is_traced_opens_that_file_alone(tmp_path: Path) -> None:
    assert _seen("t.jsonl", cwd=tmp_path) == [f"open {tmp_path / 't.jsonl'}"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


@pytest.mark.parametrize(
    "what", ["open('f', 'w')", "__import__('socket').create_connection(('127.0.0.1', 9))"]
)
def test_the_watch_would_notice(what: str, tmp_path: Path) -> None:
    code = _RUNS.replace("asyncio.run(main())", f"\ntry: {what}\nexcept OSError: pass")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.strip(), done.stderr
