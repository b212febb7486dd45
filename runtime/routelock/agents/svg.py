"""The agent graph as SVG, with no dependency and no script; the same graph gives the same picture.

Each layer, from left to right, has the agents that are one handoff further away from the first agent of a
run. All names and descriptions are escaped, so the picture can be part of a page.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.graph import Link, Node, Outline, outline_of

__all__ = ["graph_svg", "outline_svg"]


_LETTER, _HEIGHT, _GAP, _BETWEEN, _MARGIN = 7.6, 46, 22, 74, 16

_MOST_LETTERS = 26

_INK, _LINE, _LIT, _PAPER, _GLOW, _SOFT = "#1c2430", "#7b8698", "#0b62d6", "#ffffff", "#dcebff", "#56606f"

_Edge = tuple[str, str]


def graph_svg(
    agent: Agent[Any],
    *,
    active: str | None = None,
    used: Collection[tuple[str, str]] = (),
    agents: Sequence[Agent[Any]] = (),
) -> str:
    """Return the graph of all agents that are reachable from an agent, as SVG text.

    Each agent is a ``<g data-node="name">`` and each handoff a ``<path data-source data-target>``, so that a
    page can highlight them. The active agent has the class ``active``, a used handoff the class ``used``. The
    agent that runs begin with is marked as the default.

    Args:
        agent: the agent that a run begins with.
        active: the name of the active agent.
        used: the handoffs that were made, as (source, target).
        agents: more agents that handoffs may name, see ``RunConfig.agents``.

    Raises:
        ConfigError: two different agents have one name.
    """
    return outline_svg(outline_of(agent, agents), active=active, used=used)


def outline_svg(outline: Outline, *, active: str | None = None, used: Collection[_Edge] = ()) -> str:
    """Return an outline as SVG, see `graph_svg`."""
    places = _layout(outline)
    lit = set(used)
    left, width = _sides(outline, places)
    height = max(place.y + _HEIGHT for place in places.values()) + _MARGIN
    height += _room_below(outline, places)
    names = ", ".join(_one_line(node.name) for node in outline.nodes)
    label = f"Agent graph: {names}. Runs begin with {_one_line(outline.start)}."
    both = {(link.source, link.target) for link in outline.links}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:g} 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label={quoteattr(label)} font-size="13" '
        'font-family="system-ui, sans-serif">',
        *(_line(link, places, (link.source, link.target) in lit, both) for link in outline.links),
        *(_box(node, places[node.name], outline.start, active) for node in outline.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- layout --


@dataclass(frozen=True, slots=True)
class _Place:
    layer: int
    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        return self.y + _HEIGHT / 2


def _layout(outline: Outline) -> dict[str, _Place]:
    layers = _layers(outline)
    _order(layers, outline.links)
    nodes = {node.name: node for node in outline.nodes}
    tallest = max(len(layer) for layer in layers)
    places: dict[str, _Place] = {}
    x: float = _MARGIN
    for depth, layer in enumerate(layers):
        width = max(_width(nodes[name]) for name in layer)
        y = _MARGIN + (tallest - len(layer)) * (_HEIGHT + _GAP) / 2
        for name in layer:
            places[name] = _Place(depth, x, y, width)
            y += _HEIGHT + _GAP
        x += width + _BETWEEN
    return places


def _layers(outline: Outline) -> list[list[str]]:
    """Return the names by distance from the start; unreachable ones are in the first layer."""
    depth = {outline.start: 0}
    waiting = deque([outline.start])
    while waiting:
        source = waiting.popleft()
        for link in outline.links:
            if link.source == source and link.target not in depth:
                depth[link.target] = depth[source] + 1
                waiting.append(link.target)
    layers: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in outline.nodes:
        layers[depth.get(node.name, 0)].append(node.name)
    return layers


def _order(layers: list[list[str]], links: Sequence[Link]) -> None:
    """Sort each layer by the position of its sources in the layer before; ties keep their order."""
    for before, layer in itertools.pairwise(layers):
        height = {name: place for place, name in enumerate(before)}
        sources = {
            name: [height[link.source] for link in links if link.target == name and link.source in height]
            for name in layer
        }
        means = {name: sum(found) / len(found) for name, found in sources.items()}
        layer.sort(key=means.__getitem__)


def _width(node: Node) -> float:
    letters = max(_letters(_clipped(node.name)) + 2, _letters(_second_line(node)) * 0.85, 10)
    return round(letters * _LETTER) + 26


def _letters(text: str) -> float:
    """Return the approximate width of a text in letters; emoji and letters of some scripts are wider."""
    return sum(1.7 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _room_below(outline: Outline, places: dict[str, _Place]) -> float:
    """Return the height below the boxes for lines that lead back over several layers."""
    far = [link for link in outline.links if places[link.source].layer - places[link.target].layer > 1]
    return 26 if far else 0


def _sides(outline: Outline, places: dict[str, _Place]) -> tuple[float, float]:
    """Return where the picture begins, and its width, so that no box and no line within a layer is cut."""
    left, right = 0.0, max(place.x + place.width for place in places.values()) + _MARGIN
    for link in outline.links:
        source, target = places[link.source], places[link.target]
        if source.layer == target.layer:
            bulge = _bulge(source, target)
            left = min(left, source.x + bulge)
            right = max(right, source.x + source.width + bulge)
    return left, right - left


# -- shapes --


def _box(node: Node, place: _Place, start: str, active: str | None) -> str:
    lit, default = node.name == active, node.name == start
    classes = " ".join(["node", node.kind, *(["active"] if lit else []), *(["default"] if default else [])])
    x, y, width = place.x, place.y, place.width
    dashed = ' stroke-dasharray="4 3"' if node.kind == "open" else ""
    corner = 23 if node.kind == "handler" else 8
    lines = [
        f'<g class="{classes}" data-node={quoteattr(_clean(node.name))}>',
        f"<title>{escape(_tooltip(node, default))}</title>",
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_HEIGHT}" rx="{corner}" '
        f'fill="{_GLOW if lit else _PAPER}" stroke="{_LIT if lit else _LINE}" '
        f'stroke-width="{2.5 if lit else 1.5}"{dashed}/>',
    ]
    second = _second_line(node)
    first_y = y + (20 if second else 28)
    lines.append(_text(x + width / 2, first_y, _clipped(node.name), "name", _INK, 'font-weight="600"'))
    if second:
        lines.append(_text(x + width / 2, y + 36, second, "handler", _SOFT, 'font-size="11"'))
    if default:
        lines.append(
            '<g class="badge">'
            f'<rect x="{x + 8:g}" y="{y - 11:g}" width="50" height="16" rx="8" fill="{_INK}"/>'
            + _text(x + 33, y + 0.5, "default", "badge-text", _PAPER, 'font-size="10"')
            + "</g>"
        )
    return "\n".join([*lines, "</g>"])


def _text(x: float, y: float, text: str, kind: str, colour: str, more: str) -> str:
    return (
        f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="middle" fill="{colour}" {more}>'
        f"{escape(text)}</text>"
    )


def _line(link: Link, places: dict[str, _Place], lit: bool, both: set[_Edge]) -> str:
    source, target = places[link.source], places[link.target]
    aside = 7 if (link.target, link.source) in both and link.source != link.target else 0
    dashed = ' stroke-dasharray="5 4"' if link.kind == "asks" else ""
    classes = " ".join(["edge", link.kind, *(["used"] if lit else [])])
    colour = _LIT if lit else _LINE
    path, head = _path(source, target, aside, max(place.y for place in places.values()) + _HEIGHT)
    verb = "asks" if link.kind == "asks" else "to"
    tooltip = f"{_one_line(link.source)} {verb} {_one_line(link.target)}: {link.tool}"
    tooltip += ", and goes on with the answer" if link.returns else ""
    return (
        f'<g class="{classes}" data-source={quoteattr(_clean(link.source))} '
        f"data-target={quoteattr(_clean(link.target))}><title>{escape(_clean(tooltip))}</title>"
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{2.5 if lit else 1.5}"{dashed}/>'
        f'<path class="head" d="{head}" fill="{colour}"/></g>'
    )


def _path(source: _Place, target: _Place, aside: float, bottom: float) -> tuple[str, str]:
    """Return a line and its head. A line and the line back are side by side, so each can be highlighted."""
    if target.layer > source.layer:
        x1, y1, x2, y2 = source.x + source.width, source.middle - aside, target.x, target.middle - aside
        return _curve(x1, y1, x2 - 8, y2, (x2 - x1) / 2), _head(x2, y2, 1)
    if target.layer == source.layer:
        return _within_layer(source, target)
    x1, y1, x2, y2 = source.x, source.middle + aside, target.x + target.width, target.middle + aside
    if source.layer - target.layer == 1:
        return _curve(x1, y1, x2 + 8, y2, (x2 - x1) / 2), _head(x2, y2, -1)
    low, y1, y2 = bottom + 24, source.middle + 14, target.middle + 14
    path = f"M{x1:g} {y1:g}C{x1 - 34:g} {y1:g} {x1 - 14:g} {low:g} {x1 - 48:g} {low:g}"
    path += f"L{x2 + 48:g} {low:g}C{x2 + 14:g} {low:g} {x2 + 34:g} {y2:g} {x2 + 8:g} {y2:g}"
    return path, _head(x2, y2, -1)


def _within_layer(source: _Place, target: _Place) -> tuple[str, str]:
    """Return a line within a layer, on the right if it leads down, on the left if it leads up."""
    down = 1 if target.y > source.y else -1
    x = source.x + (source.width if down > 0 else 0)
    y1, y2 = source.middle + 12 * down, target.middle - 12 * down
    bulge = _bulge(source, target)
    path = f"M{x:g} {y1:g}C{x + bulge:g} {y1:g} {x + bulge:g} {y2:g} {x + 8 * down:g} {y2:g}"
    return path, _head(x, y2, -down)


def _bulge(source: _Place, target: _Place) -> float:
    """Return how far a line within a layer may lead beside its boxes; to the left it is negative."""
    down = 1 if target.y > source.y else -1
    return (22 + abs(target.y - source.y - 24 * down) / 14) * down


def _curve(x1: float, y1: float, x2: float, y2: float, bend: float) -> str:
    return f"M{x1:g} {y1:g}C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}"


def _head(x: float, y: float, direction: int) -> str:
    return f"M{x:g} {y:g}l{-9 * direction:g} -5v10z"


# -- texts --


def _second_line(node: Node) -> str:
    """Return the text below the name: the default handler, and the number of other handlers."""
    if not node.handlers:
        return {"handler": "handler", "open": "decided later"}.get(node.kind, "")
    more = f" +{len(node.handlers) - 1}" if len(node.handlers) > 1 else ""
    return _clipped(node.handlers[0]) + more


def _tooltip(node: Node, default: bool) -> str:
    parts = [f"{_one_line(node.name)} (default: runs begin here)" if default else _one_line(node.name)]
    parts += [_clean(node.about)] if node.about else []
    parts += [f"answers: {', '.join(map(_one_line, node.handlers))}"] if node.handlers else []
    parts += [f"tools: {', '.join(map(_one_line, node.tools))}"] if node.tools else []
    return "\n".join(parts)


def _clean(text: str) -> str:
    """Return the text without characters that XML cannot have."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def _one_line(text: str) -> str:
    return " ".join(_clean(text).split())


def _clipped(text: str) -> str:
    return clip(_one_line(text), _MOST_LETTERS)
