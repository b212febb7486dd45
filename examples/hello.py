"""Shows the smallest program: one agent, one tool, one answer. Only `model=` changes to go live."""

from routelock import Agent, Runner, function_tool
from routelock.testing import ScriptedHandler, call


@function_tool
def track(order_id: str) -> str:
    """Say where an order is."""
    return f"Order {order_id} left the warehouse and arrives tomorrow."


model = ScriptedHandler([call("track", {"order_id": "A-17"}), "It is on its way and arrives tomorrow."])
agent = Agent("Support", "Answer in one sentence.", model=model, tools=[track])
print(Runner.run_sync(agent, "Where is my order A-17?").final_output)
