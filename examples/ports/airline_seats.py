"""An airline's front desk with a list of answers and a seat desk, ported from openai-agents.

See docs/coming-from-openai-agents.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

from dataclasses import dataclass

from routelock import Agent, Message, RunConfig, RunContext, Runner, RunResult, function_tool, handoff
from routelock.testing import ScriptedHandler, call


@dataclass
class Booking:
    """What the app knows of the customer; no model is shown it."""

    flight: str | None = None
    seat: str | None = None


ANSWERS = {"bag": "One bag of 23 kg is included.", "wifi": "There is free wifi on board."}


@function_tool
def look_up(question: str) -> str:
    """Look up an answer in the airline's list of questions."""
    found = [answer for word, answer in ANSWERS.items() if word in question.lower()]
    return " ".join(found) or "The list has no answer."


@function_tool
def update_seat(ctx: RunContext[Booking], code: str, seat: str) -> str:
    """Give a booking another seat, such as 12A."""
    ctx.context.seat = seat
    return f"Booking {code} has seat {seat} on flight {ctx.context.flight}."


def find_flight(ctx: RunContext[Booking]) -> None:
    """Look up the flight when the seat desk takes over."""
    ctx.context.flight = "RL 417"


faq = Agent[Booking](
    name="FAQ",
    handoff_description="Answers questions about the airline.",
    instructions="Answer with look_up and not from memory. Hand back what it has no answer to.",
    tools=[look_up],
    handoffs=["Front desk"],
)
seats = Agent[Booking](
    name="Seat desk",
    handoff_description="Changes seats.",
    instructions="Ask for the code of the booking and the seat, then call update_seat. Hand back the rest.",
    tools=[update_seat],
    handoffs=["Front desk"],
)
front = Agent[Booking](
    name="Front desk",
    instructions="Hand over to the agent that can help.",
    handoffs=[faq, handoff(seats, on_handoff=find_flight)],
)

MODEL = ScriptedHandler(
    [
        call("transfer_to_faq"),
        call("look_up", {"question": "How many bags?"}),
        "One bag of 23 kg.",
        call("transfer_to_front_desk"),
        call("transfer_to_seat_desk"),
        "Which code, and which seat?",
        call("update_seat", {"code": "K7Q2", "seat": "12A"}),
        "You sit in 12A now.",
    ]
)
CONFIG = RunConfig(model=MODEL, agents=[front], next_agent="sticky", handoff_prompt=True)


def show(result: RunResult[str]) -> None:
    """Print what one run added to the conversation."""
    for item in result.new_items:
        for made in item.message.get("tool_calls", []):
            print(f"{item.agent} calls {made['function']['name']}")
        if item.kind == "tool" or item.message.get("content"):
            print(f"{item.agent} {item.kind}: {item.message.get('content')}")


def chat(*lines: str) -> Booking:
    """Answer one message after the other; the agent that answered last answers the next one."""
    agent, history, booking = front, list[Message](), Booking()
    for line in lines:
        history.append({"role": "user", "content": line})
        result = Runner.run_sync(agent, history, context=booking, run_config=CONFIG)
        show(result)
        agent, history = result.next_agent, result.to_input_list()
    return booking


print(chat("How many bags may I bring?", "I want another seat.", "Code K7Q2, seat 12A."))
