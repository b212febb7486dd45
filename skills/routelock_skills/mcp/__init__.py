"""MCP servers as tools: the extra ``mcp``.

    async with MCPClient("https://docs.example.com/mcp") as docs:
        agent = Agent("helper", model=..., tools=[*docs.tools])
        result = await Runner.run(agent, "How do I install it?")

Works with versions 1 and 2 of the mcp package, on asyncio and trio. Start at `client.py`.
"""

from routelock_skills.mcp.client import MCPClient

__all__ = ["MCPClient"]
