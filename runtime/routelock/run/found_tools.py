"""The deferred tools that the agents of a run have found, and what an agent is offered with them.

What was found is read off the transcript, and there is no other account of it. So a run that is resumed or
replayed offers the same tools, and so does the next run of a session, whatever a view leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from routelock.agents.deferral import Deferral, offer_found, offer_to_vendor
from routelock.agents.offer import OfferedTools, offer_tools
from routelock.history.messages import RunItem, calls_of, text_of
from routelock.tools.search import DEFAULT_SEARCH, found_names

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = ["FoundTools", "offered_at_first", "with_found"]


class FoundTools:
    """The tools that were found or called, in the order of finding. It reads each item once."""

    __slots__ = ("_count", "_found", "_searches", "deferrals")

    def __init__(self) -> None:
        self.deferrals: dict[str, Deferral | None] = {}
        """The deferred tools of each agent, where they depend on the settings of the run."""
        self._count = 0
        """How many items were read."""
        self._found: dict[tuple[str | None, str], None] = {}
        """The agent and the name of each tool; None stands for all agents."""
        self._searches: dict[str, str | None] = {}
        """The calls of searches by id, with the agent, until they are answered."""

    def read(self, items: Sequence[RunItem], searches: Collection[str]) -> None:
        """Read the items that are new.

        Args:
            items: the transcript.
            searches: the names of the tools that search.
        """
        for item in items[self._count :]:
            for call in calls_of(item.message):
                name = call["function"].get("name") or ""
                if name in searches:
                    self._searches[call.get("id") or ""] = item.agent
                else:
                    # an agent is shown the calls of others to tools that it has, so it is offered those, too
                    self._found[None, name] = None
            answered = item.message.get("tool_call_id")
            if answered is not None and answered in self._searches:
                agent = self._searches.pop(answered)
                self._found |= dict.fromkeys((agent, name) for name in found_names(text_of(item.message)))
        self._count = len(items)

    def names(self, agent: str) -> list[str]:
        """Return what an agent has found, and what was called, in the order of finding."""
        return [*dict.fromkeys(name for finder, name in self._found if finder in (agent, None))]


async def offered_at_first(run: Run) -> OfferedTools:
    """Return what the active agent is offered before it has searched for tools."""
    agent, handler, config = run.frame.agent, run.frame.handler.name, run.config
    external, by_agent = config.external_tools, config.tool_search is None or agent.tool_search is not None
    offered = agent.fixed_offer(handler) if by_agent and not (run.scopes or external) else None
    if offered is not None:
        return offered
    deferral = agent.deferrals.own if by_agent and not external else _deferral(run)
    return await offer_tools(
        agent, run.now(), run.graph, handler=handler, external=external, deferral=deferral
    )


def _deferral(run: Run) -> Deferral | None:
    """Return the deferred tools of the active agent by the settings and the external tools of the run."""
    agent, known = run.frame.agent, run.transcript.found_tools.deferrals
    if agent.name not in known:
        search = agent.tool_search or run.config.tool_search
        known[agent.name] = agent.deferrals.of(search, run.config.external_tools)
    return known[agent.name]


async def with_found(run: Run, offered: OfferedTools) -> OfferedTools:
    """Return an offer with the deferred tools that the active agent has found or is forced to call."""
    frame, config = run.frame, run.config
    by_vendor = offered.deferral is not None and offered.deferral.tool is None
    found = run.transcript.found_tools
    searches = [each.tool_search or config.tool_search or DEFAULT_SEARCH for each in run.graph.values()]
    found.read(run.transcript.items, {each.name for each in searches})
    forced = frame.agent.model_settings.get("tool_choice", config.model_settings.get("tool_choice"))
    names = [] if by_vendor else found.names(frame.agent.name)
    names = names if forced is None else [forced, *names]
    before, known, made = frame.with_found or (None, None, offered)
    if before is not offered or known != names or not made.fixed:
        made = await offer_found(offered, names, frame.agent, run.now())
        made = await offer_to_vendor(made, frame.agent, run.now()) if by_vendor else made
        frame.with_found = (offered, names, made)
    return made
