"""The agents of a run by name, each checked before the run begins."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig
from routelock.errors import ConfigError
from routelock.run.start import run_graph
from routelock.testing import ScriptedHandler


def agent(name: str = "A", **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


def test_agent_tools_are_checked_and_not_in_the_graph() -> None:
    asked = Agent("asked")
    with pytest.raises(ConfigError, match="asked"):
        run_graph(agent(tools=[asked.as_tool()]), RunConfig())
    graph = run_graph(agent(tools=[agent("asked").as_tool()], handoffs=[agent("B")]), RunConfig())
    assert set(graph) == {"A", "B"}


def test_external_tool_must_not_be_named_like_a_handoff() -> None:
    mine = {"type": "function", "function": {"name": "transfer_to_b", "parameters": {}}}
    with pytest.raises(ConfigError, match="give it another name"):
        run_graph(agent(handoffs=[agent("B")]), RunConfig(external_tools=[mine]))


def test_agents_of_one_name_do_not_hide_other_problems() -> None:
    start = agent(handoffs=["unknown", agent("B"), agent("C", handoffs=[agent("B")]), Agent("D")])
    with pytest.raises(ConfigError) as raised:
        run_graph(start, RunConfig(agents=[agent("C")]))
    for problem in ("are named 'B'", "are named 'C'", "hands off to 'unknown'", "'D' has no model"):
        assert problem in str(raised.value)


def test_a_handoff_to_an_unknown_name_is_reported_once() -> None:
    """The agent is in the graph of the run, and in that of its own runs as a tool."""
    asked = agent("B", handoffs=["unknown"])
    with pytest.raises(ConfigError) as raised:
        run_graph(agent(handoffs=[asked], tools=[asked.as_tool("ask", "Asks.")]), RunConfig())
    assert str(raised.value).count("'unknown'") == 1
