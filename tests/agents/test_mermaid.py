"""The graph as Mermaid text, which names cannot break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routelock import Agent, handoff
from routelock.agents.graph import Node, Outline, graph_mermaid, outline_mermaid
from routelock.testing import ScriptedHandler

MODEL = ScriptedHandler([])


def test_agent_tools_and_returning_agents_are_distinguished() -> None:
    wine = Agent("wine", model=MODEL)
    cook = Agent("cook", model=MODEL)
    waiter = Agent(
        "waiter",
        model=MODEL,
        tools=[wine.as_tool(tool_name="ask_wine", tool_description="Knows wine.")],
        handoffs=[handoff(cook, return_to_caller=True), handoff("guest")],
    )
    text = graph_mermaid(waiter)
    assert '    n0(["waiter"]):::start' in text
    assert '{{"guest"}}' in text
    assert 'n0 -- "and back" --> n' in text
    assert 'n0 -. "ask_wine" .-> n' in text


@given(st.text(min_size=1))
def test_no_name_breaks_out_of_its_quotes(name: str) -> None:
    node = Node(name=name)
    lines = outline_mermaid(Outline(start=name, nodes=(node,), links=())).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith('    n0(["')
    label = lines[1].removeprefix('    n0(["').removesuffix('"]):::start')
    assert not set(label) & set('"<>[]{}`|&')
