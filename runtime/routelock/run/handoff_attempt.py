"""One handoff of a run, from the call that asks for it to its record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from routelock._callables import is_error
from routelock._copies import own_copy, unshared
from routelock._sendable import sendable
from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.errors import ModelBehaviorError
from routelock.handlers.port import Handler
from routelock.handoff_request import HandoffRequest, HandoffResponse, HandoffStatus
from routelock.handoffs.capabilities import Slot
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.payload import HandoffPayload
from routelock.history.messages import ToolCall
from routelock.run.emit import HandoffNoted, emit_now
from routelock.run.handoff_refused import LONGEST_REASON, HandoffRefused, RefusedBy
from routelock.run.records import HandoffRecord
from routelock.tools.failures import reason_for_model, reason_of
from routelock.tools.schema import describe_error

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = ["CANCELLED", "HandoffAttempt", "Target"]

CANCELLED = "it was cancelled before it was decided"

Target = Agent[Any] | Handler


class HandoffAttempt:
    """One handoff: what asks for it, what the checks found, and how it ended.

    Routing makes it from the declared ``handoff``, the checks in `routelock.run.handoff_checks` fill it in,
    and its `record` is put on the result whether the handoff is made or not.
    """

    __slots__ = (
        "by_tool",
        "call",
        "error",
        "exception",
        "handler",
        "handoff",
        "id",
        "input",
        "input_text",
        "keeps_source",
        "passed_over",
        "payload",
        "reason",
        "refused_by",
        "request",
        "response",
        "result_text",
        "returns",
        "slot",
        "source",
        "started",
        "status",
        "target",
        "tool_request",
        "tried",
    )

    def __init__(self, call: ToolCall, handoff: Handoff, tool_request: HandoffRequest | None = None) -> None:
        self.call: ToolCall = call
        """The model's call: of a transfer tool, or of the tool that returned ``tool_request``."""
        self.handoff: Handoff = handoff
        self.tool_request: HandoffRequest | None = None if tool_request is None else _copied(tool_request)
        """The request that a tool returned; None if the model asks for the handoff itself."""
        self.by_tool: bool = tool_request is not None
        self.id: str = ""
        self.source: str = ""
        self.started: float = 0.0
        self.input: Any = None if self.tool_request is None else self.tool_request.input
        """What is passed to the target."""
        self.input_text: str = ""
        """The same as JSON text; empty if there is none, or it has no JSON form."""
        self.reason: str | None = (self.tool_request and self.tool_request.reason) or handoff.reason
        self.payload: HandoffPayload | None = None
        self.request: HandoffRequest | None = None
        """The request as it is recorded; made once the target accepts."""
        self.target: Target | None = None
        """The target once it has accepted; None as long as the handoff is not made."""
        self.handler: Handler | None = None
        self.returns: bool = False
        """Whether the source waits for the target's output, which answers its call."""
        self.keeps_source: bool = False
        """Whether the source may go on later: with that output, or when the target is too slow."""
        self.slot: Slot | None = None
        """The target's capacity slot, see ``RunConfig.capacity``."""
        self.response: HandoffResponse | None = None
        """The target's own response; None if it was not asked."""
        self.passed_over: list[tuple[str, str]] = []
        """The candidates that were refused, each with the reason."""
        self.status: HandoffStatus = HandoffStatus.PENDING
        self.tried: bool = True
        """False if the checks were not run."""
        self.result_text: str = ""
        self.error: str | None = None
        """Why the handoff is not made."""
        self.refused_by: RefusedBy | None = None
        self.exception: BaseException | None = None
        """The error of a callback, or the cancellation, that ended the attempt."""

    @property
    def target_name(self) -> str:
        """The name of the target, or of the one that the handoff declares."""
        return self.handoff.agent_name if self.target is None else self.target.name

    def raw_arguments(self) -> str:
        """Return as JSON text what the model or the tool passes along, before it is parsed."""
        if self.tool_request is None:
            return self.call["function"].get("arguments") or ""
        if (given := self.tool_request.input) is None:
            return "{}"
        from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

        return to_json(given, fallback=str).decode()

    def read_input(self) -> None:
        """Read what the model or the tool passes along.

        Raises:
            HandoffRefused: the model's arguments are not valid.
        """
        handoff = self.handoff
        if handoff.input_type is not None:
            try:
                self.input = handoff.input_type.parse(self.raw_arguments(), strict=True)
            except ModelBehaviorError as error:
                raise HandoffRefused(str(error), by=None if self.by_tool else "arguments") from error
        elif not self.by_tool:
            arguments = self.raw_arguments()
            reason = None if arguments in ("", "{}") else _reason_in(arguments)
            self.reason = reason or handoff.reason or ("No reason provided" if handoff.ask_reason else None)
        if self.input is not None:
            self.input_text = _json_text(self.input)

    def own_input(self) -> Any:
        """Return a copy of what is passed to the target, for code of the app that may edit it.

        Objects are copied only if they were made of the model's arguments: a tool may pass a connection.
        """
        return unshared(self.input) if self.handoff.input_type is None else own_copy(self.input)

    # -- stages --

    def begin(self, handoff_id: str, source: str, started: float) -> None:
        """Note the id, the active agent or handler, and the time in seconds of ``RunConfig.clock``."""
        self.id, self.source, self.started = handoff_id, source, started

    def skip(self, why: str, status: HandoffStatus = HandoffStatus.REJECTED) -> None:
        """Note that the handoff is not even tried."""
        self.tried, self.status = False, status
        self.result_text = self.error = why

    def pass_over(self, candidate: object, why: str) -> None:
        """Note that a candidate was refused, and give back what was kept for it."""
        self.release_slot()
        self.response = None
        self.passed_over.append((str(getattr(candidate, "name", candidate)), why))

    def accept(self, target: Target, handler: Handler, result_text: str) -> None:
        """Note that the target has accepted.

        Raises:
            ConfigError: the target has no name that a request can hold.
        """
        self.request = self.request_to(target.name)
        self.status = self.status.to(HandoffStatus.ACCEPTED, self.id)
        self.target, self.handler, self.result_text = target, handler, result_text
        self.returns, seconds = self.handoff.return_to_caller, self.handoff.run_timeout
        self.keeps_source = self.returns or (seconds is not None and seconds < math.inf)

    def fail(self, error: BaseException) -> None:
        """Note why the handoff is not made: a check refused it, a callback raised, or it was cancelled."""
        self.release_slot()
        if isinstance(error, HandoffRefused):
            why = told = str(error)
            status = error.status
            self.refused_by, self.exception = error.by, error.cause
        else:
            why = told = CANCELLED
            if is_error(error):
                why, told = (clip(of(error), LONGEST_REASON) for of in (reason_of, reason_for_model))
            status = HandoffStatus.FAILED
            self.exception = error
            self.response, self.passed_over = None, []  # no candidate is the reason
        others = "; ".join(f"{name}: {reason}" for name, reason in self.passed_over)
        all_reasons = clip(f"{told} ({others})", LONGEST_REASON) if others else told
        self.error = why
        self.result_text = f"The transfer to {self.handoff.agent_name!r} was not made: {all_reasons}"
        self.status = self.status.to(status, self.id)

    def release_slot(self) -> None:
        """Give back the capacity slot, if there is one. Safe to call twice."""
        if self.slot is not None:
            self.slot.release()
            self.slot = None

    # -- the request and the record --

    def request_to(self, target: str) -> HandoffRequest:
        """Return the request for the record, without the payload's data, which is gone with the run."""
        payload = None if self.payload is None else replace(self.payload, context_data={})
        return self._request(target, self.input, payload, self._metadata())

    def request_for(self, target: str) -> HandoffRequest:
        """Return a copy of the request for one target, which may change it."""
        sent = self.payload
        payload = None if sent is None else replace(sent, context_data=unshared(sent.context_data))
        return self._request(target, self.own_input(), payload, unshared(self._metadata()))

    def _metadata(self) -> dict[str, Any]:
        given = self.tool_request
        return {**self.handoff.metadata, **({} if given is None else given.metadata)}

    def _request(
        self, target: str, value: Any, payload: HandoffPayload | None, metadata: dict[str, Any]
    ) -> HandoffRequest:
        handoff, given = self.handoff, self.tool_request
        return HandoffRequest(
            to_agent=target,
            input=value,
            reason=self.reason,
            message=None if given is None else given.message,
            from_agent=self.source,
            request_id=self.id,
            preserve_context=handoff.preserve_context,
            capabilities_required=handoff.capabilities_required,
            timeout=None if handoff.timeout == math.inf else handoff.timeout,  # a record is JSON: no infinity
            payload=payload,
            context_snapshot=None if given is None else given.context_snapshot,
            priority=handoff.priority if given is None else given.priority or handoff.priority,
            metadata=metadata,
        )

    def put_on_record(self, run: Run) -> None:
        """Put the handoff on the result of its run, whether it is made or not."""
        records = run.handoffs.records
        record = self.record(
            turn=run.turn,
            parent_id=run.frame.handoff_id,
            depth=1 + sum([one.taken and one.turn < run.turn for one in records]),
            ended=None if self.target is not None else run.config.clock(),
        )
        records.append(record)
        if run.is_observed:
            emit_now(run, HandoffNoted(record))

    def record(self, *, turn: int, parent_id: str | None, depth: int, ended: float | None) -> HandoffRecord:
        """Return the public record.

        Args:
            turn: the turn of the run, from 1.
            parent_id: the id of the handoff that made the source active.
            depth: how many handoffs of the run were made, with this one.
            ended: when it was refused, in seconds of ``RunConfig.clock``; None if it is made.
        """
        return HandoffRecord(
            id=self.id,
            source=self.source,
            target=self.target_name,
            tool_name=self.call["function"]["name"] if self.by_tool else self.handoff.tool_name,
            call_id=self.call["id"],
            turn=turn,
            status=self.status,
            tried=self.tried,
            requested_by="tool" if self.by_tool else "model",
            reason=self.reason,
            input=self.input,
            error=self.error,
            request=self.request or self.request_to(self.handoff.agent_name),
            response=self._recorded_response(),
            passed_over=tuple(self.passed_over),
            parent_id=parent_id,
            depth=depth,
            started=self.started,
            ended=ended,
        )

    def _recorded_response(self) -> HandoffResponse:
        """Return the target's response with the status that the run gave the handoff."""
        own = self.response
        return HandoffResponse(
            status=self.status,
            handoff_id=(own.handoff_id if own is not None else "") or self.id,
            rejection_reason=self.error,
            metadata={} if own is None else own.metadata,
            from_agent="" if own is None else own.from_agent,
        )


def _copied(request: HandoffRequest) -> HandoffRequest:
    """Return a copy of a request, because the tool that returned it may go on to edit it."""
    return replace(
        request,
        reason=sendable(request.reason),
        input=unshared(request.input),
        metadata=unshared(dict(request.metadata)),
    )


def _reason_in(arguments: str) -> str | None:
    try:
        plain: object = json.loads(arguments.strip() or "{}")
    except ValueError as error:
        raise HandoffRefused(describe_error(error, arguments), by="arguments") from error
    except RecursionError as error:
        raise HandoffRefused("the arguments are nested too deep", by="arguments") from error
    if plain is not None and not isinstance(plain, dict):
        raise HandoffRefused("the arguments must be a JSON object, such as {}", by="arguments")
    reason = cast("dict[str, Any]", plain or {}).get("reason")
    return sendable(str(reason)) if reason else None  # JSON may have half of a character as an escape


def _json_text(value: object) -> str:
    """Return a value as JSON text; empty if it has no JSON form."""
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        return to_json(value).decode()
    except ValueError:
        return ""
