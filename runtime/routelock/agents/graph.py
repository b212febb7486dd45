"""The graph of agents and their handoffs, as data, as a table and as Mermaid; `svg.py` draws it as SVG."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock._callables import name_of
from routelock._text import one_line
from routelock.agents.agent import Agent
from routelock.agents.agent_tool import AgentCall
from routelock.agents.checked_graph import agent_tools, connected, find_agent
from routelock.handoffs.capabilities import missing_capability
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import sent_by
from routelock.tools.vendor_tool import VendorTool

if TYPE_CHECKING:
    from routelock.run.config import RunConfig

__all__ = [
    "HandoffRow",
    "Link",
    "Node",
    "Outline",
    "as_markdown",
    "graph_mermaid",
    "handoff_matrix",
    "members_of",
    "outline_mermaid",
    "outline_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An agent, or another target of a handoff."""

    name: str
    kind: Literal["agent", "handler", "open"] = "agent"
    """The kind of the target. ``open``: the run chooses the target, or the agent is not in the graph."""
    handlers: Sequence[str] = ()
    """The handlers of an agent, the default first, as the user wrote them."""
    about: str | None = None
    """The purpose of the agent."""
    tools: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A handoff or a call from one agent to another."""

    source: str
    target: str
    kind: Literal["handoff", "asks"] = "handoff"
    """The kind of the link. ``asks``: the target is called as a tool, and the source stays active."""
    tool: str
    """The name of the tool that the model calls."""
    returns: bool = False
    """Whether the source becomes active again after the target's output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A graph of agents; the first node is the agent that a run begins with."""

    start: str
    nodes: Sequence[Node]
    links: Sequence[Link]


def outline_of(agent: Agent[Any], agents: Sequence[Agent[Any]] = ()) -> Outline:
    """Return the graph of all agents that are reachable from an agent, the nearest first.

    Args:
        agent: the agent that a run begins with.
        agents: more agents that handoffs may name, see ``RunConfig.agents``.

    Raises:
        ConfigError: two different agents have one name.
    """
    members = members_of(agent, agents)
    nodes = {name: _node_of(member) for name, member in members.items()}
    links: dict[tuple[str, str, str], Link] = {}
    for name, member in members.items():
        for target, link in _links(member):
            nodes.setdefault(target.name, target)
            links.setdefault((name, link.target, link.kind), link)
    return Outline(start=agent.name, nodes=tuple(nodes.values()), links=tuple(links.values()))


def members_of(agent: Agent[Any], agents: Sequence[Agent[Any]]) -> dict[str, Agent[Any]]:
    """Return all agents by name, those that are called as tools included."""
    found: dict[str, Agent[Any]] = {}
    waiting = [agent, *agents]
    while waiting:
        one = waiting.pop(0)
        for name, member in one.graph.items():
            if found.setdefault(name, member) is member:
                waiting += [call.agent for _, call in agent_tools(member) if call.agent.name not in found]
    return found


def _vendor_tool_names(agent: Agent[Any]) -> list[str]:
    return [tool.name for tool in agent.tools if isinstance(tool, VendorTool)]


def _node_of(agent: Agent[Any]) -> Node:
    return Node(
        name=agent.name,
        handlers=tuple(each.written for each in agent.registered.handlers),
        about=agent.handoff_description,
        tools=(*(tool.name for tool in agent.all_tools), *_vendor_tool_names(agent)),
    )


def _links(agent: Agent[Any]) -> Iterator[tuple[Node, Link]]:
    for handoff in agent.all_handoffs:
        for target in _targets(handoff):
            yield (
                target,
                Link(
                    source=agent.name,
                    target=target.name,
                    tool=handoff.tool_name,
                    returns=handoff.return_to_caller,
                ),
            )
    for name, call in agent_tools(agent):
        target = _node_of(call.agent)
        yield target, Link(source=agent.name, target=target.name, kind="asks", tool=name)


