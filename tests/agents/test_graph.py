"""Who is in a graph, and who leads to whom."""

from __future__ import annotations

from routelock import Agent, function_handler, handoff
from routelock.agents.graph import Link, Node, outline_of
from routelock_providers import LiteLLM


async def answer(request: object) -> str:
    return "Yes."


def _ways(agent: Agent) -> list[tuple[str, str, str]]:
    return [(link.source, link.target, link.kind) for link in outline_of(agent).links]


def test_the_start_comes_first_and_then_the_nearest() -> None:
    leaf = Agent("leaf")
    outline = outline_of(Agent("root", handoffs=[Agent("left", handoffs=[leaf]), Agent("right")]))
    assert outline.start == "root"
    assert [node.name for node in outline.nodes] == ["root", "left", "right", "leaf"]


def test_a_name_leads_to_the_agent_of_that_name() -> None:
    outline = outline_of(Agent("a", handoffs=[Agent("b", handoffs=["a"])]))
    assert [(link.source, link.target) for link in outline.links] == [("a", "b"), ("b", "a")]
    assert {node.kind for node in outline.nodes} == {"agent"}


def test_agents_of_the_run_are_known_by_name() -> None:
    outline = outline_of(Agent("a", handoffs=["b"]), [Agent("b", handoff_description="Knows.")])
    assert outline.nodes[1] == Node(name="b", about="Knows.")


def test_a_name_that_nobody_has_is_open() -> None:
    assert outline_of(Agent("a", handoffs=["unknown"])).nodes[1] == Node(name="unknown", kind="open")


def test_target_by_capability_is_an_open_node() -> None:
    outline = outline_of(Agent("a", handoffs=[handoff(capabilities_required=["law"])]))
    assert (outline.nodes[1].name, outline.nodes[1].kind) == ("agent with law", "open")


def test_all_targets_of_a_handoff_are_in_its_row() -> None:
    declared = handoff([Agent("first"), Agent("second")])
    assert _ways(Agent("a", handoffs=[declared])) == [("a", "first", "handoff"), ("a", "second", "handoff")]


def test_graph_has_agent_tools_and_their_agents() -> None:
    asked = Agent("expert", handoffs=[Agent("library")])
    assert _ways(Agent("a", tools=[asked.as_tool()])) == [
        ("a", "expert", "asks"),
        ("expert", "library", "handoff"),
    ]


def test_tools_of_a_vendor_are_among_the_tools() -> None:
    outline = outline_of(Agent("a", tools=[{"type": "web_search"}]))
    assert outline.nodes[0].tools == ("web_search",)


def test_a_handler_may_be_the_target() -> None:
    target = function_handler(answer, name="sms", prompt="Sends texts.")
    outline = outline_of(Agent("a", handoffs=[target]))
    assert outline.nodes[1] == Node(name="sms", kind="handler", about="Sends texts.")


def test_the_default_handler_is_the_first() -> None:
    agent = Agent("a", model="openai/gpt-4o", handlers=[function_handler(answer, priority=90)])
    assert outline_of(agent).nodes[0].handlers == ("openai/gpt-4o", "answer")


def test_link_has_its_tool_and_whether_it_returns() -> None:
    agent = Agent("a", handoffs=[handoff(Agent("Law Office"), return_to_caller=True)])
    assert outline_of(agent).links == (
        Link(source="a", target="Law Office", tool="transfer_to_law_office", returns=True),
    )


def test_models_are_shown_as_they_were_written() -> None:
    outline = outline_of(Agent("a", model="openai/small", handlers=[LiteLLM("openai/large")]))
    assert outline.nodes[0].handlers == ("openai/small", "openai/large")
