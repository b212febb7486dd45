"""Shows structured output: the answer is a value of your type, checked, and asked for again if wrong."""

from dataclasses import dataclass

from routelock import Agent, Runner
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
