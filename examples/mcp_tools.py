"""An agent that uses an MCP server: another program, over its standard input and output.

Run it: python examples/mcp_tools.py (needs the extra: pip install 'routelock[mcp]')
"""

from __future__ import annotations

import asyncio
import sys

from routelock import Agent, Runner
from routelock.testing import ScriptedHandler, call
from routelock_skills.mcp import MCPClient

STOCK = """
try:
    from mcp.server import MCPServer  # version 2 of the mcp package
except ImportError:
    from mcp.server.fastmcp import FastMCP as MCPServer

server = MCPServer("stock")
left = {"cup": 3, "lamp": 0}

@server.tool()
def in_stock(item: str) -> str:
    'Tell how many of an item are left.'
    return f"{left[item]} left"

@server.tool()
def order(item: str, amount: int) -> str:
    'Order more of an item.'
    left[item] += amount
    return f"{left[item]} now"

server.run("stdio")
"""

# any other server works too: {"command": "uvx", "args": ["mcp-server-time"]}, or a URL
SERVER = {"command": sys.executable, "args": ["-c", STOCK]}


async def main() -> None:
    """Let an agent look things up, and approve its order."""
    model = ScriptedHandler(
        [
            [call("stock_in_stock", {"item": "lamp"})],
            [call("stock_order", {"item": "lamp", "amount": 5})],
            "There are 5 lamps now.",
        ]
    )
    async with MCPClient(SERVER, prefix="stock_", needs_approval=["order"]) as stock:
        print("tools:", ", ".join(each.name for each in stock.tools))
        clerk = Agent("clerk", "You see to it that nothing runs out.", model=model, tools=[*stock.tools])
        result = await Runner.run(clerk, "Do we have lamps?")
        state = result.state()
        for one in result.interruptions:
            print(f"{one.name}({one.arguments}): approved")
            state = state.approve(one)
        result = await Runner.run(clerk, state)
    for message in result.to_input_list():
        if message["role"] == "tool":
            print("the server:", message.get("content"))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
