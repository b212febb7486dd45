"""Shows structured output: a wrong value is sent back to the model, and a refusal is replaced by yours."""

from dataclasses import dataclass

from routelock import Agent, ModelBehaviorError, RunConfig, Runner
from routelock.testing import ScriptedHandler


@dataclass
class Ticket:
    """What the agent is to make of a complaint."""

    product: str
    urgent: bool
    summary: str


wrong = '{"product": "Hub One", "urgent": "somewhat", "summary": "No Wi-Fi since the update."}'
right = '{"product": "Hub One", "urgent": true, "summary": "No Wi-Fi since the update."}'
agent = Agent(
    "Intake",
    "Turn the complaint into a ticket.",
    model=ScriptedHandler([wrong, right]),
    output_type=Ticket,
)

result = Runner.run_sync(agent, "Since the update my Hub One has no Wi-Fi. I work from home!")
ticket = result.final_output_as(Ticket)
print(f"{ticket.product}, {'urgent' if ticket.urgent else 'not urgent'}: {ticket.summary}")
for problem in result.errors:
    print(f"Turn {problem.turn}: {problem.message}")


def by_hand(error: ModelBehaviorError) -> Ticket:
    """Return an output in place of the refusal; the error has everything that happened."""
    return Ticket("unknown", urgent=True, summary=f"Read it yourself. The model said: {error.result.refusal}")


refusal = {"role": "assistant", "content": None, "refusal": "I cannot help with threats."}
agent = Agent("Intake", model=ScriptedHandler([refusal]), output_type=Ticket)
result = Runner.run_sync(agent, "Fix it, or else!", run_config=RunConfig(on_refusal=by_hand))
print(result.require_output().summary)
