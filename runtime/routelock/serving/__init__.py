"""Serving agents over HTTP, to any client of OpenAI's chat completions or Responses API.

    uvicorn.run(create_app(agent, ServeConfig(api_keys=[key])), port=8000)

The command ``routelock serve module:agent`` does the same. Needs the extra ``routelock[serve]``, when an
app is made; importing this package does not. `responses/` is the Responses API, `a2a/` the Agent2Agent
protocol, `ag_ui/` the protocol of front ends, `mcp/` the Model Context Protocol, `dev/` the dev page. May
import every room but `cli`, and the providers. Start at `app.py`.
"""

from __future__ import annotations

from routelock.serving.app import create_app
from routelock.serving.config import A2A, AGUI, MCP, ServeConfig, ServedRequest
from routelock.serving.mcp.stdio import serve_stdio

__all__ = ["A2A", "AGUI", "MCP", "ServeConfig", "ServedRequest", "create_app", "serve_stdio"]
