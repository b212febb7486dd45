"""What every run of an agent is offered, unless it has scopes or external tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from routelock.agents.offer import OfferedTools, fixed_offer

if TYPE_CHECKING:
    from routelock.agents.agent import Agent

__all__ = ["FixedOffers"]


class FixedOffers:
    """What every run of an agent without scopes and external tools is offered.

    All runs are given the same object, because providers recognise the tools that they have encoded.

    Args:
        agent: the agent.
    """

    __slots__ = ("_agent", "_known", "_targets")

    def __init__(self, agent: Agent[Any]) -> None:
        self._agent = agent
        self._targets = {edge.to_handler.name for edge in agent.edges if edge.to_handler is not None}
        """The names of the handlers that a handoff leads to."""
        self._known: dict[str | None, OfferedTools | None] = {}
        """The offers by the name of the active handler; None for all that no handoff leads to.

        An app may make any number of those, so that they must not have an offer each.
        """

    def of(self, handler: str) -> OfferedTools | None:
        """Return the offer beside an active handler; None if it depends on the run.

        Args:
            handler: the active handler, to which no handoff is offered.
        """
        name = handler if handler in self._targets else None
        if name not in self._known:
            return self._known.setdefault(name, fixed_offer(self._agent, handler))
        return self._known[name]
