"""A travel agent and a desk for refunds that hand over to each other and ask the user, ported from AutoGen.

See docs/coming-from-autogen.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

from routelock import Agent, RunConfig, Runner, RunState, function_tool
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call


@function_tool(needs_approval=True)
def refund_flight(flight_id: str) -> str:
    """Refund a flight."""
    return f"Flight {flight_id} refunded"


travel_agent = Agent(
    name="travel_agent",
    instructions="You plan journeys. The flights_refunder refunds flights.",
    handoff_description="Plans journeys.",
    handoffs=["flights_refunder"],
)
flights_refunder = Agent(
    name="flights_refunder",
    instructions="You refund flights. You need only the flight's number; ask the user for it.",
    handoff_description="Refunds flights.",
    tools=[refund_flight],
    handoffs=["travel_agent"],
)
MODEL = ScriptedHandler(
    [
        call("transfer_to_flights_refunder"),
        "What is the number of the flight?",
        call("refund_flight", {"flight_id": "507811"}),
        call("transfer_to_travel_agent"),
        "The flight is refunded.",
    ]
)
TEAM = RunConfig(model=MODEL, agents=[travel_agent, flights_refunder], next_agent="sticky")

chat = Session("chat-1", InMemorySessions())
for text in ("I need to refund my flight.", "507811"):
    result = Runner.run_sync(travel_agent, text, run_config=TEAM, session=chat)
    while result.interruptions:
        state = RunState.from_json(result.state().to_json(), agents=[travel_agent, flights_refunder])
        for one in state.interruptions:
            print(f"A person approves {one.name} {one.arguments}")
            state = state.approve(one)
        result = Runner.run_sync(travel_agent, state, run_config=TEAM, session=chat)
    print(f"{result.last_agent.name}: {result.final_output}")
