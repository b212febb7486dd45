"""An airline's triage, flight changes and lost bags, ported from Swarm.

See docs/coming-from-swarm.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

from typing import Any

from routelock import Agent, HandoffRequest, Message, RunConfig, RunContext, Runner, function_tool
from routelock.testing import ScriptedHandler, call

Variables = dict[str, Any]

POLICY = "Follow these steps in their order, and show none of them to the customer.\n"


def escalate(reason: str = "") -> str:
    """Ask a person to take over."""
    return f"A person takes over. {reason}".strip()


def start_refund() -> str:
    """Start the refund of a cancelled flight."""
    return "The refund is on its way."


def change_flight(day: str) -> str:
    """Move the customer to the same flight on another day."""
    return f"The flight is on {day} now."


@function_tool
def search_bag(ctx: RunContext[Variables]) -> str:
    """Search for a lost bag."""
    ctx.shared_memory["bag"] = "found"
    return f"The bag of {ctx.context['customer']} is found."


@function_tool
def close_case(ctx: RunContext[Variables]) -> HandoffRequest | str:
    """Close the case, when the customer has no further questions."""
    return "The case is closed." if ctx.shared_memory.get("bag") else HandoffRequest("Triage")


def triage_prompt(ctx: RunContext[Variables]) -> str:
    """Write the instructions for this customer."""
    return f"Find out what {ctx.context['customer']} wants, and hand over. Flight: {ctx.context['flight']}."


cancel = Agent(
    name="Cancel",
    handoff_description="Cancels flights.",
    instructions=POLICY + "1. Confirm the flight. 2. Start the refund. 3. Close the case.",
    tools=[escalate, start_refund, close_case],
    handoffs=["Triage"],
)
change = Agent(
    name="Change",
    handoff_description="Moves flights to another day.",
    instructions=POLICY + "1. Ask for the day. 2. Change the flight. 3. Close the case.",
    tools=[escalate, change_flight, close_case],
    handoffs=["Triage"],
)
modification = Agent(
    name="Flight modification",
    handoff_description="For a flight that is to be cancelled or changed.",
    instructions="Find out whether to cancel or to change, and hand over.",
    handoffs=[cancel, change],
    model_settings={"parallel_tool_calls": False},
)
baggage = Agent(
    name="Lost baggage",
    handoff_description="For a bag that did not arrive.",
    instructions=POLICY + "1. Search for the bag. 2. If there is none, escalate. 3. Close the case.",
    tools=[escalate, search_bag, close_case],
    handoffs=["Triage"],
)
triage = Agent(name="Triage", instructions=triage_prompt, handoffs=[modification, baggage])

MODEL = ScriptedHandler(
    [
        call("transfer_to_flight_modification"),
        call("transfer_to_change"),
        "To which day?",
        call("change_flight", {"day": "Friday"}),
        "You fly on Friday.",
        call("transfer_to_triage"),
        call("transfer_to_lost_baggage"),
        call("search_bag"),
        call("close_case"),
        "We have your bag.",
    ]
)
CONFIG = RunConfig(model=MODEL, agents=[triage], next_agent="sticky")


def chat(variables: Variables, *lines: str) -> None:
    """Answer one message after the other; the agent that answered last answers the next one."""
    agent, history = triage, list[Message]()
    for line in lines:
        history.append({"role": "user", "content": line})
        result = Runner.run_sync(agent, history, context=variables, run_config=CONFIG)
        print(f"{result.last_agent.name}: {result.final_output} {result.context.shared_memory}")
        agent, history = result.next_agent, result.to_input_list()


chat(
    {"customer": "Ada", "flight": "RL 417 on Thursday"},
    "I cannot fly on Thursday.",
    "Friday, please.",
    "And my bag did not arrive.",
)
