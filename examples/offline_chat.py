"""Agents to chat with offline: a script plays the model, so nothing is called and no key is needed.

    cd examples && routelock chat offline_chat:reception

Say something about a room, or ask for the bar. The same works with `run`, `serve`, `dev` and `graph`.
"""

from __future__ import annotations

import sys

from routelock import Agent, Request, function_tool, handoff
from routelock.cli import main
from routelock.history import text_of
from routelock.testing import ScriptedHandler, ScriptedReply, call, reply


@function_tool
def free_rooms(nights: int) -> list[str]:
    """Say which rooms are free."""
    return ["14, a double with a view", "21, a single"][: 3 - min(nights, 2)]


def at_reception(request: Request) -> ScriptedReply:
    """Answer as reception: look for rooms, or hand over to the bar."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return reply(f"There is still something for you:\n\n- {text_of(last)}\n\nShall I **book** it?")
    words = text_of(last).lower()
    if "room" in words:
        return reply("Let me look.", calls=[call("free_rooms", {"nights": 2})])
    if "bar" in words or "drink" in words:
        return reply(calls=[call("transfer_to_bar")])
    return reply("Welcome! I know about *rooms*, and my colleague about the *bar*.")


def at_the_bar(request: Request) -> ScriptedReply:
    """Answer as the bar."""
    return reply("We are open until two. The house lemonade is called `Routelock`.")


bar = Agent("bar", model=ScriptedHandler([at_the_bar] * 1000), handoff_description="Knows about drinks.")
reception = Agent(
    "reception",
    model=ScriptedHandler([at_reception] * 1000),
    tools=[free_rooms],
    handoffs=[handoff(bar)],
)

if __name__ == "__main__":
    sys.exit(main(["run", "offline_chat:reception", "Have you got a room?", "--steps"]))
