"""The agent graph as Mermaid text, which GitHub, GitLab and many documentation tools draw."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from routelock._text import inert
from routelock.agents import Agent
from routelock.outline import Link, Node, Outline, outline_of

__all__ = ["graph_mermaid", "outline_mermaid"]

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
    line = " ".join(inert(text).split())
    return _ACTIVE.sub(lambda found: f"#{ord(found[0])};", line)
