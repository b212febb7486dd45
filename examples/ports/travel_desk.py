"""A flight desk and a hotel desk that hand over to each other, ported from langgraph-swarm.

See docs/coming-from-langgraph-swarm.md. A script plays the model; `MODEL = "openai/gpt-4o"` goes live.
"""

from collections import defaultdict

from routelock import Agent, RunConfig, RunContext, Runner, function_tool, handoff
from routelock.sessions import InMemorySessions, Session
from routelock.testing import ScriptedHandler, call

FLIGHTS = {"F1": "Lisbon to Oslo, 9:40"}
HOTELS = {"H1": "Fjord Hotel, near the harbour"}

Trips = defaultdict[str | None, dict[str, str]]


@function_tool
def search_flights(origin: str, destination: str) -> dict[str, str]:
    """Search for flights between two airports, given by their codes, such as LIS."""
    return FLIGHTS


@function_tool
def book_flight(ctx: RunContext[Trips], flight_id: str) -> str:
    """Book a flight."""
    ctx.context[ctx.user_id]["flight"] = FLIGHTS[flight_id]
    return "The flight is booked."


@function_tool
def search_hotels(city: str) -> dict[str, str]:
    """Search for hotels."""
    return HOTELS


@function_tool
def book_hotel(ctx: RunContext[Trips], hotel_id: str) -> str:
    """Book a hotel."""
    ctx.context[ctx.user_id]["hotel"] = HOTELS[hotel_id]
    return "The hotel is booked."


def prompt(ctx: RunContext[Trips], agent: Agent[Trips]) -> str:
    """Write the instructions of either desk, with what this user has booked."""
    return f"You are the {agent.name.lower()}. Booked until now: {ctx.context[ctx.user_id]}"


flights = Agent[Trips](
    name="Flight desk",
    instructions=prompt,
    tools=[search_flights, book_flight],
    handoffs=[handoff("Hotel desk", tool_description_override="Hand over to the desk that books hotels.")],
)
hotels = Agent[Trips](
    name="Hotel desk",
    instructions=prompt,
    tools=[search_hotels, book_hotel],
    handoffs=[handoff("Flight desk", tool_description_override="Hand over to the desk that books flights.")],
)

MODEL = ScriptedHandler(
    [
        call("search_flights", {"origin": "LIS", "destination": "OSL"}),
        call("book_flight", {"flight_id": "F1"}),
        "You fly at 9:40.",
        call("transfer_to_hotel_desk"),
        call("search_hotels", {"city": "Oslo"}),
        "Shall I book the Fjord Hotel?",
        call("book_hotel", {"hotel_id": "H1"}),
        "It is booked.",
    ]
)
CONFIG = RunConfig(model=MODEL, agents=[flights, hotels], next_agent="sticky", user_id="ada")

trips: Trips = defaultdict(dict)
thread = Session("thread-1", InMemorySessions())
for line in ("A flight from Lisbon to Oslo, please.", "And a hotel there.", "Yes, please."):
    result = Runner.run_sync(flights, line, context=trips, run_config=CONFIG, session=thread)
    print(f"{result.last_agent.name}: {result.final_output}")
print(dict(trips))
