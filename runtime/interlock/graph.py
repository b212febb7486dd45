"""The agents of a run, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.agent_tools import AgentCall
from interlock.agents import Agent
from interlock.config import RunConfig
from interlock.errors import ConfigError
from interlock.models import check_model
from interlock.port import tool_name

__all__ = ["find_agent", "run_graph"]


def run_graph(agent: Agent[Any], config: RunConfig) -> dict[str, Agent[Any]]:
    """Return every agent of the run by name, after checking that each can answer and be found.

    Raises:
        ConfigError: two agents have one name, one has no model, a handoff names nobody, or a tool of
            the caller's is named like a handoff.
    """
    graph = dict(agent.graph)
    for one in config.agents:
        for name, other in one.graph.items():
            if graph.setdefault(name, other) is not other:
                raise ConfigError(f"Two different agents are named {name!r}; give each its own name.")
    taken = {tool_name(tool) for tool in config.external_tools}
    for member in graph.values():
        check_model(member, config)
        for edge in member.edges:
            if isinstance(edge.target, str):
                find_agent(graph, edge.target, member.name)
            if edge.tool_name in taken:
                raise ConfigError(
                    f"The caller's tool {edge.tool_name!r} is named like a handoff of agent {member.name!r}; "
                    "give it another name."
                )
    _check_behind_tools(graph, config)
    return graph


def _check_behind_tools(graph: Mapping[str, Agent[Any]], config: RunConfig) -> None:
    """Check that the agents that are called as tools can answer, and those that they call."""
    known = set(graph.values())
    waiting = list(known)
    while waiting:
        hows = [tool.on_invoke_tool for tool in waiting.pop().all_tools]
        behind = {agent for how in hows if isinstance(how, AgentCall) for agent in how.agent.graph.values()}
        for agent in behind - known:
            check_model(agent, config)
            waiting.append(agent)
        known |= behind


def find_agent(graph: Mapping[str, Agent[Any]], name: str, wanted_by: str) -> Agent[Any]:
    """Return the agent of that name in the run's graph, or say which names there are."""
    try:
        return graph[name]
    except KeyError:
        known = ", ".join(sorted(graph))
        raise ConfigError(
            f"Agent {wanted_by!r} hands off to {name!r}, which is no agent of this run. Known: {known}. "
            "Put the agent itself into handoffs, or add it to RunConfig(agents=[...])."
        ) from None
