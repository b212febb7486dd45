"""Making a `RunState` of a run: what `routelock.resuming` makes a run of again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from routelock.approval_documents import decision_documents, interruption_document
from routelock.context import PAYLOAD_KEY, Narrowed
from routelock.errors import ConfigError
from routelock.handlers.port import family_of
from routelock.handoff_documents import record_document
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import RunItem
from routelock.run.frames import Caller
from routelock.run.result import HandoffRecord, Problem
from routelock.run.run import Run
from routelock.run_document import (
    CallerDocument,
    ItemDocument,
    NarrowedDocument,
    Position,
    ProblemDocument,
    ProgressDocument,
    RunDocument,
    usage_document,
)
from routelock.run_state import RunState
from routelock.run_state_text import checked_json

__all__ = ["captured"]

FORMAT_VERSION = 1
_NOT_TAKEN_OVER = "the run was interrupted before the target took over"


def captured(run: Run) -> RunState:
    """Return where a run stands.

    Raises:
        ConfigError: something that it shares is no JSON, or it is a run within another one.
    """
    if run.depth:
        raise ConfigError(
            "This run answers a call of another run, and goes on with that one only: take the state of the "
            "outer result."
        )
    document = _document(run)
    if "decisions" in document:
        document = _without_spent(document)
    return RunState(checked_json(document), {**run.graph})


def _document(run: Run) -> RunDocument:
    narrowings, payload = run.parted or (run.narrowings, run.shared_memory.get(PAYLOAD_KEY))
    outermost = narrowings[0].outer if narrowings else run.shared_memory
    document: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "run_id": run.run_id,
        "stop_reason": run.stop_reason,
        "error": run.failure,
        "first": run.first.name,
        "speaker": None if run.speaker is None else run.speaker.name,
        "started": run.started,
        "position": _position(run),
        "callers": [_caller(caller, run.items) for caller in run.callers],
        "turn": run.turn,
        "first_of_turn": run.first_of_turn,
        "turns_within": run.turns_within,
        "mistakes": run.mistakes,
        "empty_replies": run.empty_replies,
        "over_limit": run.over_limit,
        "warned_of_many": run.warned_of_many,
        "input_count": run.input_count,
        "items": [_item(item) for item in run.items],
        "pending": [cast("dict[str, Any]", call) for call in run.pending],
        "begun": sorted(run.begun - {item.message.get("tool_call_id") for item in run.items}),
        "usage": usage_document(run.usage),
        "usage_by_agent": {name: usage_document(usage) for name, usage in run.usage_by_agent.items()},
        "spent": {name: usage_document(usage) for name, usage in run.spent.items()},
        "handoffs": [record_document(record) for record in _reopened(run)],
        "errors": [_problem(each) for each in run.errors],
        "repairs": [*run.repairs],
        "warnings": [*run.warnings],
        "failed": sorted([*pair] for pair in run.failed),
        "progress": _progress(run),
        "shared_memory": _without_payload(outermost),
        "narrowings": [_narrowed(each) for each in narrowings],
        "payload": None if run.stop_reason == "done" else payload,
        "tool_calls": run.tool_calls,
        **_rarely(run, outermost),
    }
    return cast(RunDocument, document)


def _rarely(run: Run, memory: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is there only if the run waited for somebody, was resumed, or deleted what it was given."""
    within = {**run.to_resume, **{call_id: _within(inner) for call_id, inner in run.kept.items()}}
    said = [] if run.depth else decision_documents(run.approvals)
    interruptions = [] if run.depth else [interruption_document(one) for one in run.interruptions]
    found: dict[str, Any] = {"within": within, "decisions": said, "interruptions": interruptions}
    found["claims"] = run.claims
    # the app gives the same again when the run is resumed
    found["deleted"] = [] if run.depth else [key for key in run.config.shared_memory if key not in memory]
    return {name: value for name, value in found.items() if value}


def _within(inner: Run) -> RunDocument:
    """Return where a run within another one stands; whatever they share is in the outer one."""
    document = _document(inner)
    own = bool(document["narrowings"])
    return {**document, "shared_memory": {}, "payload": document["payload"] if own else None}


def _without_spent(document: RunDocument) -> RunDocument:
    """Leave out decisions on calls that were answered or begun: each counts once."""
    said = document.get("decisions", [])
    left = [each for each in said if not (each["fingerprint"] and _is_settled(document, each["on"]))]
    rest = cast(RunDocument, {key: value for key, value in document.items() if key != "decisions"})
    return {**rest, "decisions": left} if left else rest


