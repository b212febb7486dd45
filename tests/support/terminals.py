"""The command line as people use it: as a process, through pipes and in a terminal."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from waiting import PATIENCE

APP = r"""
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
from routelock import Agent, RunConfig, RunContext, function_tool, handoff, tool
from routelock.context import ToolContext
from routelock.handlers.events import MessageDone, TextDelta
from routelock.history.messages import text_of
from routelock.testing import ScriptedHandler, call, reply
from routelock.tools import ToolQuestion
from routelock.usage import Usage

@function_tool
def refund(order: int) -> str:
    return f"refunded order {order}"

@function_tool
def nap() -> str:
    time.sleep(600)
    return "awake"

@dataclass
class Answer:
    order: int

async def hang(request):
    yield TextDelta("Half a")
    await anyio.sleep_forever()

def echo_text(request):
    return "You said: " + text_of(request.messages[-1])

def count(request):
    return f"{sum(each['role'] == 'user' for each in request.messages)} from you"

transfer = call("transfer_to_refunds", {"reason": "money"})
script = ScriptedHandler([transfer, call("refund", {"order": 7}), "Order 7 is refunded."] * 3)
refunds = Agent("refunds", model=script, tools=[refund])
triage = Agent("triage", model=script, handoffs=[handoff(refunds)])
broken = Agent("broken", model=ScriptedHandler([RuntimeError("no shop today \x1b[2J"), count, count]))
typed = Agent("typed", model=ScriptedHandler(['{"order": 7}']), output_type=Answer)
no_parameters = {"type": "object", "properties": {}}
where = {"type": "function", "function": {"name": "where", "parameters": no_parameters}}
external = RunConfig(external_tools=[where])
asker = Agent("asker", model=ScriptedHandler([call("where")]))
echo = Agent("echo", model=ScriptedHandler([echo_text] * 9))
priced = Agent("priced", model=ScriptedHandler([reply("Hi.", usage=Usage(1, 800, 40, 300, cost=0.0012))] * 3))
stuck = Agent("stuck", model=ScriptedHandler([hang, count, count]))
napper = Agent("napper", model=ScriptedHandler([call("nap"), count]), tools=[nap])
EVIL = "\x1b[2J\x1b]0;evil\x07 \u202egnp.exe <b>List<int></b>\r\nend"
hostile = Agent("hos\x1b[31mtile", model=ScriptedHandler([EVIL] * 3))
painter = Agent("painter", model=ScriptedHandler(["A **bold** word.\n\n```python\nx = 1\n```\n\nEnd."]))

def make_context():
    return {"text": "from the context"}

@function_tool
def read(context: RunContext) -> str:
    return context.context["text"]

def last(request):
    return text_of(request.messages[-1])

@tool(needs_approval=True)
def pay(amount: int, note: str = "") -> str:
    return f"{amount} paid"

def pays(*amounts):
    return [call("pay", {"amount": amount}) for amount in amounts]

BRANCH = {
    "type": "object",
    "properties": {
        "branch": {"type": "string", "enum": ["north", "south"]},
        "copies": {"type": "integer", "default": 1},
        "gift": {"type": "boolean"},
    },
    "required": ["branch", "copies"],
}

@tool
def lend(context: ToolContext, title: str) -> str | ToolQuestion:
    if context.answer is None:
        return ToolQuestion(message="Which branch?", schema=BRANCH)
    return f"{title}: {context.answer.content or context.answer.message}"

librarian = Agent("librarian", model=ScriptedHandler([call("lend", {"title": "Emma"}), count]), tools=[lend])
payer = Agent("payer", model=ScriptedHandler([pays(4, 5), pays(6), pays(6), count, count]), tools=[pay])
async def pays_later(request):
    while not Path("go").exists():
        await anyio.sleep(0.01)
    function = {"name": "pay", "arguments": '{"amount": 4}'}
    calls = [{"id": "late", "type": "function", "function": function}]
    yield MessageDone(message={"role": "assistant", "content": None, "tool_calls": calls})


late = Agent("late", model=ScriptedHandler([pays_later, count]), tools=[pay])
async def pieces():
    # the file "reply", slow enough to be drawn; then it waits for the file "go"
    text = Path("reply").read_text()
    for start in range(0, len(text), 7):
        yield TextDelta(text[start:start + 7])
        await anyio.sleep(0.005)
    while not Path("go").exists():
        await anyio.sleep(0.01)

def whole(**more):
    return MessageDone(message={"role": "assistant", "content": Path("reply").read_text(), **more})

async def writes(request):
    async for each in pieces():
        yield each
    yield whole()

async def writes_and_calls(request):
    async for each in pieces():
        yield each
    made = {"id": "call_1", "type": "function", "function": {"name": "mumble", "arguments": "{}"}}
    yield whole(tool_calls=[made])

async def writes_and_fails(request):
    async for each in pieces():
        yield each
    raise RuntimeError("the line is dead")

