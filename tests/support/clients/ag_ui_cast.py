"""The agents that clients of AG-UI ask, besides those of `clients.cast` and `clients.a2a_cast`."""

from __future__ import annotations

from typing import Any

from clients.a2a_cast import clerk, librarian, parrot, payer
from clients.cast import Log, Plays, answered, everyone

from routelock import Agent, Request, ToolContext, function_tool
from routelock.testing import call
from routelock.testing.scripted import Reply

ANSWER = "All of it is asked."


def outer() -> Agent[Any]:
    """It asks another agent, as a tool."""

    def part(request: Request) -> Reply:
        return ANSWER if answered(request) else call("ask_inner", {"input": "Well?"})

    inner = Agent("inner", "Answer.", model=Plays("inner", lambda _: "An aside."))
    return Agent("outer", "Ask.", model=Plays("outer", part), tools=[inner.as_tool("ask_inner", "Ask.")])


def planner() -> Agent[Any]:
    """Its tool changes the state that it shares with its client."""

    @function_tool
    def plan(context: ToolContext[Any], step: str) -> str:
        context.shared_memory["ag_ui"]["state"]["steps"].append(step)
        return "planned"

    def part(request: Request) -> Reply:
        return "It is planned." if answered(request) else call("plan", {"step": "get up"})

    return Agent("planner", "Plan.", model=Plays("planner", part), tools=[plan])


def counter() -> Agent[Any]:
    """Its tool changes a small part of a large state, more than once."""

    @function_tool
    def count(context: ToolContext[Any]) -> str:
        """Count on."""
        state = context.shared_memory["ag_ui"]["state"]
        state.setdefault("text", "x" * 500)
        state.setdefault("seen", []).append({"n": len(state.get("seen", ()))})
        return "counted"

    def part(request: Request) -> Reply:
        done = sum(message["role"] == "tool" for message in request.messages)
        return call("count") if done < 3 else "Counted."

    return Agent("counter", "Count.", model=Plays("counter", part), tools=[count])


def ag_ui_agents(log: Log, paid: list[int]) -> list[Agent[Any]]:
    """All of them; the first one is the greeter."""
    return [*everyone(log), clerk(), parrot(), payer(paid), librarian(), outer(), planner(), counter()]
