"""Shows the run's context: your own object, for instructions and tools; no model ever sees it."""

from dataclasses import dataclass

from routelock import Agent, RunContext, Runner, function_tool
from routelock.testing import ScriptedHandler, call


@dataclass
class Customer:
    """The customer, known from the log-in and not from the text of a chat."""

    name: str
    orders: dict[str, str]


def instructions(context: RunContext[Customer]) -> str:
    """Write the system prompt for this customer."""
    return f"You help {context.context.name}. Turn {context.turn}."


@function_tool
def state_of(context: RunContext[Customer], order_id: str) -> str:
    """Look up an order. The context is filled in; the model sees only `order_id`."""
    return context.context.orders.get(order_id, "There is no such order of yours.")


for customer in (Customer("Ada", {"A-17": "shipped"}), Customer("Mallory", {})):
    model = ScriptedHandler([call("state_of", {"order_id": "A-17"}), "Done."])
    agent = Agent[Customer]("Support", instructions, model=model, tools=[state_of])
    result = Runner.run_sync(agent, "Where is A-17?", context=customer)
    first, last = model.requests
    print(f"Prompt: {first.messages[0].get('content')}")
    print(f"Schema: {list(first.tools[0]['function']['parameters']['properties'])}")
    print(f"Result: {last.messages[-1].get('content')}\n")