def _targets(handoff: Handoff) -> Iterator[Node]:
    if handoff.target is None:
        yield Node(name=handoff.agent_name, kind="open")
    for target in (handoff.target, *handoff.others):
        if isinstance(target, Agent):
            yield _node_of(target)
        elif isinstance(target, str):
            yield Node(name=target, kind="open")
        elif target is not None:
            yield Node(name=target.name, kind="handler", about=getattr(target, "prompt", None))


_SHAPES = {"agent": '["{}"]', "handler": '[["{}"]]', "open": '{{{{"{}"}}}}'}

_START_SHAPE = '(["{}"]):::start'

_MARKUP = re.compile(r"[^\w .,:/()\-+]")
"""Characters that may be markup in Mermaid, Markdown or HTML; each is written as its number."""


def graph_mermaid(agent: Agent[Any], *, agents: Sequence[Agent[Any]] = ()) -> str:
    """Return the graph of all agents that are reachable from an agent, as a Mermaid flowchart.

    The agent that a run begins with is rounded. A dotted line leads to an agent that is called as a tool.

    Args:
        agent: the agent that a run begins with.
        agents: more agents that handoffs may name, see ``RunConfig.agents``.

    Raises:
        ConfigError: two different agents have one name.
    """
    return outline_mermaid(outline_of(agent, agents))


def outline_mermaid(outline: Outline) -> str:
    """Return an outline as a Mermaid flowchart, see `graph_mermaid`."""
    ids = {node.name: f"n{place}" for place, node in enumerate(outline.nodes)}
    lines = [f"    {ids[node.name]}{_box(node, outline)}" for node in outline.nodes]
    lines += [f"    {ids[link.source]} {_arrow(link)} {ids[link.target]}" for link in outline.links]
    return "\n".join(("flowchart LR", *lines, "    classDef start stroke-width:3px", ""))


def _box(node: Node, outline: Outline) -> str:
    shape = _START_SHAPE if node.name == outline.start else _SHAPES[node.kind]
    return shape.format(_label(node.name))


def _arrow(link: Link) -> str:
    if link.kind == "asks":
        return f'-. "{_label(link.tool)}" .->'
    return '-- "and back" -->' if link.returns else "-->"


def _label(text: str) -> str:
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", one_line(text))


