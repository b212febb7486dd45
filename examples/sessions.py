"""Shows a conversation that survives its process: each turn is stored, even if the process crashes later."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from routelock import Agent, RunConfig, Runner, handoff, tool
from routelock.history import ToolCall
from routelock.sessions import Session, SQLiteSessions
from routelock.testing import ScriptedHandler, call

STICKY = RunConfig(next_agent="sticky")


@tool
def crash() -> str:
    """Do what no program survives."""
    os._exit(1)


def front_desk(front: list[ToolCall | str], refunds: list[ToolCall | str]) -> Agent:
    """Return the agents, each with a script as its model; every process makes its own."""
    model = ScriptedHandler(refunds)
    target = Agent("Refunds", "You pay back.", model=model, tools=[crash])
    return Agent("Front", "You route.", model=ScriptedHandler(front), handoffs=[handoff(target)])


def say(agent: Agent, words: str, path: str) -> None:
    """Send one message of the conversation that is kept in a file."""
    session = Session("ann", SQLiteSessions(path))
    result = Runner.run_sync(agent, words, session=session, run_config=STICKY)
    given = result.input_count - 1
    print(
        f"  Ann: {words}\n  {result.last_agent.name}, who was given {given} messages: {result.final_output}"
    )
    for repair in result.repairs:
        print(f"    repaired: {repair}")


Scene = tuple[str, list[ToolCall | str], list[ToolCall | str]]
SCENES: dict[str, Scene] = {
    "the first": ("My money back!", [call("transfer_to_refunds")], ["Which order?"]),
    "one that crashes": ("Order 7.", [], [call("crash")]),
    "another": ("Are you there?", [], ["Order 7 it is. Sorry for the wait."]),
}

if __name__ == "__main__" and len(sys.argv) > 1:
    words, front, refunds = SCENES[sys.argv[1]]
    say(front_desk(front, refunds), words, sys.argv[2])
elif __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "chats.db")
        for name in SCENES:
            print(f"A process, {name}:", flush=True)
            code = subprocess.run([sys.executable, __file__, name, path], check=False).returncode
            if code:
                print(f"  (it ended with code {code})")
