"""Support of a bank, with dependencies, a tool and a typed answer, ported from pydantic-ai.

See docs/coming-from-pydantic-ai.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field

from routelock import Agent, RunContext, Runner, function_tool
from routelock.testing import ScriptedHandler, call


class Accounts:
    """Stands for the bank's database."""

    async def name(self, customer: int) -> str:
        """Return the name of a customer."""
        return {7: "Ada"}[customer]

    async def balance(self, customer: int, pending: bool) -> float:
        """Return what a customer has, with the payments on their way if they count."""
        return {7: 80.5 if pending else 100.0}[customer]


@dataclass
class Dependencies:
    """What tools and instructions need; no model is shown it."""

    customer: int
    accounts: Accounts


class Advice(BaseModel):
    """The answer to a customer."""

    text: str = Field(description="What the customer is told")
    block_card: bool = Field(description="Whether to block the card")
    risk: Annotated[int, Field(ge=0, le=10, description="How risky the request is")]


async def instructions(ctx: RunContext[Dependencies]) -> str:
    """Write the system prompt, with the customer's name."""
    name = await ctx.context.accounts.name(ctx.context.customer)
    return f"You are the support of a bank. Judge the risk of each request. The customer is {name}."


@function_tool
async def balance(ctx: RunContext[Dependencies], pending: bool) -> str:
    """Return the balance of the customer's account."""
    amount = await ctx.context.accounts.balance(ctx.context.customer, pending)
    return f"{amount:.2f} euros"


MODEL = ScriptedHandler(
    [
        call("balance", {"pending": True}),
        '{"text": "Ada, you have 80.50 euros.", "block_card": false, "risk": 1}',
        '{"text": "We block it, Ada.", "block_card": true, "risk": 11}',
        '{"text": "We block it, Ada.", "block_card": true, "risk": 8}',
    ]
)
support = Agent[Dependencies](
    name="Support", instructions=instructions, model=MODEL, tools=[balance], output_type=Advice
)

dependencies = Dependencies(customer=7, accounts=Accounts())
for question in ("What is my balance?", "I have lost my card!"):
    result = Runner.run_sync(support, question, context=dependencies)
    print(repr(result.final_output_as(Advice)))
    for problem in result.errors:
        print(f"asked again: {problem.message.splitlines()[0]}")
