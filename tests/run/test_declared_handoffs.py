"""A target that is found by its capabilities does not bypass the declared handoffs."""

from __future__ import annotations

from typing import Any

import pytest
from plain_and_streamed import both
from scripted_agents import agent

from routelock import Agent, HandoffRequest, function_tool, handoff
from routelock.testing import call

pytestmark = pytest.mark.anyio


async def test_being_capable_opens_no_way_that_is_closed() -> None:
    """An agent that may not hand over to B may not find it by capability either."""

    def make() -> Agent[Any]:
        b, c = agent("B", capabilities=["sql"]), agent("C", "C here.", capabilities=["sql"])
        first = call("transfer_to_agent_with_sql", id="t")
        edges = [handoff(b, scope="admin"), handoff(capabilities_required=["sql"]), c]
        return agent("A", first, "Mine.", handoffs=edges)

    played = await both(make)
    assert played.result.final_output == "C here."
    assert played.result.handoffs[0].passed_over[0][0] == "B"


async def test_closed_handoff_closes_its_other_targets_too() -> None:
    """Who stands second in the list of a handoff is as much behind its scope as the first."""

    def make() -> Agent[Any]:
        b = agent("B", capabilities=["sql"])
        edges = [handoff([agent("X"), b], scope="admin"), handoff(capabilities_required=["sql"])]
        return agent("A", call("transfer_to_agent_with_sql", id="t"), "Mine.", handoffs=edges)

    assert (await both(make)).result.final_output == "Mine."


async def test_scope_of_a_search_holds_for_tools_too() -> None:
    def make() -> Agent[Any]:
        b = agent("B", capabilities=["sql"])
        search = handoff(capabilities_required=["sql"], scope="admin")

        @function_tool
        def hand_over() -> HandoffRequest:
            """Hand over."""
            return HandoffRequest("agent with sql")

        return agent(
            "A", call("hand_over"), "Mine.", tools=[hand_over], handoffs=[search, handoff(b, scope="admin")]
        )

    assert (await both(make)).result.final_output == "Mine."
