"""The agents that an app serves, each under its name as a model id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from routelock._tool_names import transfer_tool_name
from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.port import ToolSpec, tool_name
from routelock.handoffs.handoff import is_list
from routelock.run.config import RunConfig
from routelock.run.start import run_graph
from routelock.serving.errors import Refusal

__all__ = ["Catalog", "ServedAgent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAgent:
    """An agent, and what serving it needs to know of its graph."""

    agent: Agent[Any]
    graph: Mapping[str, Agent[Any]]
    has_output_type: bool
    """Whether any agent of the graph gives something else than text."""
    taken: frozenset[str]
    """The names of the graph's tools and transfers, also of those that not every caller is offered."""

    def check_tools(self, tools: Sequence[ToolSpec], *, allowed: bool) -> None:
        """Refuse clients' tools where none are allowed, and one that is named like the server's.

        Raises:
            Refusal: 400.
        """
        if tools and not allowed:
            why = "This server takes no tools of its clients. Send the request without tools."
            raise Refusal(400, why, "client_tools_not_allowed", "tools")
        for place, tool in enumerate(tools):
            if (name := tool["function"]["name"]) in self.taken:
                raise Refusal(
                    400,
                    f"Tool {name!r} is named like a tool or transfer of this agent; give it another name.",
                    "invalid_request",
                    f"tools[{place}].function.name",
                )


class Catalog:
    """All agents of an app, the first being the default.

    Args:
        agents: one or more; they may hand over to each other.
        config: the settings of their runs.

    Raises:
        ConfigError: there is none, two have one name, or one cannot run.
    """

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: RunConfig) -> None:
        several = cast("Sequence[Agent[Any]]", agents if is_list(agents) else (agents,))
        listed = tuple(several)
        wrong = [each for each in listed if not isinstance(cast(object, each), Agent)]
        if wrong or not listed:
            given = f"not {wrong[0]!r:.80}" if wrong else "and there is none"
            raise ConfigError(f"An app serves a routelock.Agent or a list of them, {given}.")
        self._served = {agent.name: _served(agent, config) for agent in listed}
        if len(self._served) < len(listed):
            raise ConfigError("Two served agents have one name, and so one model id; rename one.")
        self._default = self._served[listed[0].name]

    @property
    def names(self) -> list[str]:
        """The model ids, the default first."""
        return list(self._served)

    def find(self, model: str) -> ServedAgent:
        """Return the agent of that name; of none or "default", the first.

        Raises:
            Refusal: 404.
        """
        if model in self._served:
            return self._served[model]
        if model in ("", "default"):
            return self._default
        known = ", ".join(repr(name) for name in self._served)
        raise Refusal(
            404, f"There is no model {model[:100]!r} here. There is: {known}.", "model_not_found", "model"
        )


def _served(agent: Agent[Any], config: RunConfig) -> ServedAgent:
    graph = run_graph(agent, config)
    edges = {edge.tool_name for member in graph.values() for edge in member.edges}
    tools = {tool_name(tool) for member in graph.values() for tool in member.all_tools}
    tools |= {tool_name(tool) for tool in config.external_tools}
    handlers = {
        transfer_tool_name(each.name) for member in graph.values() for each in member.registered.handlers
    }
    return ServedAgent(
        agent=agent,
        graph=graph,
        has_output_type=any(member.output is not None for member in graph.values()),
        taken=frozenset(edges | handlers | tools),
    )
