"""Agents under their names as model ids."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig
from routelock.errors import ConfigError
from routelock.serving.catalog import Catalog
from routelock.serving.errors import Refusal
from routelock.testing import ScriptedHandler


def agent(name: str, **options: Any) -> Agent[Any]:
    return Agent(name, model=ScriptedHandler([]), **options)


def test_agents_are_found_by_name_and_the_first_is_the_default() -> None:
    catalog = Catalog([agent("A"), agent("B")], RunConfig())
    assert catalog.names == ["A", "B"]
    found = [catalog.find(model).agent.name for model in ("B", "", "default")]
    assert found == ["B", "A", "A"]


def test_a_name_that_nobody_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refusal, match="There is: 'A'") as caught:
        Catalog(agent("A"), RunConfig()).find("gpt-4o")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("agents", [[], ["A"], "A", [agent("A"), agent("A")], Agent("A")])
def test_what_cannot_be_served_is_said(agents: Any) -> None:
    with pytest.raises(ConfigError):
        Catalog(agents, RunConfig())


def test_a_clients_tool_is_not_named_like_one_of_the_graph() -> None:
    served = Catalog(agent("A", handoffs=[agent("B")]), RunConfig()).find("A")
    mine: Any = {"type": "function", "function": {"name": "mine", "parameters": {}}}
    served.check_tools([mine], allowed=True)
    with pytest.raises(Refusal, match="takes no tools"):
        served.check_tools([mine], allowed=False)
    taken: Any = {"type": "function", "function": {"name": "transfer_to_b", "parameters": {}}}
    with pytest.raises(Refusal, match="give it another name"):
        served.check_tools([mine, taken], allowed=True)