def _is_settled(document: RunDocument, place: Sequence[str]) -> bool:
    """Whether the call of a path and an id was answered or begun."""
    call_id, *rest = place
    answered = {item["message"].get("tool_call_id") for item in document["items"]}
    if call_id in document["begun"] or call_id in answered:
        return True
    inner = document.get("within", {}).get(call_id)
    return bool(rest) and inner is not None and _is_settled(inner, rest)


def _problem(problem: Problem) -> ProblemDocument:
    return {
        "kind": problem.kind,
        "agent": problem.agent,
        "turn": problem.turn,
        "message": problem.message,
        "call_id": problem.call_id,
    }


def _position(run: Run) -> Position:
    return {
        "agent": run.agent.name,
        "handler": run.handler.name,
        "default_handler": run.default_handler,
        "stands_in": run.stands_in,
        "agent_turns": run.agent_turns,
        "open_handoff": run.open_handoff,
        "source_prompt": run.source_prompt,
        "payload_note": None if run.stop_reason == "done" else run.payload_note,
        "view": _shown(run.view.items, run.items),
        "rendered": run.view.rendered_for(family_of(run.handler), run.reader()),
    }


def _caller(caller: Caller, items: Sequence[RunItem]) -> CallerDocument:
    made: CallerDocument = {
        "agent": caller.agent.name,
        "handler": caller.handler.name,
        "default_handler": caller.default_handler,
        "stands_in": caller.stands_in,
        "agent_turns": caller.agent_turns,
        "open_handoff": caller.open_handoff,
        "source_prompt": caller.source_prompt,
        "payload_note": caller.payload_note,
        "call": cast("dict[str, Any]", caller.call),
        "seconds": caller.seconds,
        "payload": caller.payload,
        "narrowings": caller.narrowings,
        "view": _shown(caller.view.items, items),
        "rendered": 0,
    }
    if caller.stands_by:
        made["stands_by"] = True
    return made


def _shown(view: Iterable[RunItem], items: Sequence[RunItem]) -> list[int | ItemDocument]:
    """Return the items of a view; those of the transcript by their place."""
    return [
        item.id if 0 <= item.id < len(items) and item == items[item.id] else _item(item, items)
        for item in view
    ]


def _item(item: RunItem, items: Sequence[RunItem] = ()) -> ItemDocument:
    made: ItemDocument = {"id": item.id, "kind": item.kind, "message": cast("dict[str, Any]", item.message)}
    if item.agent is not None:
        made["agent"] = item.agent
    if item.origin is not None:
        made["origin"] = item.origin
    if item.asked_by is not None:
        made["asked_by"] = item.asked_by
    if item.covers:
        made["covers"] = _shown(item.covers, items)
    if item.whole:
        made["whole"] = [cast("dict[str, Any]", message) for message in item.whole]
    return made


def _without_payload(memory: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in memory.items() if key != PAYLOAD_KEY}


def _narrowed(one: Narrowed) -> NarrowedDocument:
    inner, given = _without_payload(one.inner), _without_payload(one.given)
    same = [key for key, value in inner.items() if key in one.outer and one.outer[key] is value]
    return {
        "keys": None if one.keys is None else [*one.keys],
        "same": same,
        "own": {key: value for key, value in inner.items() if key not in same},
        "given": [*given],
        "unchanged": [key for key, value in given.items() if key in inner and inner[key] is value],
    }


def _reopened(run: Run) -> Iterable[HandoffRecord]:
    """Return the records as they were before the run's end closed those of who was in charge.

    A transfer to which the turn did not come is still to be made, so it has none.
    """
    still_open = {run.open_handoff, *(caller.open_handoff for caller in run.callers)}
    settled = run.begun | {item.message.get("tool_call_id") for item in run.items}
    for one in run.handoffs:
        if one.call_id not in settled:
            continue
        if one.id in still_open:
            yield replace(one, status=HandoffStatus.ACCEPTED, error=None, ended=None, usage=None)
        elif one.status is HandoffStatus.ACCEPTED and one.id not in run.spent:
            yield replace(one, status=HandoffStatus.FAILED, error=_NOT_TAKEN_OVER)
        else:
            yield one


def _progress(run: Run) -> ProgressDocument:
    seen = run.progress
    seen.read_all()
    return {
        "answers": {**seen.answers},
        "times": {**seen.times},
        "edges": sorted([*edge] for edge in seen.edges),
        "refused": seen.refused,
        "idle": seen.idle,
        "names": [*seen.names],
        "told": seen.told,
    }
