"""The view of a handoff's target, where it differs from what the source has seen."""

from __future__ import annotations

from dataclasses import dataclass

from routelock._callables import name_of
from routelock.history.filters import HandoffInputData, HandoffInputFilter, apply_filter, partition
from routelock.history.messages import Message, RunItem
from routelock.run.frames import answer_item
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.run import Run

__all__ = ["ViewFilter", "target_view"]


@dataclass(frozen=True, slots=True)
class ViewFilter:
    """The filter that makes the target's view."""

    name: str
    """The option that it comes from."""
    apply: HandoffInputFilter
    is_own: bool = False
    """Whether it is routelock's own, which never edits in place."""

    @property
    def label(self) -> str:
        """Its name for a trace, with that of the function for one of the app."""
        return self.name if self.is_own else f"{self.name}: {name_of(self.apply)}"


async def target_view(
    run: Run, attempt: HandoffAttempt, chosen: ViewFilter | None, seen: list[RunItem]
) -> list[RunItem]:
    """Return the target's view, made from the items that the source has seen.

    Args:
        run: the run.
        attempt: a handoff that the target has accepted.
        chosen: the filter; None shows the target what the source has seen.
        seen: the items that the source has seen.

    Raises:
        HandoffFilterError: the filter failed.
    """
    if attempt.returns:
        seen = [*seen, answer_item(run, attempt.call, attempt.answer, place=len(run.transcript.items) - 1)]
    if chosen is None:
        return seen
    history, before, new = partition(seen, run.transcript.input_count, run.first_of_turn)
    data = HandoffInputData(
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        run_context=run.now(),
        source=run.active_name,
        target=attempt.target_name,
        arguments=attempt.input,
        reason=attempt.reason,
        tool_call_id=attempt.call["id"],
    )
    items = await apply_filter(chosen.apply, data, chosen.name, own=chosen.is_own)
    if attempt.reason and all(item.message["role"] in ("system", "developer") for item in items):
        reason: Message = {"role": "user", "content": attempt.reason}
        items.append(RunItem(id=len(run.transcript.items) - 1, kind="filter", message=reason))
    return items
