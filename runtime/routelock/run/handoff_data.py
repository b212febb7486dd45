"""What a handoff passes to its target: the view, the payload, shared memory and instructions."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from routelock._callables import call_user_code, callback_errors, name_of
from routelock._copies import unshared
from routelock._json import recordable
from routelock.agents.agent import Agent
from routelock.context import PAYLOAD_KEY
from routelock.handlers.port import family_of
from routelock.handoffs.context import TOOL_STATE_KEY, HandoffContext
from routelock.handoffs.payload import carried, loggable
from routelock.history.filters import HandoffInputData, HandoffInputFilter, apply_filter, partition
from routelock.history.messages import Message, RunItem
from routelock.history.view import View
from routelock.run.emit import log, loggable_text
from routelock.run.frames import answer_item
from routelock.run.handoff_attempt import HandoffAttempt
from routelock.run.prompt import has_own_payload, instructions
from routelock.run.run import Run

__all__ = [
    "ViewFilter",
    "call_on_handoff_received",
    "share_payload",
    "source_prompt",
    "target_view",
]


_log = logging.getLogger("routelock.handoff")


def share_payload(run: Run, attempt: HandoffAttempt) -> None:
    """Put the payload into the shared memory that the target sees.

    A sub-run must not change the payload of the outer run, or of another sub-run at the same time: it gets a
    memory of its own, and its changes come back when it has ended.
    """
    if attempt.handoff.share is not None or (run.sub_runs.depth and attempt.payload is not None):
        run.memory.enter_scope(attempt.handoff.share)
        run.cached_context = None
    if attempt.payload is None:
        return
    payload = carried(run.memory.shared, attempt.payload) if has_own_payload(run) else attempt.payload
    run.memory.shared[PAYLOAD_KEY] = unshared(payload.to_dict())  # the record keeps what was sent
    if _log.isEnabledFor(logging.INFO):
        source, target = loggable_text(run.active_name), loggable_text(attempt.target_name)
        log(run, _log, logging.INFO, "%s passes along %s", source, loggable(payload))
        log(run, _log, logging.INFO, "%s receives %s", target, loggable(payload))
        log(run, _log, logging.DEBUG, "it is %s", loggable(payload, logging.DEBUG))


async def source_prompt(run: Run) -> str | None:
    """Return the source's instructions as a section of the target's instructions."""
    prompt = await instructions(run)
    return f"# Instructions of the previous agent, {run.frame.agent.name}\n{prompt}" if prompt else None


async def call_on_handoff_received(run: Run, target: Agent[Any], attempt: HandoffAttempt) -> None:
    """Call the target's ``on_handoff_received``, last of all, with the history that its model will see."""
    messages, _ = View(run.frame.view.items).messages(family_of(run.frame.handler), run.audience())
    carries = PAYLOAD_KEY in run.memory.shared
    payload = {PAYLOAD_KEY: recordable(run.memory.shared[PAYLOAD_KEY])} if carries else {}
    with callback_errors(f"The snapshot for on_handoff_received of agent {target.name!r}"):
        context = HandoffContext.of(
            messages,
            agent=attempt.source,
            run_id=run.run_id,
            handoff_id=attempt.id,
            created_at=datetime.fromtimestamp(attempt.started, UTC),
            tool_state=_kept_by_tools(run),
            metadata=payload,
        )
    given = (context, run.current_context())[: 2 if "on_handoff_received" in target.hooks_with_context else 1]
    what = f"on_handoff_received of agent {target.name!r}"
    await call_user_code(what, cast(Any, target.on_handoff_received), *given)


def _kept_by_tools(run: Run) -> dict[str, Any]:
    """Return the state that tools kept for the next agent, as far as it is shared with the target."""
    kept: object = run.memory.shared.get(TOOL_STATE_KEY, {})
    if not isinstance(kept, dict):
        kind = type(kept).__name__
        what = f"shared_memory[{TOOL_STATE_KEY!r}] is a {kind}, not a dict"
        name = run.frame.agent.name
        run.warn(f"turn {run.turn}: {what}, so the snapshot of agent {name!r} has no tool_state")
        return {}
    return cast("dict[str, Any]", recordable(cast(object, kept)))


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
    run: Run, attempt: HandoffAttempt, view_filter: ViewFilter | None, source_items: list[RunItem]
) -> list[RunItem]:
    """Return the items of the target's view, made from those of the source's view.

    Args:
        run: the run.
        attempt: a handoff that the target has accepted.
        view_filter: the filter; None shows the target what the source has seen.
        source_items: the items of the source's view.

    Raises:
        HandoffFilterError: the filter failed.
    """
    if attempt.returns:
        answer = answer_item(run, attempt.call, attempt.result_text, place=len(run.transcript.items) - 1)
        source_items = [*source_items, answer]
    if view_filter is None:
        return source_items
    history, before, new = partition(source_items, run.transcript.input_count, run.first_of_turn)
    data = HandoffInputData(
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        run_context=run.current_context(),
        source=run.active_name,
        target=attempt.target_name,
        arguments=attempt.own_input(),
        reason=attempt.reason,
        tool_call_id=attempt.call["id"],
    )
    items = await apply_filter(view_filter.apply, data, view_filter.name, own=view_filter.is_own)
    if attempt.reason and all(item.message["role"] in ("system", "developer") for item in items):
        reason: Message = {"role": "user", "content": attempt.reason}
        items.append(RunItem(id=len(run.transcript.items) - 1, kind="filter", message=reason))
    return items
