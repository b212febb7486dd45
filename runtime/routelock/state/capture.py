"""Makes the `RunState` of a run, with all that another process needs to continue it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, cast

from routelock._json import recordable
from routelock.context import MemoryScope
from routelock.errors import ConfigError
from routelock.handlers.port import family_of
from routelock.handoff_request import HandoffStatus
from routelock.handoffs.payload import HandoffPayload
from routelock.history.compaction import ViewSize
from routelock.history.messages import RunItem
from routelock.run.compact import accepted_sizes, counted_size
from routelock.run.frames import Frame
from routelock.run.progress import Progress
from routelock.run.records import HandoffRecord
from routelock.run.run import Run
from routelock.state.document import (
    FORMAT_VERSION,
    RunDocument,
    ShownItem,
    StoredDecision,
    StoredFrame,
    StoredProgress,
    StoredSize,
    copy_document,
)
from routelock.state.memory import stored_scope, without_payload
from routelock.state.run_state import RunState
from routelock.tools.approvals import Approvals

__all__ = ["capture"]


_NOT_TAKEN_OVER = "the run was interrupted before the target took over"


def capture(run: Run) -> RunState:
    """Return the state of a run.

    Raises:
        ConfigError: the shared memory or a payload is not JSON, or the run is a sub-run.
    """
    if run.sub_runs.depth:
        raise ConfigError(
            "This run answers a call of another run, and is resumed only with that run: take the state of "
            "the outer result."
        )
    try:
        document = copy_document(_without_spent_decisions(_with_shared(run, _document(run))))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"This run has no state that another process could read: {error}. The shared memory and "
            "payloads must be JSON; keep other objects in the context."
        ) from error
    return RunState(document, {**run.graph})


def _document(run: Run) -> RunDocument:
    """Return the document of a run, without the data that it shares with its sub-runs.

    The document holds the objects of the run, not copies.
    """
    transcript, budget, report, progress = run.transcript, run.budget, run.report, run.progress
    numbers = _Numbers(transcript.items)
    waiting = {call_id: _sub_document(inner) for call_id, inner in run.sub_runs.waiting.items()}
    return RunDocument(
        format_version=FORMAT_VERSION,
        run_id=run.run_id,
        stop_reason=run.ending.stop_reason,
        error=run.ending.failure,
        first_agent=run.first_agent.name,
        announced_agent=None if run.announced_agent is None else run.announced_agent.name,
        started=run.agent_started,
        frames=[*(_stored_frame(run, frame, numbers) for frame in run.callers), _active_frame(run, numbers)],
        turn=run.turn,
        first_of_turn=run.first_of_turn,
        sub_run_turns=budget.sub_run_turns,
        warned_of_many=report.warned_of_many,
        input_count=transcript.input_count,
        items=[replace(item, covers=(), whole=()) for item in transcript.items],
        shown_items=numbers.shown,
        summary=None if transcript.summary is None else numbers.of([transcript.summary])[0],
        compactions=[*report.compactions],
        accepted=_accepted_sizes(run),
        pending=[*run.open_calls.pending],
        begun=sorted(run.open_calls.begun - _answered(transcript.items)),
        usage=budget.usage,
        usage_by_agent=budget.usage_by_agent,
        usage_by_handoff=run.handoffs.spent,
        handoffs=[_stored_record(record) for record in _reopened(run)],
        errors=[replace(problem, error=None) for problem in report.errors],
        guardrails=[replace(one, output_info=recordable(one.output_info)) for one in report.guardrails],
        repairs=[*report.repairs],
        warnings=[*report.warnings],
        failed=sorted(run.failed_handlers),
        progress=_stored_progress(progress),
        memory_scopes=[stored_scope(scope) for scope in _scopes_and_payload(run)[0]],
        tool_calls=budget.tool_calls,
        claims=run.open_calls.claims,
        sub_runs={**run.sub_runs.to_resume, **waiting},
    )


def _with_shared(run: Run, document: RunDocument) -> RunDocument:
    """Add the data that a run shares with its sub-runs."""
    scopes, _ = _scopes_and_payload(run)
    memory = scopes[0].outer if scopes else run.memory.shared
    return replace(
        document,
        shared_memory=without_payload(memory),
        # when the run is resumed, the app passes these entries again
        deleted_keys=[key for key in run.config.shared_memory if key not in memory],
        interruptions=[replace(one, run_id="") for one in run.open_calls.interruptions],
        decisions=_decisions(run.open_calls.decisions),
    )


def _sub_document(inner: Run) -> RunDocument:
    """Return the document of a sub-run. A payload of the outer run is in the outer document."""
    used, calls = inner.budget.all_consumed()
    document = replace(_document(inner), usage=used, tool_calls=calls)
    if document.memory_scopes:
        return document
    active = replace(document.active, payload=None)
    return replace(document, frames=[*document.waiting, active])


def _scopes_and_payload(run: Run) -> tuple[Sequence[MemoryScope], Any]:
    return run.memory.at_end or (run.memory.scopes, run.memory.payload)


def _active_frame(run: Run, numbers: _Numbers) -> StoredFrame:
    frame, done = run.frame, run.ending.stop_reason == "done"
    scopes, payload = _scopes_and_payload(run)
    return replace(
        _stored_frame(run, frame, numbers),
        scopes=len(scopes),
        payload=None if done else payload,
        payload_note=None if done else frame.payload_note,
        rendered=frame.view.rendered_for(family_of(frame.handler), run.audience()),
    )


def _stored_frame(run: Run, frame: Frame, numbers: _Numbers) -> StoredFrame:
    stored = StoredFrame(
        agent=frame.agent.name,
        handler=frame.handler.name,
        default_handler=frame.default_handler,
        handler_override=frame.handler_override,
        turns=frame.turns,
        handoff_id=frame.handoff_id,
        source_prompt=frame.source_prompt,
        payload_note=frame.payload_note,
        view=numbers.of(frame.view.items),
        size=_stored_size(counted_size(run, frame.view)),
    )
    if (wait := frame.wait) is None:
        return stored
    return replace(
        stored,
        call=wait.call,
        seconds=wait.seconds,
        payload=wait.payload,
        scopes=wait.memory_level,
        is_standby=wait.is_standby,
    )


def _accepted_sizes(run: Run) -> dict[str, int]:
    """Return the sizes that a compaction needs if a provider refuses a request; none without a setting."""
    if run.config.compact is None and all(agent.compact is None for agent in run.graph.values()):
        return {}
    return {name: tokens for name, tokens in accepted_sizes(run).items() if tokens > 0}


def _stored_size(size: ViewSize | None) -> StoredSize | None:
    if size is None:
        return None
    return StoredSize(**{each.name: getattr(size, each.name) for each in fields(StoredSize)})


class _Numbers:
    """Numbers of the items that views show: from 0 up in the transcript, from -1 down for all others."""

    def __init__(self, items: Sequence[RunItem]) -> None:
        self._items = items
        self._known: dict[int, int] = {}
        self.shown: list[ShownItem] = []

    def of(self, view: Iterable[RunItem]) -> list[int]:
        return [self._number(item) for item in view]

    def _number(self, item: RunItem) -> int:
        if 0 <= item.id < len(self._items) and item == self._items[item.id]:
            return item.id
        if id(item) not in self._known:
            covers = self.of(item.covers)
            self.shown.append(ShownItem(item=replace(item, covers=()), covers=covers))
            self._known[id(item)] = -len(self.shown)
        return self._known[id(item)]


def _answered(items: Iterable[RunItem]) -> set[str]:
    """Return the ids of the calls that have an answer."""
    ids = (item.message.get("tool_call_id") for item in items)
    return {call_id for call_id in ids if call_id is not None}


def _reopened(run: Run) -> Iterable[HandoffRecord]:
    """Return the handoff records as they were before the end of the run.

    The end has closed the records of agents that were at work; these are open again. A handoff that the turn
    did not reach has no record, because the resumed run makes it.
    """
    still_open = {frame.handoff_id for frame in (*run.callers, run.frame)}
    settled = run.open_calls.begun | _answered(run.transcript.items)
    for one in run.handoffs.records:
        if one.call_id not in settled:
            continue
        if one.id in still_open:
            yield replace(one, status=HandoffStatus.ACCEPTED, error=None, ended=None, usage=None)
        elif one.status is HandoffStatus.ACCEPTED and one.id not in run.handoffs.spent:
            yield replace(one, status=HandoffStatus.FAILED, error=_NOT_TAKEN_OVER)
        else:
            yield one


def _stored_record(record: HandoffRecord) -> HandoffRecord:
    """Return a record whose input and metadata are JSON data; values without a JSON form become text."""
    request, response = record.request, record.response
    if request is not None:
        payload = cast("HandoffPayload | None", request.payload)
        request = replace(
            request,
            to_agent=record.target,
            input=None,
            payload=None if payload is None else payload.to_dict(),
            context_snapshot=None,
            metadata=recordable(dict(request.metadata)),
        )
    if response is not None:
        response = replace(response, metadata=recordable(dict(response.metadata)))
    return replace(record, input=recordable(record.input), request=request, response=response)


def _stored_progress(seen: Progress) -> StoredProgress:
    return StoredProgress(
        answers=seen.answers,
        times=seen.times,
        edges=sorted(seen.transfers),
        refused=seen.refused,
        idle=seen.idle,
        names=[*seen.names],
        told=seen.nudged_at,
        mistakes=seen.mistakes,
        empty_replies=seen.empty_replies,
        over_limit=seen.over_limit,
    )


def _decisions(approvals: Approvals) -> list[StoredDecision]:
    made = [*approvals.by_call.items(), *approvals.by_tool.items()]
    return [StoredDecision(on=on, decision=decision) for on, decision in made]


def _without_spent_decisions(document: RunDocument) -> RunDocument:
    """Leave out decisions on calls that were answered or begun, because a decision counts once."""
    spent = [one.decision.fingerprint and _is_settled(document, one.on) for one in document.decisions]
    left = [one for one, is_spent in zip(document.decisions, spent, strict=True) if not is_spent]
    return replace(document, decisions=left)


def _is_settled(document: RunDocument, path: Sequence[str]) -> bool:
    """Whether the call at the end of a path of calls was answered or begun."""
    call_id, *rest = path
    if call_id in document.begun or call_id in _answered(document.items):
        return True
    inner = document.sub_runs.get(call_id)
    return bool(rest) and inner is not None and _is_settled(inner, rest)
