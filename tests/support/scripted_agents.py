"""Agents that say what they are told to, for tests of what happens between them."""

from __future__ import annotations

from typing import Any

from routelock import Agent, HandoffRecord, Message, RunResult, function_tool, handoff
from routelock.handlers.port import Request
from routelock.history.messages import text_of
from routelock.testing import ScriptedHandler, assert_valid, call

HI: Message = {"role": "user", "content": "Hi"}
TO_B = call("transfer_to_b", id="t")


@function_tool
def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order} is on its way"


def agent(name: str, *replies: Any, **options: Any) -> Agent[Any]:
    """An agent whose model says these things, in order."""
    return Agent(name, f"You are {name}.", model=ScriptedHandler(replies, name=name), **options)


def pair(*replies: Any, first: Any = TO_B, **options: Any) -> tuple[Agent[Any], Agent[Any]]:
    """Two agents: A says ``first``, which transfers to B, then ``replies``; B answers.

    The options are those of the handoff.
    """
    b = agent("B", "Done.")
    return agent("A", first, *replies, handoffs=[handoff(b, **options)]), b


def requests(of: Agent[Any]) -> list[Request]:
    """What an agent's model was asked."""
    assert isinstance(of.model, ScriptedHandler)
    return of.model.requests


def shown(to: Agent[Any], turn: int = 0) -> list[Message]:
    """What an agent's model was shown, without the system prompt; valid in every case."""
    messages = list(requests(to)[turn].messages)
    assert_valid(messages)
    return [message for message in messages if message["role"] != "system"]


def answers_of(result: RunResult[Any]) -> list[str]:
    """What the calls of a run were answered."""
    return [text_of(message) for message in result.messages if message["role"] == "tool"]


def outcome(record: HandoffRecord) -> str:
    """What became of a transfer, in one word."""
    if record.taken:
        return "taken"
    return "failed" if record.tried else "not_taken"


def statuses(result: RunResult[Any]) -> list[tuple[str, str, str]]:
    """Who asked to hand over to whom, and what became of it."""
    return [(record.source, record.target, outcome(record)) for record in result.handoffs]
