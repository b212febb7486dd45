"""Which tools of an agent are deferred, and the offer with those that were found."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunContext, Tool
from routelock.agents.deferral import offer_found
from routelock.agents.offer import offer_tools
from routelock.errors import ConfigError
from routelock.run.routing import RoutedCalls
from routelock.testing import call
from routelock.tools import ToolSearch

pytestmark = pytest.mark.anyio

CONTEXT: RunContext[Any] = RunContext(context=None)


def tool(name: str, **options: Any) -> Tool:
    return Tool(name=name, on_invoke_tool=lambda context, arguments: "", **options)


def deferred(agent: Agent[Any], *given: Any, **options: Any) -> list[str]:
    made = agent.deferrals.of(*given, **options)
    return [] if made is None else [*made.routes]


def test_an_agent_without_deferred_tools_has_no_deferral() -> None:
    assert Agent("A", tools=[tool("one")]).deferrals.own is None
    assert Agent("A", tools=[tool("one")], tool_search=ToolSearch(defer_over=1)).deferrals.own is None


@pytest.mark.parametrize(
    ("search", "names"),
    [
        (None, ["always"]),
        (ToolSearch(), ["always"]),
        (ToolSearch(defer_over=3), ["always"]),
        (ToolSearch(defer_over=2), ["always", "one"]),
        (ToolSearch(defer_over=0), ["always", "one"]),
    ],
)
def test_what_a_tool_says_wins_over_the_policy(search: ToolSearch | None, names: list[str]) -> None:
    tools = [tool("always", deferred=True), tool("one"), tool("never", deferred=False)]
    assert deferred(Agent("A", tools=tools), search) == names


def test_external_tools_count_as_tools_of_the_agent() -> None:
    agent, spec = Agent("A", tools=[tool("one")]), {"type": "function", "function": {"name": "two"}}
    assert deferred(agent, ToolSearch(defer_over=1)) == []
    assert deferred(agent, ToolSearch(defer_over=1), [spec]) == ["one", "two"]


def test_a_search_knows_where_the_tools_come_from() -> None:
    agent = Agent("A", tools=[tool("one", deferred=True, origin="crm"), tool("two", deferred=True)])
    deferral = agent.deferrals.of(None, [tool("three", deferred=True, origin="the caller")])
    assert deferral is not None
    assert [each.origin for each in deferral.catalogue.tools.values()] == ["crm", None, "the caller"]


def test_an_external_tool_wins_over_a_deferred_one_of_its_name() -> None:
    agent = Agent("A", tools=[tool("one", deferred=True)])
    assert deferred(agent, None, [tool("one")]) == []


def test_runs_with_settings_of_their_own_share_one_catalogue() -> None:
    """So the index of the tools is built once."""
    agent = Agent("A", tools=[tool("one"), tool("two")])
    first, second = (agent.deferrals.of(ToolSearch(defer_over=over)) for over in (0, 1))
    assert first is not None
    assert second is not None
    assert first.catalogue is second.catalogue
    assert first.catalogue.index is second.catalogue.index


@pytest.mark.parametrize("clash", [{"tools": [tool("find")]}, {"handoffs": [Agent("B").name]}])
def test_a_clash_of_names_is_a_config_error_that_says_the_way_out(clash: dict[str, Any]) -> None:
    search = ToolSearch(name="find" if "tools" in clash else "transfer_to_b")
    tools = [*clash.pop("tools", []), tool("one", deferred=True)]
    with pytest.raises(ConfigError, match=r"Agent 'A': .* named '\w+'.*ToolSearch\(name='find_tools'\)"):
        Agent("A", tools=tools, tool_search=search, **clash)


async def test_found_tools_follow_the_others_in_the_order_of_finding() -> None:
    agent = Agent("A", tools=[tool(name, deferred=True) for name in ("one", "two", "three")], handoffs=["B"])
    offered = await offer_tools(agent, CONTEXT, {"B": Agent("B")}, deferral=agent.deferrals.own)
    more = await offer_found(offered, ["three", "stranger", "one"], agent, CONTEXT)
    names = [spec["function"]["name"] for spec in more.specs]
    assert names == ["transfer_to_b", "search_tools", "three", "one"]
    assert more.specs[:2] == offered.specs


async def test_an_offer_without_found_tools_stays_as_it_is() -> None:
    agent = Agent("A", tools=[tool("one", deferred=True)])
    offered = await offer_tools(agent, CONTEXT, deferral=agent.deferrals.own)
    assert await offer_found(offered, ["stranger"], agent, CONTEXT) is offered


async def test_a_found_tool_that_is_disabled_is_kept_apart() -> None:
    agent = Agent("A", tools=[tool("one", deferred=True, is_enabled=False)])
    offered = await offer_tools(agent, CONTEXT, deferral=agent.deferrals.own)
    more = await offer_found(offered, ["one"], agent, CONTEXT)
    assert [*more.routes] == ["search_tools"]
    assert [*more.disabled] == ["one"]


async def test_a_deferred_tool_has_a_route_without_being_offered() -> None:
    agent = Agent("A", tools=[tool("one", deferred=True), tool("secret", deferred=True, scope="owner")])
    offered = await offer_tools(agent, CONTEXT, deferral=agent.deferrals.own)
    routed = RoutedCalls([call(name, id=name) for name in ("one", "secret", "stranger")], offered)
    assert [each.tool for each in routed.tools] == [agent.tools[0]]
    assert [each.name for each in routed.unknown] == ["secret", "stranger"]
