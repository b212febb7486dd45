"""The app that serves agents by OpenAI's chat completions and Responses API.

Starlette is imported when an app is made, so that ``import routelock.serving`` needs no extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from routelock._lazy import needs_extra
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.serving.config import ServeConfig

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["create_app"]


def create_app(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig | None = None) -> Starlette:
    """Return an ASGI app that serves agents to any client of OpenAI's chat completions or Responses API.

    Routes, each also below ``/v1``: ``GET /models``, ``GET /models/{id}``, ``POST /chat/completions``,
    ``POST /responses``, ``GET /responses/{id}``, ``DELETE /responses/{id}``; and ``GET /health``, which asks
    for no key. A model id is the name of an agent; an empty one or ``"default"`` is the first.

    * The agents have their own settings. Of a chat request, only ``messages``, ``model``, ``stream``,
      ``stream_options``, ``tools``, ``tool_choice``, ``user``, ``n`` (which must be 1) and
      ``handoff_context`` are used; ``temperature``, ``max_tokens``, ``response_format`` and others are
      ignored, unless ``ServeConfig.client_settings`` says otherwise. A request for a response that has a
      parameter that is not supported is refused, see docs/responses-api.md.
    * The client runs its own ``tools``: a call of one ends the turn with the ``finish_reason``
      ``"tool_calls"``. Tools of the agents and handoffs run on the server, and are not shown as calls.
    * The content is the text of all replies of the run, separated by blank lines. If the agent that answers
      has an ``output_type``, the content is its output alone, and is not streamed before the end. ``x_agent``
      on a delta or message names the agent that wrote it.
    * ``handoff_context``, an object, and the ``traceparent`` header are in
      ``shared_memory["handoff_origin"]`` of the run. Its ``hops`` counts the servers passed.
    * A client that leaves cancels its run.

    With ``ServeConfig(a2a=A2A())`` it also answers clients of the Agent2Agent protocol, see `A2A` and
    docs/a2a.md; with ``ServeConfig(ag_ui=AGUI())`` front ends that speak AG-UI, see `AGUI` and docs/ag-ui.md.
    With ``ServeConfig(mcp=MCP())`` the agents are tools of MCP hosts, see `MCP` and docs/mcp-server.md.

    Args:
        agents: one agent, or several.
        config: keys, limits and settings.

    Raises:
        MissingExtra: Starlette is not installed.
        ConfigError: the agents cannot be served.
    """
    if not isinstance(cast("object", config), ServeConfig | None):
        raise ConfigError(f"config must be a ServeConfig, not {type(config).__name__}.")
    with needs_extra("Serving needs starlette and uvicorn, which are not installed", "serve"):
        from routelock.serving.routes import served_app  # noqa: PLC0415 - it needs the extra
    return served_app(agents, config or ServeConfig())
