"""The deferred tools that an agent is offered: those that it has found, or that its vendor searches."""

from __future__ import annotations

from collections.abc import Sequence

from routelock.agents.deferral import Deferral, offer_found, offer_to_vendor
from routelock.agents.offer import OfferedTools
from routelock.run.run import Run
from routelock.tools.search import DEFAULT_SEARCH

__all__ = ["deferral_of", "with_found"]


def deferral_of(run: Run) -> Deferral | None:
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
    made = await offer_found(offered, names, frame.agent, run.current_context())
    if by_vendor:
        made = await offer_to_vendor(made, frame.agent, run.current_context())
    frame.with_found = (offered, names, made)
    return made


def _names_to_offer(run: Run, by_vendor: bool) -> Sequence[str]:
    """Return the tool that the active agent is forced to call, if any, and those that it has found.

    If the vendor searches, the tools that were found are sent to it with all others.
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
