"""Agents under their names as model ids."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, tool
from routelock.errors import ConfigError
from routelock.serving.catalog import Catalog
from routelock.serving.errors import Refusal
from routelock.testing import ScriptedHandler
from routelock.tools import ToolSearch


def agent(name: str, **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


def test_agents_are_found_by_name_and_the_first_is_the_default() -> None:
    catalog = Catalog([agent("A"), agent("B")], RunConfig())
    assert catalog.names == ["A", "B"]
    found = [catalog.find(model).agent.name for model in ("B", "", "default")]
    assert found == ["B", "A", "A"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refusal, match="Available: 'A'") as caught:
        Catalog(agent("A"), RunConfig()).find("gpt-4o")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("agents", [[], ["A"], "A", [agent("A"), agent("A")], Agent("A")])
def test_agents_that_cannot_be_served_are_errors(agents: Any) -> None:
    with pytest.raises(ConfigError):
        Catalog(agents, RunConfig())


@pytest.mark.parametrize(
    ("options", "config", "name"),
    [
        ({"tools": [tool(str.upper, name="horn", deferred=True)]}, RunConfig(), "search_tools"),
        ({"tool_search": ToolSearch(name="find", defer_over=1)}, RunConfig(), "find"),
        ({}, RunConfig(tool_search=ToolSearch(name="find", defer_over=1)), "find"),
    ],
)
def test_a_client_tool_with_the_name_of_a_tool_search_is_refused(
    options: dict[str, Any], config: RunConfig, name: str
) -> None:
    served = Catalog(agent("A", **options), config).find("A")
    theirs: Any = {"type": "function", "function": {"name": name, "parameters": {}}}
    with pytest.raises(Refusal, match="give it another name"):
        served.check_tools([theirs], allowed=True)


def test_a_client_tool_with_a_name_of_the_graph_is_refused() -> None:
    served = Catalog(agent("A", handoffs=[agent("B")]), RunConfig()).find("A")
    mine: Any = {"type": "function", "function": {"name": "mine", "parameters": {}}}
    served.check_tools([mine], allowed=True)
    with pytest.raises(Refusal, match="does not accept tools"):
        served.check_tools([mine], allowed=False)
    taken: Any = {"type": "function", "function": {"name": "transfer_to_b", "parameters": {}}}
    with pytest.raises(Refusal, match="give it another name"):
        served.check_tools([mine, taken], allowed=True)
