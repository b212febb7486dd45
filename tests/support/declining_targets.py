"""Teams whose targets may decline a handoff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plain_and_streamed import both
from scripted_agents import TO_B, agent

from routelock import Agent, HandoffRequest, RunResult, handoff
from routelock.handoff_request import HandoffResponse
from routelock.testing import call


def team(
    on_request: Any = None, *replies: Any, first: Any = TO_B, options: Any = None, **b: Any
) -> Agent[Any]:
    """A hands over to B, whose hook decides; what A says after a rejection are the replies."""
    target = agent("B", "Done.", on_handoff_request=on_request, **b)
    return agent("A", first, *replies, handoffs=[handoff(target, **(options or {}))])


def no(reason: str) -> Callable[[HandoffRequest], HandoffResponse]:
    return lambda request: HandoffResponse.reject(reason)


async def declined(on_request: Any, **settings: Any) -> RunResult[Any]:
    """The result of a run whose transfer is not made."""
    played = await both(lambda: team(on_request, "Then I do it."), **settings)
    assert played.result.final_output == "Then I do it."
    assert played.result.last_agent.name == "A"
    return played.result


def listed(*targets: Any, **options: Any) -> Agent[Any]:
    first = call(f"transfer_to_{getattr(targets[0], 'name', targets[0]).lower()}", id="t")
    return agent("A", first, "Mine.", handoffs=[handoff(list(targets), **options)])
