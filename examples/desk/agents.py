"""The agents of the support desk: who they are, what they may do, and whom they hand over to."""

from __future__ import annotations

import dataclasses
import re

import pydantic

from desk.shop import (
    Desk,
    check_devices,
    issue_refund,
    list_orders,
    look_up_order,
    restart_device,
    search_manual,
)
from routelock import Agent, HandoffInputData, RunContext, RunItem, handoff
from routelock.history import compose, remove_all_tools, text_of

__all__ = ["REFUNDS", "TECHNICAL", "TRIAGE", "RefundRequest", "hide_card_numbers"]


class RefundRequest(pydantic.BaseModel):
    """What triage has to pass on with a transfer to refunds."""

    order_id: str = pydantic.Field(description="Such as A-1001.")
    reason: str = pydantic.Field(description="Why the customer wants the money back, in a few words.")


def open_case(run: RunContext[Desk], request: RefundRequest) -> None:
    """Accept a transfer to refunds. If this raises, there is none, and triage is told why."""
    order = run.context.order(request.order_id)
    run.shared_memory["case"] = f"{order['order_id']} ({order['item']}): {request.reason}"


def refunds_prompt(run: RunContext[Desk]) -> str:
    """Write the system prompt of refunds, with the case that triage has opened."""
    case = run.shared_memory.get("case", "none yet, ask for the order and the reason")
    return (
        "You decide about refunds at the support desk of a shop. Look the order up before you refund it. "
        "If a refund is refused, say why and when it will be possible. Anything else is for Triage. "
        f"The case: {case}"
    )


def hide_card_numbers(data: HandoffInputData) -> HandoffInputData:
    """Show the target the last four digits of a card number at most."""

    def hidden(item: RunItem) -> RunItem:
        text, found = re.subn(r"\b(?:\d[ -]?){12}(\d{4})\b", r"**** \1", text_of(item.message))
        return dataclasses.replace(item, message={**item.message, "content": text}) if found else item

    return data.clone(input_history=map(hidden, data.all_items), pre_handoff_items=(), new_items=())


REFUNDS = Agent[Desk](
    "Refunds",
    refunds_prompt,
    handoff_description="Pays orders back.",
    tools=[look_up_order, issue_refund],
    handoffs=["Triage"],  # triage does not exist yet, so the other agents name it
)
TECHNICAL = Agent[Desk](
    "Technical",
    "You repair devices at the support desk of a shop. Check the devices and the manual first, then act. "
    "Anything else is for Triage.",
    handoff_description="Knows the devices and can restart them.",
    tools=[search_manual, check_devices, restart_device],
    handoffs=["Triage"],
)
TRIAGE = Agent[Desk](
    "Triage",
    "You are the first to answer at the support desk of a shop. Refunds are for Refunds, devices that do "
    "not work for Technical. Answer everything else yourself. Do not announce that you hand over.",
    tools=[list_orders],
    handoffs=[
        # Refunds sees what was said, but no look-ups of others and no card numbers
        handoff(
            REFUNDS,
            input_type=RefundRequest,
            on_handoff=open_case,
            input_filter=compose(remove_all_tools, hide_card_numbers),
        ),
        # Technical sees one summary of all that came before, and the customer's last message
        handoff(TECHNICAL, nest_handoff_history=True),
    ],
)
