"""The graph of agents: who can hand over to whom, as data, as a table and as Mermaid.

The table is for a page of docs, a review, or a test that nothing has changed. `svg.py` draws the same graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock._callables import name_of
from routelock._text import escape_control
from routelock.agents.agent import Agent, connected, find_agent
from routelock.handoffs.capabilities import missing_capability
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import sent_by
from routelock.tools.agent_tool import AgentCall

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
    "outline_mermaid",
    "outline_of",
]


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
            each.handler if isinstance(each.handler, str) else each.name for each in agent.registered.handlers
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


_SHAPES = {"agent": '["{}"]', "handler": '[["{}"]]', "open": '{{{{"{}"}}}}'}

_START = '(["{}"]):::start'

_ACTIVE = re.compile(r"[^\w .,:/()\-+]")
"""What Mermaid, Markdown or HTML could take for more than text; written as the number of the character."""


def graph_mermaid(agent: Agent[Any], *, agents: Sequence[Agent[Any]] = ()) -> str:
    """Return the graph that can be reached from an agent, as the text of a Mermaid flowchart.

    The agent that a run begins with is rounded. A dotted line is an agent that is asked as a tool.

    Args:
        agent: where a run begins.
        agents: more that handoffs may name, see ``RunConfig.agents``.

    Raises:
        ConfigError: two different agents have one name.
    """
    return outline_mermaid(outline_of(agent, agents))


def outline_mermaid(outline: Outline) -> str:
    """Return the text of an outline, see `graph_mermaid`."""
    ids = {node.name: f"n{place}" for place, node in enumerate(outline.nodes)}
    lines = [f"    {ids[node.name]}{_box(node, outline)}" for node in outline.nodes]
    lines += [f"    {ids[link.source]} {_arrow(link)} {ids[link.target]}" for link in outline.links]
    return "\n".join(("flowchart LR", *lines, "    classDef start stroke-width:3px", ""))


def _box(node: Node, outline: Outline) -> str:
    shape = _START if node.name == outline.start else _SHAPES[node.kind]
    return shape.format(_label(node.name))


def _arrow(link: Link) -> str:
    if link.kind == "asks":
        return f'-. "{_label(link.tool)}" .->'
    return '-- "and back" -->' if link.returns else "-->"


def _label(text: str) -> str:
    line = " ".join(escape_control(text).split())
    return _ACTIVE.sub(lambda found: f"#{ord(found[0])};", line)


HEAD = ("source", "target", "type", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffRow:
    """One way from an agent to whoever may take over from it, or answers it."""

    source: str
    targets: Sequence[str]
    """Who is asked, in order; none when nobody has the capabilities, or a function decides."""
    tool_name: str
    """What the model calls."""
    type: str
    """That of the payload that rides along. Without one: ``handoff``, ``handler`` where the agent stays and
    another handler answers for it, ``tool`` for an agent as a tool."""
    context: Sequence[str]
    """What the target is given, and under which conditions."""


def handoff_matrix(agent: Agent[Any], config: RunConfig | None = None) -> list[HandoffRow]:
    """Return every way that a run which begins with ``agent`` may go: the nearest agents first.

    What an input filter or a function would do is not known before it is done; it is named.

    Args:
        agent: where the run begins.
        config: that of the run; its ``agents``, ``handoff_input_filter`` and ``nest_handoff_history`` count.

    Raises:
        ConfigError: a handoff names an agent that there is not, or two agents have one name.
        PayloadError: a payload that is no function cannot be sent.
    """
    if config is None:
        from routelock.run.config import RunConfig  # noqa: PLC0415 - stands above

        config = RunConfig()
    rows: list[HandoffRow] = []
    seen: set[Agent[Any]] = set()
    waiting = [agent]
    while waiting:  # an agent that is called as a tool has a run of its own, with agents of its own
        graph = connected(waiting.pop(0), config.agents)
        for source in graph.values():
            if source not in seen:
                seen.add(source)
                rows += [_by_handoff(source, edge, graph, config) for edge in source.edges]
                rows += [_by_tool(source, name, call) for name, call in _agent_tool_row(source)]
                waiting += [call.agent for _, call in _agent_tool_row(source)]
    return rows


def as_markdown(rows: Iterable[HandoffRow]) -> str:
    """Return the rows as a table with the columns source, target, type and context."""
    cells = [(row.source, ", ".join(row.targets) or "?", row.type, "; ".join(row.context)) for row in rows]
    lines = [HEAD, ("---",) * len(HEAD), *cells]
    return "".join(f"| {' | '.join(_cell(each) for each in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")


def _agent_tool_row(agent: Agent[Any]) -> Iterator[tuple[str, AgentCall]]:
    for tool in agent.all_tools:
        if isinstance(tool.on_invoke_tool, AgentCall):
            yield tool.name, tool.on_invoke_tool


def _by_tool(source: Agent[Any], name: str, call: AgentCall) -> HandoffRow:
    fields = ", ".join(call.takes.schema.get("properties", {}))
    return HandoffRow(
        source=source.name,
        targets=(call.agent.name,),
        tool_name=name,
        type="tool",
        context=(f"only what the model passes: {fields}", "answers the call"),
    )


def _by_handoff(
    source: Agent[Any], edge: Handoff, graph: Mapping[str, Agent[Any]], config: RunConfig
) -> HandoffRow:
    kind, data = _payload(source, edge)
    return HandoffRow(
        source=source.name,
        targets=_target_names(source, edge, graph),
        tool_name=edge.tool_name,
        type=kind,
        context=(_history(edge, config), *data, *_given(edge), *_conditions(edge)),
    )


def _target_names(source: Agent[Any], edge: Handoff, graph: Mapping[str, Agent[Any]]) -> tuple[str, ...]:
    if edge.on_invoke_handoff is not None:
        return ()
    if edge.target is None:
        needed = edge.capabilities_required
        able = [one for one in graph.values() if one is not source and not missing_capability(one, needed)]
        return tuple(one.name for one in able)
    given = (edge.target, *edge.others)
    found = [find_agent(graph, one, source.name) if isinstance(one, str) else one for one in given]
    return tuple(one.name for one in found)


def _history(edge: Handoff, config: RunConfig) -> str:
    """Say what the target is shown of the conversation: the edge's own wish comes before the run's filter."""
    if edge.input_filter is not None:
        return f"the conversation through {name_of(edge.input_filter)}"
    if not edge.preserve_context:
        return "the newest user message"
    if config.handoff_input_filter is not None:
        return f"the conversation through {name_of(config.handoff_input_filter)}"
    nests = config.nest_handoff_history if edge.nest_handoff_history is None else edge.nest_handoff_history
    if not nests:
        return "the conversation"
    return "a summary and the newest user message" if config.nest_keep_last_user else "a summary"


def _payload(source: Agent[Any], edge: Handoff) -> tuple[str, list[str]]:
    """Return the type of the payload, and what is said about its data."""
    given = cast(Any, edge.payload)
    if given is None:
        return "handler" if edge.to_handler else "handoff", []
    if callable(given):
        return f"made by {name_of(given)}", []
    payload = sent_by(source.name, given)
    keys = ", ".join(payload.context_data)
    return payload.handoff_type, [f"payload: {keys}"] if keys else []


def _given(edge: Handoff) -> Iterator[str]:
    if passed := ", ".join((edge.input_json_schema or {}).get("properties", {})):
        yield f"the model passes: {passed}"
    if edge.share is not None:
        yield f"of the shared memory: {', '.join(edge.share) or 'nothing'}"
    if edge.transfer_system_message:
        yield "the source's instructions"


def _conditions(edge: Handoff) -> Iterator[str]:
    if edge.on_invoke_handoff is not None:
        yield f"{name_of(edge.on_invoke_handoff)} decides who"
    if edge.capabilities_required:
        yield f"must be able to: {', '.join(edge.capabilities_required)}"
    if edge.is_enabled is not True:
        yield f"if {name_of(edge.is_enabled)}" if edge.is_enabled else "never offered"
    if edge.scope not in (None, "all"):
        scopes = [edge.scope] if isinstance(edge.scope, str) else sorted(edge.scope or ())
        yield f"scope: {', '.join(scopes)}"
    if edge.return_to_caller:
        yield "answers the call"
