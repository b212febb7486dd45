"""Shows an agent as a tool of an MCP host, which asks its user to approve a call. It needs `mcp>=2`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.types import ElicitResult

from routelock import Agent, tool
from routelock.testing import ScriptedHandler, call

try:
    from mcp import Client
except ImportError:
    print("This needs version 2 of the SDK: pip install 'mcp>=2'")
    sys.exit()


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount out."""
    print("a tool may print: this goes to stderr")
    return f"{amount} EUR are on their way"


script = ScriptedHandler([call("pay", {"amount": 40}), "You will have 40 EUR tomorrow."])
clerk = Agent("clerk", "You pay refunds out.", model=script, tools=[pay], handoff_description="Pays refunds.")


async def ask_user(context: Any, params: Any) -> ElicitResult:
    """Answer a question of the server, as a user would in a dialog."""
    print("host:", params.message)
    print("user: yes")
    return ElicitResult(action="accept", content={})


async def tell(progress: float, total: float | None, message: str | None) -> None:
    """Show what the agent does."""
    print(f"  {progress:g} {message}")


async def main() -> None:
    """Start `routelock mcp` as a host does, and call the agent."""
    # in the settings of a host: {"command": "routelock", "args": ["mcp", "mcp_server:clerk"], "cwd": ...}
    command = ["-m", "routelock", "mcp", "mcp_server:clerk"]
    folder = Path(__file__).parent
    server = StdioServerParameters(command=sys.executable, args=command, cwd=folder, env=dict(os.environ))
    async with Client(stdio_client(server), elicitation_callback=ask_user) as host:
        for each in (await host.list_tools()).tools:
            print(f"tool {each.name}: {each.description}")
        result = await host.call_tool("clerk", {"input": "My money back."}, progress_callback=tell)
        print("clerk:", *(each.text for each in result.content if each.type == "text"))


if __name__ == "__main__":
    asyncio.run(main())
