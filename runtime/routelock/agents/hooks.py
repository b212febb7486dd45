"""Hooks: callbacks that observe a run and cannot change it.

Requests and replies are passed as copies. A hook that raises does not end the run; its exception is in
``result.errors``.
"""

from __future__ import annotations

from typing import Any

from routelock.context import RunContext, ToolContext
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request

__all__ = ["AgentHooks", "RunHooks", "are_hooks"]


class RunHooks:
    """Observes a run; override the methods that you need. ``agent`` is always the `routelock.Agent`."""

    async def on_agent_start(self, context: RunContext[Any], agent: Any) -> None:
        """Called each time an agent becomes the active one."""

    async def on_agent_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        """Called when an agent produced the final output."""

    async def on_handoff(self, context: RunContext[Any], from_agent: Any, to_agent: Any) -> None:
        """Called once per handoff, before the target's first model call.

        ``to_agent`` is the `routelock.Handler` if the target is a handler.
        """

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Request) -> None:
        """Called before each model call with a copy of the request that the handler gets."""

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: MessageDone) -> None:
        """Called with a copy of each complete reply."""

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        """Called before a tool runs; ``tool`` is the `routelock.Tool`."""

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        """Called with the text of the tool result, which may be an error report."""


class AgentHooks:
    """Observes one agent in each run that it takes part in."""

    async def on_start(self, context: RunContext[Any], agent: Any) -> None:
        """Called each time this agent becomes the active one."""

    async def on_end(self, context: RunContext[Any], agent: Any, output: Any) -> None:
        """Called when this agent produced the final output."""

    async def on_handoff(self, context: RunContext[Any], agent: Any, source: Any) -> None:
        """Called when the agent ``source`` hands over to ``agent``, once for the hooks of each of the two.

        Compare ``source.name`` with the name of your agent to know which of the two your agent is. ``agent``
        is the `routelock.Handler` if the target is a handler.
        """

    async def on_llm_start(self, context: RunContext[Any], agent: Any, request: Request) -> None:
        """Called before each model call of this agent with a copy of the request that the handler gets."""

    async def on_llm_end(self, context: RunContext[Any], agent: Any, reply: MessageDone) -> None:
        """Called with a copy of each complete reply of this agent."""

    async def on_tool_start(self, context: ToolContext[Any], agent: Any, tool: Any) -> None:
        """Called before one of this agent's tools runs."""

    async def on_tool_end(self, context: ToolContext[Any], agent: Any, tool: Any, result: str) -> None:
        """Called with the text of the tool result."""


def are_hooks(hooks: object, kind: type[AgentHooks | RunHooks]) -> bool:
    """Whether an object can be the hooks of an agent or of a run: it has one of the methods of ``kind``.

    A class is none, and neither is an object of the other kind alone, whose methods have other arguments.
    """
    others = AgentHooks if kind is RunHooks else RunHooks
    if isinstance(hooks, kind) or isinstance(hooks, type | others):
        return isinstance(hooks, kind)
    return any(callable(getattr(hooks, name, None)) for name in vars(kind) if name.startswith("on_"))
