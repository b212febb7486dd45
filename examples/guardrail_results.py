"""What guardrails found, kept on the result: scores of an input that passed, and of one that did not.

Run it: python examples/guardrail_results.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from routelock import Agent, GuardrailResult, RunContext, Runner, RunResult, ToolContext, tool
from routelock.errors import GuardrailTripped
from routelock.history import last_user_text
from routelock.testing import ScriptedHandler, call


def polite(context: RunContext[Any], agent: Agent[Any], messages: Sequence[Any]) -> GuardrailResult:
    """Rate the user's tone; a real app asks a small model for it."""
    rude = sum(word in last_user_text(messages).lower() for word in ("idiot", "useless", "now!"))
    return GuardrailResult(rude > 1, {"rudeness": rude / 3})


def affordable(context: ToolContext[Any], owner: Any, arguments: dict[str, Any]) -> GuardrailResult:
    """Let small refunds pass, and tell the model what to do with others."""
    amount = arguments["amount"]
    return GuardrailResult(
        False, {"amount": amount}, None if amount <= 100 else "Ask a person about this one."
    )


@tool(input_guardrails=[affordable])
async def refund(amount: int) -> str:
    """Pay money back."""
    return f"{amount} EUR paid back"


def clerk(*replies: Any) -> Agent[Any]:
    """Return an agent with these replies."""
    return Agent("Clerk", model=ScriptedHandler(replies), tools=[refund], input_guardrails=[polite])


def show(result: RunResult[Any]) -> None:
    """Print what each guardrail found."""
    for one in result.guardrail_results:
        found = "passed" if one.passed else "tripped" if one.tripwire_triggered else f"said {one.answer!r}"
        print(f"  {one.kind:10} {one.name:10} {found}, {one.output_info}")


async def main() -> None:
    """Ask for two refunds politely, and for one rudely."""
    asks = [call("refund", {"amount": 40}), call("refund", {"amount": 400})]
    print("Customer: My orders came broken.")
    show(
        await Runner.run(
            clerk(asks, "40 EUR are paid, a person looks at the other."), "My orders came broken."
        )
    )
    print("Customer: You useless idiot, pay now!")
    try:
        await Runner.run(clerk(), "You useless idiot, pay now!")
    except GuardrailTripped as error:
        show(error.result)


asyncio.run(main())
