"""Shows an escalation: data that the model must pass, a target that declines, and an agent that goes on."""

from dataclasses import dataclass

from routelock import Agent, HandoffRequest, HandoffResponse, RunContext, Runner, handoff
from routelock.testing import ScriptedHandler, call


@dataclass
class Escalation:
    """What support must pass along: the model sees these fields, and they are checked."""

    order: str
    amount: float
    reason: str


def worth_it(request: HandoffRequest) -> HandoffResponse:
    """Let the manager take over for large amounts only."""
    if request.input.amount < 100:
        return HandoffResponse.reject("The manager decides from 100 EUR on; refund smaller amounts yourself.")
    return HandoffResponse.accept()


def open_case(context: RunContext[None], case: Escalation) -> None:
    """Note the case; this runs once the manager has accepted."""
    print(f"  case opened: {case.order}, {case.amount:.2f} EUR, {case.reason}")


manager = Agent(
    "Manager",
    "You settle what support cannot.",
    model=ScriptedHandler(["I am sorry about your piano. You get all of it back."]),
    on_handoff_request=worth_it,
)
support = Agent(
    "Support",
    "You help customers. Escalate when they ask for a manager.",
    model=ScriptedHandler(
        [
            call("transfer_to_manager", {"order": "A-17", "amount": "a lot", "reason": "broken lamp"}),
            call("transfer_to_manager", {"order": "A-17", "amount": 19.9, "reason": "broken lamp"}),
            "I have refunded your lamp myself.",
            call("transfer_to_manager", {"order": "B-2", "amount": 4200, "reason": "broken piano"}),
        ]
    ),
    handoffs=[handoff(manager, input_type=Escalation, on_handoff=open_case)],
)

for words in ("My lamp is broken. Your manager!", "My piano is broken, too. Your manager!"):
    print(f"Customer: {words}")
    result = Runner.run_sync(support, words)
    for record in result.handoffs:
        why = (record.error or "").partition("\n")[0]
        print(f"  {record.source} -> {record.target}: {record.status} {why}")
    print(f"{result.last_agent.name}: {result.final_output}")
