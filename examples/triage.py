"""Shows a handoff: triage passes the question on, billing answers, the next run starts at triage again."""

from routelock import Agent, Runner
from routelock.testing import ScriptedHandler, call

billing = Agent(
    "Billing",
    "You explain invoices.",
    model=ScriptedHandler(["The second charge is a reservation; your bank lifts it within two days."]),
    handoff_description="Knows about invoices and payments.",
)
triage = Agent(
    "Triage",
    "Greet people, and hand over what others know better.",
    model=ScriptedHandler([call("transfer_to_billing"), "You are welcome!"]),
    handoffs=[billing],  # offered to the model as the tool transfer_to_billing
)

first = Runner.run_sync(triage, "Why was I charged twice?")
for record in first.handoffs:
    print(f"{record.source} -> {record.target} ({record.status})")
print(f"{first.last_agent.name}: {first.final_output}")

# A run starts where you start it. To stay with the last active agent, pass first.last_agent instead.
second = Runner.run_sync(triage, [*first.to_input_list(), {"role": "user", "content": "Thank you!"}])
print(f"{second.last_agent.name}: {second.final_output}")