_COLUMNS = ("source", "target", "type", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRow:
    """A handoff of an agent, or an agent that it calls as a tool."""

    source: str
    targets: Sequence[str]
    """The targets in order; empty if no agent has the capabilities, or if a function chooses the target."""
    tool_name: str
    """The name of the tool that the model calls."""
    type: str
    """The type of the payload. Without a payload: ``handoff``; ``handler`` if another handler of the same
    agent takes over; ``tool`` for an agent as a tool."""
    context: Sequence[str]
    """The input of the target, and the conditions of the handoff."""


def handoff_matrix(agent: Agent[Any], config: RunConfig | None = None) -> list[HandoffRow]:
    """Return a row for each handoff and each agent tool that a run can reach, the nearest agents first.

    Input filters and functions are named, because their results are not known before a run.

    Args:
        agent: the agent that a run begins with.
        config: the configuration of the run; the table depends on its ``agents``, ``handoff_input_filter``
            and ``nest_handoff_history``.

    Raises:
        ConfigError: a handoff names an agent that does not exist, or two agents have one name.
        PayloadError: a payload that is not a function cannot be sent.
    """
    if config is None:
        from routelock.run.config import RunConfig  # noqa: PLC0415 - a room above

        config = RunConfig()
    rows: list[HandoffRow] = []
    seen: set[Agent[Any]] = set()
    waiting = [agent]
    while waiting:  # an agent that is called as a tool has a sub-run with its own agents
        graph = connected(waiting.pop(0), config.agents)
        for source in graph.values():
            if source not in seen:
                seen.add(source)
                rows += [_by_handoff(source, handoff, graph, config) for handoff in source.all_handoffs]
                rows += [_by_tool(source, name, call) for name, call in agent_tools(source)]
                waiting += [call.agent for _, call in agent_tools(source)]
    return rows


def as_markdown(rows: Iterable[HandoffRow]) -> str:
    """Return the rows as a table with the columns source, target, type and context."""
    cells = [(row.source, ", ".join(row.targets) or "?", row.type, "; ".join(row.context)) for row in rows]
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *cells]
    return "".join(f"| {' | '.join(_cell(each) for each in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def _by_tool(source: Agent[Any], name: str, call: AgentCall) -> HandoffRow:
    fields = ", ".join(call.takes.schema.get("properties", {}))
    given = "only what the model passes" if call.input is None else f"what {name_of(call.input)} makes of"
    remembers = () if call.session is None else ("a session of its own",)
    return HandoffRow(
        source=source.name,
        targets=(call.agent.name,),
        tool_name=name,
        type="tool",
        context=(f"{given}: {fields}", *remembers, "answers the call"),
    )


def _by_handoff(
    source: Agent[Any], handoff: Handoff, graph: Mapping[str, Agent[Any]], config: RunConfig
) -> HandoffRow:
    kind, data = _payload(source, handoff)
    return HandoffRow(
        source=source.name,
        targets=_target_names(source, handoff, graph),
        tool_name=handoff.tool_name,
        type=kind,
        context=(_history(handoff, config), *data, *_given(handoff), *_conditions(handoff)),
    )


def _target_names(source: Agent[Any], handoff: Handoff, graph: Mapping[str, Agent[Any]]) -> tuple[str, ...]:
    if handoff.on_invoke_handoff is not None:
        return ()
    if handoff.target is None:
        needed = handoff.capabilities_required
        able = [one for one in graph.values() if one is not source and not missing_capability(one, needed)]
        return tuple(one.name for one in able)
    given = (handoff.target, *handoff.others)
    found = [find_agent(graph, one, source.name) if isinstance(one, str) else one for one in given]
    return tuple(one.name for one in found)


def _history(handoff: Handoff, config: RunConfig) -> str:
    """Return what the target sees of the conversation; the handoff's settings precede those of the run."""
    if handoff.input_filter is not None:
        return f"the conversation through {name_of(handoff.input_filter)}"
    if not handoff.preserve_context:
        return "the newest user message"
    if config.handoff_input_filter is not None:
        return f"the conversation through {name_of(config.handoff_input_filter)}"
    nests = config.nest_handoff_history if (own := handoff.nest_handoff_history) is None else own
    if not nests:
        return "the conversation"
    return "a summary and the newest user message" if config.nest_keep_last_user else "a summary"


def _payload(source: Agent[Any], handoff: Handoff) -> tuple[str, list[str]]:
    """Return the type of the payload, and a description of its data."""
    given = cast(Any, handoff.payload)
    if given is None:
        return "handler" if handoff.to_handler else "handoff", []
    if callable(given):
        return f"made by {name_of(given)}", []
    payload = sent_by(source.name, given)
    keys = ", ".join(payload.context_data)
    return payload.handoff_type, [f"payload: {keys}"] if keys else []


def _given(handoff: Handoff) -> Iterator[str]:
    if passed := ", ".join((handoff.input_json_schema or {}).get("properties", {})):
        yield f"the model passes: {passed}"
    if handoff.share is not None:
        yield f"of the shared memory: {', '.join(handoff.share) or 'nothing'}"
    if handoff.transfer_system_message:
        yield "the source's instructions"


def _conditions(handoff: Handoff) -> Iterator[str]:
    if handoff.on_invoke_handoff is not None:
        yield f"{name_of(handoff.on_invoke_handoff)} chooses the target"
    if handoff.capabilities_required:
        yield f"must be able to: {', '.join(handoff.capabilities_required)}"
    if handoff.is_enabled is not True:
        yield f"if {name_of(handoff.is_enabled)}" if handoff.is_enabled else "never offered"
    if handoff.scope not in (None, "all"):
        scopes = [handoff.scope] if isinstance(handoff.scope, str) else sorted(handoff.scope or ())
        yield f"scope: {', '.join(scopes)}"
    if handoff.return_to_caller:
        yield "answers the call"
