"""The agents that clients of A2A ask, besides those of `clients.cast`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pydantic
from clients.cast import Log, Plays, answered, everyone

from routelock import Agent, Request, ToolContext, tool
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.history.messages import text_of
from routelock.testing import call
from routelock.testing.scripted import Reply
from routelock.tools import ToolQuestion


class Order(pydantic.BaseModel):
    """What the clerk answers with."""

    number: int
    places: list[str]


ORDER_DATA = {"number": 7, "places": ["Paris", "Rome"]}


def clerk() -> Agent[Any]:
    """Its answer is data."""
    said = Order.model_validate(ORDER_DATA).model_dump_json()
    return Agent("clerk", model=Plays("clerk", lambda _: said), output_type=Order)


def parrot() -> Agent[Any]:
    """It says what the user has said in this conversation so far, after a moment in which others may come."""

    async def part(request: Request) -> AsyncIterator[HandlerEvent]:
        await anyio.sleep(0.01)
        words = "|".join(text_of(each) for each in request.messages if each["role"] == "user")
        yield MessageDone(message={"role": "assistant", "content": words})

    return Agent("parrot", "Repeat.", model=Plays("parrot", part), handoff_description="Repeats all of it.")


def payer(paid: list[int]) -> Agent[Any]:
    """What it does has to be approved."""

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    def part(request: Request) -> Reply:
        return f"Then: {text_of(request.messages[-1])}" if answered(request) else call("pay", {"amount": 40})

    return Agent("payer", model=Plays("payer", part), tools=[pay])


BRANCHES: dict[str, Any] = {
    "type": "object",
    "properties": {"branch": {"type": "string", "enum": ["north", "south"]}, "days": {"type": "integer"}},
    "required": ["branch"],
}
"""What the librarian asks for."""


def librarian() -> Agent[Any]:
    """Its tool asks for some fields."""

    @tool
    def lend(context: ToolContext[Any]) -> str | ToolQuestion:
        """Lend a book."""
        if context.answer is None:
            return ToolQuestion(message="Which branch?", schema=BRANCHES)
        return f"lent: {context.answer.content}" if context.answer.approved else "not lent"

    def part(request: Request) -> Reply:
        return f"Then: {text_of(request.messages[-1])}" if answered(request) else call("lend")

    return Agent("librarian", model=Plays("librarian", part), tools=[lend])


def a2a_agents(log: Log, paid: list[int]) -> list[Agent[Any]]:
    """All of them; the first one is the greeter."""
    return [*everyone(log), clerk(), parrot(), payer(paid), librarian()]
