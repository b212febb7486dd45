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
        """The agent of each search that is not answered yet, by the id of its call."""

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
                    # an agent is shown the calls that others make, so it may make them, too
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
    agent, handler, external = run.frame.agent, run.frame.handler.name, run.config.external_tools
    # the setting of the agent wins over that of the run
    is_own = run.config.tool_search is None or agent.tool_search is not None
    if is_own and not (run.scopes or external):
        fixed = agent.fixed_offer(handler)
        if fixed is not None:
            return fixed
    deferral = agent.deferrals.own if is_own and not external else _deferral(run)
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
    """Return an offer with the deferred tools that the active agent has found or is forced to call.

    A vendor that searches gets the other deferred tools, too. If nothing has changed since the turn before,
    its offer is returned.

    Args:
        run: the run.
        offered: what the active agent is offered before it has searched for tools; it defers some.
    """
    frame = run.frame
    assert offered.deferral is not None
    by_vendor = offered.deferral.tool is None
    names = _names_to_offer(run, by_vendor)
    before, names_before, made = frame.with_found or (None, None, offered)
    if before is offered and names_before == names and made.fixed:
        return made
    made = await offer_found(offered, names, frame.agent, run.now())
    if by_vendor:
        made = await offer_to_vendor(made, frame.agent, run.now())
    frame.with_found = (offered, names, made)
    return made


def _names_to_offer(run: Run, by_vendor: bool) -> Sequence[str]:
    """Return the tool that the active agent is forced to call, if any, and those that it has found.

    If the vendor searches, what was found is among the tools that it is sent.
    """
    agent, config = run.frame.agent, run.config
    forced = agent.model_settings.get("tool_choice", config.model_settings.get("tool_choice"))
    names = [] if forced is None else [forced]
    if by_vendor:
        return names
    found = run.transcript.found_tools
    searches = [each.tool_search or config.tool_search or DEFAULT_SEARCH for each in run.graph.values()]
    found.read(run.transcript.items, {each.name for each in searches})
    return [*names, *found.names(agent.name)]
