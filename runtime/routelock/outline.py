"""What an agent graph looks like: who is in it, and who leads to whom. Pictures are made of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from routelock.agents import Agent
from routelock.handoffs.handoff import Handoff
from routelock.tools.agent_tool import AgentCall

__all__ = ["Link", "Node", "Outline", "outline_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An agent, or what else a handoff may lead to."""

    name: str
    kind: Literal["agent", "handler", "open"] = "agent"
    """``open``: who it is, is decided during the run, or the agent is not in the graph."""
    handlers: Sequence[str] = ()
    """What can answer for an agent, the default first: names, or a model as it was given."""
    about: str | None = None
    """What it is for."""
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One way from an agent to another."""

    source: str
    target: str
    kind: Literal["handoff", "asks"] = "handoff"
    """``asks``: the target answers as a tool, and the source stays in charge."""
    tool: str
    """The name of the tool that the model calls for it."""
    returns: bool = False
    """Whether the source goes on when the target has answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A graph, the agent that a run begins with first."""

    start: str
    nodes: Sequence[Node]
    links: Sequence[Link]


def outline_of(agent: Agent[Any], agents: Sequence[Agent[Any]] = ()) -> Outline:
    """Return the outline of all that can be reached from an agent, the nearest first.

    Args:
        agent: where a run begins.
        agents: more that handoffs may name, see ``RunConfig.agents``.

    Raises:
        ConfigError: two different agents have one name.
    """
    members = _members(agent, agents)
    nodes = {name: _of_agent(member) for name, member in members.items()}
    links: dict[tuple[str, str, str], Link] = {}
    for name, member in members.items():
        for target, link in _links(member):
            nodes.setdefault(target.name, target)
            links.setdefault((name, link.target, link.kind), link)
    return Outline(start=agent.name, nodes=tuple(nodes.values()), links=tuple(links.values()))


def _members(agent: Agent[Any], agents: Sequence[Agent[Any]]) -> dict[str, Agent[Any]]:
    """Return every agent by name, those that are asked as tools included."""
    found: dict[str, Agent[Any]] = {}
    waiting = [agent, *agents]
    while waiting:
        one = waiting.pop(0)
        for name, member in one.graph.items():
            if found.setdefault(name, member) is member:
                waiting += [each for each in _asked(member) if each.name not in found]
    return found


def _asked(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    for tool in agent.all_tools:
        if isinstance(tool.on_invoke_tool, AgentCall):
            yield tool.on_invoke_tool.agent


def _of_agent(agent: Agent[Any]) -> Node:
    return Node(
        name=agent.name,
        handlers=tuple(
            each.handler if isinstance(each.handler, str) else each.name for each in agent.equipment.handlers
        ),
        about=agent.handoff_description,
        tools=tuple(tool.name for tool in agent.all_tools),
    )


def _links(agent: Agent[Any]) -> Iterator[tuple[Node, Link]]:
    for edge in agent.edges:
        for target in _targets(edge):
            yield (
                target,
                Link(
                    source=agent.name,
                    target=target.name,
                    tool=edge.tool_name,
                    returns=edge.return_to_caller,
                ),
            )
    for tool in agent.all_tools:
        if isinstance(tool.on_invoke_tool, AgentCall):
            asked = _of_agent(tool.on_invoke_tool.agent)
            yield asked, Link(source=agent.name, target=asked.name, kind="asks", tool=tool.name)


def _targets(edge: Handoff) -> Iterator[Node]:
    if edge.target is None:
        yield Node(name=edge.agent_name, kind="open")
    for target in (edge.target, *edge.others):
        if isinstance(target, Agent):
            yield _of_agent(target)
        elif isinstance(target, str):
            yield Node(name=target, kind="open")
        elif target is not None:
            yield Node(name=target.name, kind="handler", about=getattr(target, "prompt", None))
