"""A refund that a person has to approve: one function stops and the other goes on, with the state as text.

Run it: python examples/approval.py
"""

from __future__ import annotations

import asyncio

from routelock import Agent, Runner, RunState, handoff, tool
from routelock.testing import ScriptedHandler, call


@tool(needs_approval=True)
def refund(order: int, amount: int) -> str:
    """Pay an amount back."""
    return f"{amount} EUR for order {order} are on their way"


model = ScriptedHandler(
    [
        call("transfer_to_refunds", {"reason": "wants money back"}),
        call("refund", {"order": 7, "amount": 40}),
        "Your 40 EUR are on their way.",
    ]
)
refunds = Agent("refunds", "You pay refunds out.", model=model, tools=[refund])
triage = Agent("triage", "You route requests.", model=model, handoffs=[handoff(refunds, ask_reason=True)])


async def customer_writes() -> str:
    """Run until a decision is needed; return the state of the run as JSON."""
    result = await Runner.run(triage, "My cup came broken. I want my money back.")
    return result.state().to_json()


async def boss_decides(kept: str) -> str:
    """Decide about each call that waits, and let the run go on."""
    state = RunState.from_json(kept, agents=[triage])
    for one in state.interruptions:
        print(f"{one.agent} wants to call {one.name}({one.arguments}): approved")
        state = state.approve(one)
    result = await Runner.run(triage, state)
    return str(result.final_output)


async def main() -> None:
    """Play both parts."""
    desk = {"order 7": await customer_writes()}
    print(f"a state of {len(desk['order 7'])} characters waits for the boss")
    # pop, like DELETE ... RETURNING in a database, gives the state out once: two runs of it would pay twice
    print(await boss_decides(desk.pop("order 7")))


if __name__ == "__main__":
    asyncio.run(main())
