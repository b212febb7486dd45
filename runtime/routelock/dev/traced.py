"""The graph of a run, from its trace."""

from __future__ import annotations

from routelock.agents.graph import Link, Node, Outline
from routelock.tracing.records import AgentTraced, RunStarted

__all__ = ["outline_of_trace"]


def outline_of_trace(start: RunStarted) -> Outline:
    """Return the graph that a run began with."""
    nodes = {one.name: _node(one) for one in start.agents}
    nodes = nodes or {start.agent: Node(name=start.agent)}
    links: dict[tuple[str, str, str], Link] = {}
    for one in start.agents:
        for link in _links(one):
            links.setdefault((link.source, link.target, link.kind), link)
    handlers = {
        each for one in start.agents for edge in one.handoffs if edge.to_handler for each in [edge.target]
    }
    for link in links.values():
        is_handler = link.target in handlers
        nodes.setdefault(link.target, Node(name=link.target, kind="handler" if is_handler else "open"))
    begins = start.default_agent or start.agent
    return Outline(
        start=begins if begins in nodes else next(iter(nodes)),
        nodes=tuple(nodes.values()),
        links=tuple(links.values()),
    )


def _node(one: AgentTraced) -> Node:
    return Node(
        name=one.name, handlers=tuple(one.handlers), about=one.description or None, tools=tuple(one.tools)
    )


def _links(one: AgentTraced) -> list[Link]:
    handoffs = [
        Link(source=one.name, target=target, tool=edge.tool_name, returns=edge.returns)
        for edge in one.handoffs
        for target in (edge.target, *edge.others)
    ]
    asks = [
        Link(source=one.name, target=agent, kind="asks", tool=tool) for tool, agent in one.agent_tools.items()
    ]
    return handoffs + asks
