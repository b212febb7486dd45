"""What the active agent is offered in a turn: tools, handoffs, and deferred tools that it has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from routelock.agents.deferral import Deferral, offer_found, offer_to_vendor
from routelock.agents.offer import OfferedTools, offer_tools
from routelock.tools.search import DEFAULT_SEARCH

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = ["offered_tools"]


async def offered_tools(run: Run) -> OfferedTools:
    """Return the tools and handoffs that the model may call; an offer that cannot change is cached."""
    offered = run.frame.offered or await _offered_at_first(run)
    if offered.fixed:
        run.frame.offered = offered
    most = run.config.warn_handoffs_over
    if most is not None and offered.handoffs > most and not run.report.warned_of_many:
        run.report.warned_of_many = True
        run.warn(
            f"agent {run.frame.agent.name!r} is offered {offered.handoffs} handoffs, and models choose badly "
            f"among more than {most}: move some to an agent of their own, or set "
            "RunConfig(warn_handoffs_over=...)"
        )
    return offered if offered.deferral is None else await _with_found(run, offered)


async def _offered_at_first(run: Run) -> OfferedTools:
    """Return what the active agent is offered before it has searched for tools."""
    agent, handler, external = run.frame.agent, run.frame.handler.name, run.config.external_tools
    # the setting of the agent wins over that of the run
    is_own = run.config.tool_search is None or agent.tool_search is not None
    if is_own and not (run.scopes or external):
        fixed = agent.fixed_offers.get(handler, agent.fixed_offers[""])
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


async def _with_found(run: Run, offered: OfferedTools) -> OfferedTools:
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
