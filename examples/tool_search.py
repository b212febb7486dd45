"""Shows an agent with many tools: its model is offered a search, and then the tools that it has found."""

import asyncio
import json

from routelock import Agent, Runner, Tool, ToolContext
from routelock.testing import ScriptedHandler, call
from routelock.tools import ToolSearch

ACTIONS = {
    "create": "Create a new {}.",
    "list": "List all {}s.",
    "delete": "Delete a {}.",
    "update": "Change a {}.",
}
THINGS = [
    "invoice",
    "customer",
    "order",
    "shipment",
    "refund",
    "product",
    "coupon",
    "review",
    "employee",
    "meeting",
]


def done(context: ToolContext, arguments: str) -> str:
    """Do as if the tool had worked."""
    return f"{context.tool_name} is done"


tools = [
    Tool(name=f"{action}_{thing}", description=text.format(thing), on_invoke_tool=done)
    for thing in THINGS
    for action, text in ACTIONS.items()
]

model = ScriptedHandler(
    [call("search_tools", {"query": "bill a client"}), call("create_invoice"), "The bill is written."]
)
agent = Agent("office", model=model, tools=tools, tool_search=ToolSearch(defer_over=20, most=3))


async def main() -> None:
    """Print what each request of the run offers, and how large that is."""
    result = await Runner.run(agent, "Bill Ada for the work, please.")
    for request in model.requests:
        names = ", ".join(spec["function"]["name"] for spec in request.tools)
        print(f"{len(json.dumps(list(request.tools))):5} bytes of tools: {names}")
    print(f"{len(json.dumps([tool.spec for tool in tools])):5} bytes would be all {len(tools)} of them")
    print(result.final_output)


asyncio.run(main())
