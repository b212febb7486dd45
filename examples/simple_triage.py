"""Simple triage: a front desk hands each question to the right agent, and answers the rest itself.

python examples/simple_triage.py                               replays a recording: no network, no key
python examples/simple_triage.py --live openai/gpt-4o-mini     a model answers
"""

from recorded import play
from routelock import Agent, Handler, RunConfig, Runner

billing = Agent(
    "Billing",
    "You explain invoices, in two sentences at most.",
    handoff_description="Knows about invoices and payments.",
)
technical = Agent(
    "Technical",
    "You help with devices, one step at a time.",
    handoff_description="Knows the devices.",
)
triage = Agent(
    "Triage",
    "You are the first to answer. Hand over what others know better, and answer the rest yourself.",
    handoffs=[billing, technical],  # offered to the model as transfer_to_billing and transfer_to_technical
)

QUESTIONS = ("Why was I charged twice?", "My router blinks red.", "How are you today?")


async def show(model: str | Handler) -> None:
    """Ask three questions, each in a run of its own: every one begins at triage."""
    for question in QUESTIONS:
        result = await Runner.run(triage, question, run_config=RunConfig(model=model))
        print(f"Customer: {question}")
        for record in result.handoffs:
            print(f"  {record.source} -> {record.target}")
        print(f"{result.last_agent.name}: {result.final_output}")


if __name__ == "__main__":
    play("simple_triage", show)
