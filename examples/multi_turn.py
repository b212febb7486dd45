"""Shows which agent answers the next message: the first one (reset), or the last active one (sticky)."""

from routelock import Agent, Message, RunConfig, Runner
from routelock.history import ToolCall
from routelock.testing import ScriptedHandler, call

MESSAGES = ("Why was I charged twice?", "And when do I get it back?", "Thanks. My lamp flickers, too.")

BILL = "The second charge is a reservation."
BACK = "Within two days."
LAMP = "Try another bulb."
TO_BILLING, TO_TECHNICAL = call("transfer_to_billing"), call("transfer_to_technical")


def front_desk(triage: list[ToolCall | str], billing: list[ToolCall | str]) -> Agent:
    """Return three agents that know one another, with a script as their model."""
    technical = Agent("Technical", "You repair.", model=ScriptedHandler([LAMP]), handoffs=["Triage"])
    bills = Agent("Billing", "You explain bills.", model=ScriptedHandler(billing), handoffs=["Triage"])
    return Agent("Triage", "You route.", model=ScriptedHandler(triage), handoffs=[bills, technical])


def chat(start: Agent, config: RunConfig) -> None:
    """Send three messages. A run keeps nothing, so the next agent and the conversation are kept here."""
    agent = start
    history: list[Message] = []
    for words in MESSAGES:
        history.append({"role": "user", "content": words})
        result = Runner.run_sync(agent, history, run_config=config)
        hops = ", ".join(f"{record.source} -> {record.target}" for record in result.handoffs)
        print(f"  You: {words}")
        print(f"  {result.last_agent.name}: {result.final_output} ({hops or 'no handoff'})")
        agent, history = result.next_agent, result.to_input_list()


print("Reset: every message goes to Triage first.")
desk = front_desk([TO_BILLING, TO_BILLING, TO_TECHNICAL], [BILL, BACK])
chat(desk, RunConfig())

print("Sticky: Billing stays, and hands back what it does not know.")
desk = front_desk([TO_BILLING, TO_TECHNICAL], [BILL, BACK, call("transfer_to_triage")])
chat(desk, RunConfig(next_agent="sticky", agents=[desk]))  # so that Billing can name Triage
