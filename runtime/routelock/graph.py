"""The agents of a run, by name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from routelock.agents.agent import Agent, collected, connected, find_agent, in_one
from routelock.config import RunConfig
from routelock.errors import ConfigError
from routelock.handlers.port import tool_name
from routelock.models import check_model
from routelock.tools.agent_tool import AgentCall

__all__ = ["run_graph"]


def run_graph(agent: Agent[Any], config: RunConfig) -> dict[str, Agent[Any]]:
    """Return every agent of the run by name, after checking that each can answer and be found.

    Agents that are called as tools are not of the run but have runs of their own; these are checked, too.

    Raises:
        ConfigError: two agents have one name, one has no model, a handoff names no agent, or a tool of
            the caller's is named like a handoff. All of it is in one message.
    """
    wrong: list[ConfigError] = []
    graph = _checked(agent, config, {tool_name(tool) for tool in config.external_tools}, wrong)
    checked, waiting = {agent}, [*graph.values()]
    while waiting:
        for tool in waiting.pop().all_tools:
            how = tool.on_invoke_tool
            if isinstance(how, AgentCall) and how.agent not in checked:
                checked.add(how.agent)
                waiting += _checked(how.agent, config, (), wrong).values()
    if wrong:
        raise in_one(wrong)
    return graph


def _checked(
    agent: Agent[Any], config: RunConfig, taken: Collection[str], wrong: list[ConfigError]
) -> dict[str, Agent[Any]]:
    try:
        graph = connected(agent, config.agents)
    except ConfigError as error:
        wrong.append(error)
        return {}
    for member in graph.values():
        collected(wrong, lambda member: check_model(member, config), [member])
        _check_edges(member, graph, taken, wrong)
    return graph


def _check_edges(
    member: Agent[Any],
    graph: Mapping[str, Agent[Any]],
    taken: Collection[str],
    wrong: list[ConfigError],
) -> None:
    for edge in member.edges:
        names = [target for target in (edge.target, *edge.others) if isinstance(target, str)]
        collected(wrong, lambda name: find_agent(graph, name, member.name), names)
        if edge.tool_name in taken:
            wrong.append(
                ConfigError(
                    f"The caller's tool {edge.tool_name!r} is named like a handoff of agent {member.name!r}; "
                    "give it another name."
                )
            )
