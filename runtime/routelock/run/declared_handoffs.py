"""What the declared handoffs to a target say about one that was found by its capabilities."""

from __future__ import annotations

from routelock.handoffs.handoff import Handoff
from routelock.run.handoff_attempt import Target
from routelock.run.handoff_refused import HandoffRefused
from routelock.run.run import Run
from routelock.scopes import permits

__all__ = ["NOT_PERMITTED", "check_declared"]


NOT_PERMITTED = "the scopes of this run do not permit it; answer the user yourself"


def check_declared(run: Run, edge: Handoff, target: Target) -> None:
    """Check that a target found by capability does not bypass the handoffs that are declared to it.

    Raises:
        HandoffRefused: none of them is open to the run, or each of them needs an approval.
    """
    declared = [each for each in run.frame.agent.edges if _leads_to(each, target)]
    if declared and not any(permits(each.scope or "all", run.scopes) for each in declared):
        raise HandoffRefused(NOT_PERMITTED)
    if declared and edge.needs_approval is False and all(e.needs_approval is not False for e in declared):
        gate = declared[0].tool_name
        raise HandoffRefused(f"it needs an approval: call {gate}, which can wait for one")


def _leads_to(edge: Handoff, target: Target) -> bool:
    return any(end is target or end == target.name for end in (edge.target, *edge.others))