@function_tool
def mumble() -> str:
    print("a line of the tool's")
    print("and half a line", end="")
    return "mumbled"

writer = Agent("writer", model=ScriptedHandler([writes, count]))
worker = Agent("worker", model=ScriptedHandler([writes_and_calls, "That is all."]), tools=[mumble])
dying = Agent("dying", model=ScriptedHandler([writes_and_fails, count]))

def slow():
    while not Path("go").exists():  # the test has seen by then what it waits for
        time.sleep(0.01)
    print("a line of the app's")
    return [echo]

long_note = call("pay", {"amount": 1, "note": "\x1b[2J" + "a" * 5000 + " to Mallory"})
hiding = Agent("hiding", model=ScriptedHandler([long_note]), tools=[pay])

billing = Agent("billing", model=ScriptedHandler([echo_text] * 9))
front = Agent("front", model=ScriptedHandler([call("transfer_to_billing")] * 2), handoffs=[billing])

reader = Agent("reader", model=ScriptedHandler([call("read"), last]), tools=[read])
"""


@contextmanager
def app_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Be in a folder that has the app as a module, with a name of its own for each test; yield the name."""
    name = f"app_{folder.name.replace('-', '_')}"
    (folder / f"{name}.py").write_text(APP)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def environment(**more: str) -> dict[str, str]:
    """The environment of a process that finds the same code as this one."""
    path = os.pathsep.join(str(Path(each).resolve()) for each in sys.path if each)
    return {**os.environ, "PYTHONPATH": path, **more}


def routelock(
    *arguments: str, cwd: Path, stdin: str | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line as a process of its own, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "routelock", *arguments],
        cwd=cwd,
        env=environment(**more),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def let_go(folder: Path) -> None:
    """Let the app in this folder go on that waits for its test."""
    (folder / "go").touch()


_SEQUENCE = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\x1b[=>]|.", re.DOTALL)


def lines_on(shown: str, height: int) -> list[str]:
    """What a person sees who scrolls up in a terminal of that height: no line of it can be drawn over."""
    lines, row, column = [""], 0, 0
    for part in _SEQUENCE.findall(shown):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\r":
            column = 0
        elif part[-1] == "A" and part[0] == "\x1b":
            row = max(row - int(part[2:-1] or 1), len(lines) - height, 0)
        elif part[-1] == "K" and part[0] == "\x1b":
            lines[row] = "" if part[2:-1] == "2" else lines[row][:column]
        elif part.isprintable():
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + 1 :]
            column += 1
    return lines


class Terminal:
    """The command line in a terminal. What it showed, escape sequences included, is in `shown`."""

    def __init__(self, *arguments: str, cwd: Path, python: Sequence[str] = (), **more: str) -> None:
        self.shown = ""
        self._seen = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pid, self._end = pty.fork()
        if self._pid == 0:  # pragma: no cover - the other process
            os.chdir(cwd)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # the process that starts the tests may ignore it
            _keep_output_on_ctrl_c()
            settings = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40", **more}
            command = [sys.executable, *python, "-m", "routelock", *arguments]
            os.execve(sys.executable, command, environment(**settings))

    def wait_for(self, text: str) -> str:
        """Read until a text is shown, and return what was shown since the last one."""
        start, until = self._seen, time.monotonic() + PATIENCE
        while text not in self.shown[start:]:
            if time.monotonic() > until or not self._read():
                os.kill(self._pid, signal.SIGKILL)
                raise AssertionError(f"{text!r} was not shown, but {self.shown[start:]!r}")
        self._seen = self.shown.index(text, start) + len(text)
        return self.shown[start : self._seen]

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._end, keys.encode())

    def leave(self) -> int:
        """Press Ctrl-D at the next prompt, and return the exit code."""
        self.wait_for("you")
        self.type("\x04")
        return self.ended()

    def ended_by(self, key: str) -> int:
        """Press a key and Enter, and return the exit code.

        Python notices a Ctrl-C that comes just before it begins to read only with the next key.
        """
        self.type(key)
        with suppress(OSError):  # the program may have ended
            self.type("\n")
        return self.ended()

    def ended(self) -> int:
        """Wait for the end and return the exit code."""
        until = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < until, self.shown
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        ready, _, _ = select.select([self._end], [], [], PATIENCE)
        if not ready:
            os.kill(self._pid, signal.SIGKILL)
        data = b""
        with suppress(OSError):  # that is how a terminal ends
            data = os.read(self._end, 65536) if ready else b""
        self.shown += self._decoder.decode(data)
        return bool(data)


def _keep_output_on_ctrl_c() -> None:
    """Keep what the terminal was given and the test has not read yet; a Ctrl-C would drop it."""
    settings = termios.tcgetattr(0)
    settings[3] |= termios.NOFLSH
    termios.tcsetattr(0, termios.TCSANOW, settings)
