"""Agents that ask other agents, for tests that run them plain and streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plain_and_streamed import QUICK
from scenes import facts
from scripted_agents import agent, look_up

from routelock import Agent, RunConfig, Runner, RunResult
from routelock.errors import RoutelockError
from routelock.run.events import RunEvent
from routelock.testing import call

Made = Callable[[], Agent[Any]]


def ask(name: str = "helper", text: str = "Look.", id: str = "") -> Any:
    return call(name, {"input": text}, id=id)


def manager(*replies: Any, **agents: Agent[Any]) -> Agent[Any]:
    """A manager that says these things, with each agent as a tool of that name."""
    return agent("manager", *replies, tools=[each.as_tool(name) for name, each in agents.items()])


@dataclass(frozen=True)
class Ended:
    result: RunResult[Any]
    error: RoutelockError | None
    events: list[RunEvent]

    @property
    def outer(self) -> list[str]:
        return [event.type for event in self.events if not event.type.endswith(("_delta", "nested"))]


async def run(made: Agent[Any], *, stream: bool, max_turns: int | None = 20, **how: Any) -> Ended:
    context, hooks = how.pop("context", None), how.pop("hooks", None)
    config = RunConfig(**{"run_id": "r", "retry": QUICK, **how})
    settings: Any = {"max_turns": max_turns, "context": context, "hooks": hooks, "run_config": config}
    events: list[RunEvent] = []
    try:
        if not stream:
            return Ended(await Runner.run(made, "Hi", **settings), None, [])
        async with Runner.run_streamed(made, "Hi", **settings) as running:
            async for event in running:
                events.append(event)
        return Ended(running.result, None, events)
    except RoutelockError as error:
        return Ended(error.result, error, events)


def everything(ended: Ended) -> dict[str, Any]:
    """All that the two kinds of runs must have in common."""

    def of(result: RunResult[Any]) -> dict[str, Any]:
        nested = {call_id: of(inner) for call_id, inner in result.nested.items()}
        return {**facts(result), "nested": list(nested.items()), "by handler": result.usage_by_handler}

    return {**of(ended.result), "error": (type(ended.error), str(ended.error))}


async def both(make: Made, **how: Any) -> Ended:
    """Run what ``make`` makes plain and streamed, check that it comes to the same, and return the latter."""
    plain = await run(make(), stream=False, **how)
    streamed = await run(make(), stream=True, **how)
    assert everything(plain) == everything(streamed)
    return streamed


def busy(name: str = "helper", turns: int = 30, **options: Any) -> Agent[Any]:
    return agent(name, *(call("look_up", {"order": n}) for n in range(turns)), tools=[look_up], **options)
