"""The Model Context Protocol over the same served agents: each agent is a tool.

``create_app(agent, ServeConfig(mcp=MCP()))`` serves it over streamable HTTP, `serve_stdio` over the
program's standard input and output. Needs the extra ``routelock[mcp]``, with version 2.2 or newer
of the mcp package. Start at `tool_calls.py`.
"""
