"""Pictures of agent graphs."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from routelock import Agent, function_handler
from routelock.agents.svg import graph_svg

NAMESPACE = "{http://www.w3.org/2000/svg}"


def _nodes(svg: str) -> dict[str, ET.Element]:
    return {each.get("data-node", ""): each for each in ET.fromstring(svg).iter() if each.get("data-node")}


def _edges(svg: str) -> dict[tuple[str, str], ET.Element]:
    root = ET.fromstring(svg)
    found = [each for each in root.iter(f"{NAMESPACE}g") if each.get("data-source")]
    return {(each.get("data-source", ""), each.get("data-target", "")): each for each in found}


def _having(svg: str, word: str) -> list[str]:
    nodes = _nodes(svg).items()
    return [name for name, node in nodes if word in node.get("class", "").split()]


def _boxes(svg: str) -> list[tuple[float, ...]]:
    rects = [node.find(f"{NAMESPACE}rect") for node in _nodes(svg).values()]
    return [
        tuple(float(rect.get(key, "")) for key in ("x", "y", "width", "height"))
        for rect in rects
        if rect is not None
    ]


def team() -> Agent[Any]:
    back = Agent("back", handoffs=["front", "side"])
    return Agent("front", handoffs=[Agent("side", handoffs=["back", "front"]), back])


def test_the_same_graph_gives_the_same_picture() -> None:
    assert graph_svg(team()) == graph_svg(team())


def test_every_agent_and_every_way_is_drawn() -> None:
    svg = graph_svg(team())
    assert list(_nodes(svg)) == ["front", "side", "back"]
    assert len(_edges(svg)) == 6


def test_active_agent_and_used_handoffs_are_highlighted() -> None:
    svg = graph_svg(team(), active="side", used=[("front", "side")])
    assert [name for name, node in _nodes(svg).items() if "active" in node.get("class", "").split()] == [
        "side"
    ]
    lit = [way for way, edge in _edges(svg).items() if "used" in edge.get("class", "").split()]
    assert lit == [("front", "side")]


def test_where_runs_begin_is_marked_as_the_default() -> None:
    svg = graph_svg(team(), active="side")
    nodes = _nodes(svg)
    assert _having(svg, "default") == ["front"]
    assert "runs begin here" in "".join(nodes["front"].itertext())


def test_the_default_handler_is_shown() -> None:
    async def spare(request: object) -> str:
        return ""

    agent = Agent("a", model="openai/gpt-4o", handlers=[function_handler(spare, priority=90)])
    texts = [text.text for text in _nodes(graph_svg(agent))["a"].iter(f"{NAMESPACE}text")]
    assert "openai/gpt-4o +1" in texts


def test_picture_has_a_text_alternative() -> None:
    root = ET.fromstring(graph_svg(team()))
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Agent graph: front, side, back. Runs begin with front."


def test_one_agent_alone_is_a_picture_too() -> None:
    assert list(_nodes(graph_svg(Agent("alone")))) == ["alone"]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><g onload="x">', "a\x00b\ud800", "&lt;"])
def test_hostile_names_are_text(name: str) -> None:
    svg = graph_svg(Agent(name, handoffs=[Agent("b", handoff_description="<b>]]>")]))
    tags = {each.tag.removeprefix(NAMESPACE) for each in ET.fromstring(svg).iter()}
    assert tags <= {"svg", "g", "rect", "path", "text", "title"}
    assert not [each for each in ET.fromstring(svg).iter() for key in each.keys() if key.startswith("on")]


def test_a_way_back_over_several_layers_passes_below_everything() -> None:
    names = ["a", "b", "c"]
    chain = [Agent(name, handoffs=[target]) for name, target in zip(names, ["b", "c", "a"], strict=True)]
    svg = graph_svg(chain[0], agents=chain[1:])
    path = _edges(svg)["c", "a"].find(f"{NAMESPACE}path")
    assert path is not None
    lowest = max(float(each) for each in re.findall(r"L[\d.]+ ([\d.]+)", path.get("d", "")))
    assert lowest > max(y + height for _, y, _, height in _boxes(svg))
    assert lowest < float(ET.fromstring(svg).get("height", ""))


@pytest.mark.parametrize("targets", [["b", "c"], []], ids=["second", "first"])
@pytest.mark.parametrize(("source", "target"), ["bc", "cb"], ids=["down", "up"])
def test_a_way_within_a_column_is_inside_of_the_picture(source: str, target: str, targets: list[str]) -> None:
    others = {"b": Agent("b"), "c": Agent("c")}
    others[source] = Agent(source, handoffs=[target])
    svg = graph_svg(Agent("a", handoffs=targets), agents=list(others.values()))
    path = _edges(svg)[source, target].find(f"{NAMESPACE}path")
    assert path is not None
    left, _, width, _ = map(float, ET.fromstring(svg).get("viewBox", "").split())
    across = [float(x) for x, _ in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", ""))]
    assert left <= min(across)
    assert max(across) <= left + width


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20), st.text(max_size=40))
@examples(40)
def test_no_two_boxes_overlap_and_none_leaves_the_picture(ways: list[tuple[int, int]], name: str) -> None:
    names = [f"{place}{name}" for place in range(8)]
    targets = {source: sorted({b for a, b in ways if a == source and b != a}) for source in range(8)}
    agents = [Agent(names[place], handoffs=[names[each] for each in targets[place]]) for place in range(8)]
    svg = graph_svg(agents[0], agents=agents[1:])
    boxes = _boxes(svg)
    assert len(boxes) == 8
    for (x, y, width, height), (x2, y2, width2, height2) in itertools.combinations(boxes, 2):
        assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    right, bottom = (float(ET.fromstring(svg).get(key, "")) for key in ("width", "height"))
    assert all(x >= 0 and y >= 11 and x + w <= right and y + h <= bottom for x, y, w, h in boxes)
