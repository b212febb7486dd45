"""The records of handoffs as JSON, and back: what a `RunState` keeps of each transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from routelock.agents.agent import Agent
from routelock.errors import ModelBehaviorError
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus, recordable
from routelock.handoffs.payload import HandoffPayload
from routelock.history.messages import RunItem, calls_of
from routelock.run.result import HandoffRecord
from routelock.run_document import (
    RecordDocument,
    RequestDocument,
    ResponseDocument,
    usage_document,
    usage_of,
)

__all__ = ["record_document", "record_of"]


def record_document(record: HandoffRecord) -> RecordDocument:
    """Return a record as JSON data; what was passed along stays as far as JSON can say it."""
    return {
        "id": record.id,
        "source": record.source,
        "target": record.target,
        "tool_name": record.tool_name,
        "call_id": record.call_id,
        "turn": record.turn,
        "status": record.status.value,
        "tried": record.tried,
        "requested_by": record.requested_by,
        "reason": record.reason,
        "input": recordable(record.input),
        "error": record.error,
        "passed_over": [[*pair] for pair in record.passed_over],
        "parent_id": record.parent_id,
        "depth": record.depth,
        "started": record.started,
        "ended": record.ended,
        "usage": None if record.usage is None else usage_document(record.usage),
        "request": _asked(record),
        "response": None if record.response is None else _answered(record.response),
    }


def _answered(response: HandoffResponse) -> ResponseDocument:
    return {
        "status": response.status.value,
        "handoff_id": response.handoff_id,
        "rejection_reason": response.rejection_reason,
        "metadata": recordable(dict(response.metadata)),
        "from_agent": response.from_agent,
    }


def _asked(record: HandoffRecord) -> RequestDocument | None:
    request = record.request
    if request is None:
        return None
    payload = cast("HandoffPayload | None", request.payload)
    return {
        "message": request.message,
        "preserve_context": request.preserve_context,
        "capabilities_required": [*request.capabilities_required],
        "timeout": request.timeout,
        "priority": request.priority,
        "payload": None if payload is None else payload.to_dict(),
        "metadata": recordable(dict(request.metadata)),
    }


def record_of(
    document: RecordDocument, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]
) -> HandoffRecord:
    """Return the record that `record_document` wrote.

    Args:
        document: the data.
        items: the transcript, which has what the model wrote.
        graph: the agents of the run, whose handoffs say of which type that is.
    """
    given, usage = _input(document, items, graph), document["usage"]
    wanted, said = document["request"], document["response"]
    return HandoffRecord(
        id=document["id"],
        source=document["source"],
        target=document["target"],
        tool_name=document["tool_name"],
        call_id=document["call_id"],
        turn=document["turn"],
        status=HandoffStatus(document["status"]),
        tried=document["tried"],
        requested_by=document["requested_by"],
        reason=document["reason"],
        input=given,
        error=document["error"],
        request=None if wanted is None else _request(document, wanted, given),
        response=None if said is None else _response(said),
        passed_over=tuple((name, why) for name, why in document["passed_over"]),
        parent_id=document["parent_id"],
        depth=document["depth"],
        started=document["started"],
        ended=document["ended"],
        usage=None if usage is None else usage_of(usage),
    )


def _response(said: ResponseDocument) -> HandoffResponse:
    return HandoffResponse(
        status=HandoffStatus(said["status"]),
        handoff_id=said["handoff_id"],
        rejection_reason=said["rejection_reason"],
        metadata=said["metadata"],
        from_agent=said["from_agent"],
    )


def _request(document: RecordDocument, wanted: RequestDocument, given: Any) -> HandoffRequest:
    payload = wanted["payload"]
    return HandoffRequest(
        document["target"],
        input=given,
        reason=document["reason"],
        message=wanted["message"],
        from_agent=document["source"],
        request_id=document["id"],
        preserve_context=wanted["preserve_context"],
        capabilities_required=tuple(wanted["capabilities_required"]),
        timeout=wanted["timeout"],
        payload=None if payload is None else HandoffPayload.parse(payload),
        priority=wanted["priority"],
        metadata=wanted["metadata"],
    )


def _input(document: RecordDocument, items: Sequence[RunItem], graph: Mapping[str, Agent[Any]]) -> Any:
    """Return what was passed along, made anew of what the model wrote if the handoff has a type."""
    plain: Any = document["input"]
    if plain is None or document["requested_by"] != "model":
        return plain
    kinds = [
        edge.input_type
        for agent in graph.values()
        for edge in agent.edges
        if edge.tool_name == document["tool_name"] and edge.input_type is not None
    ]
    wrote = [
        call["function"]["arguments"]
        for item in items
        for call in calls_of(item.message)
        if call["id"] == document["call_id"]
    ]
    for kind in kinds[:1]:
        for text in wrote[:1]:
            with suppress(ModelBehaviorError):  # another version of the type: then it stays plain data
                return kind.parse(text, strict=True)
    return plain
