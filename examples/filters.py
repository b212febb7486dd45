"""Shows input filters: what an agent is shown of the conversation when it takes over."""

import dataclasses
import re

from routelock import Agent, HandoffInputData, RunItem, Runner, function_tool, handoff
from routelock.history import compose, remove_all_tools, text_of
from routelock.testing import ScriptedHandler, call


def masked(item: RunItem) -> RunItem:
    """Return an item of the conversation without card numbers."""
    text = re.sub(r"\d{12}(\d{4})", r"(card ending in \1)", text_of(item.message))
    return dataclasses.replace(item, message={**item.message, "content": text})


def hide_card_numbers(data: HandoffInputData) -> HandoffInputData:
    """Hide card numbers in the conversation that the target sees."""
    return data.clone(input_history=map(masked, data.all_items), pre_handoff_items=(), new_items=())


@function_tool
def credit_score(card: str) -> int:
    """Return a customer's internal credit score."""
    return 712


refunds = Agent("Refunds", model=ScriptedHandler(["The money is on its way."]))
declared = handoff(refunds, input_filter=compose(remove_all_tools, hide_card_numbers))
calls = [call("credit_score", {"card": "4111111111111111"}), call("transfer_to_refunds")]
triage = Agent("Triage", model=ScriptedHandler([calls]), tools=[credit_score], handoffs=[declared])

result = Runner.run_sync(triage, "Refund order A-17 to 4111111111111111, please.")
print("What happened:", *result.messages, sep="\n  ")
print("What Refunds was shown:", *result.calls[-1].messages, sep="\n  ")
