"""Traces of runs as OpenTelemetry spans, named by its semantic conventions for generative AI.

    await Runner.run(agent, "Hi", run_config=RunConfig(trace=OpenTelemetry()))

Needs the extra ``routelock[otel]``, which is OpenTelemetry's API alone: where the spans go is set up by the
app. Without an SDK nothing is recorded.

A span is the current one only while code of the app's or of a provider's works within it, never while a
reader of a stream has the word. So no context is left behind, whoever reads, cancels or leaves a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from routelock._json import sendable
from routelock.errors import MissingExtra
from routelock.otel_words import (
    AGENT,
    CALL_ID,
    CONVERSATION,
    ERROR,
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    TOOL,
    TOOL_TYPE,
    AskedTexts,
    given,
    got,
    quoted,
    replied,
    requested,
    said,
    transfer,
)
from routelock.trace_port import TraceWriter
from routelock.trace_records import (
    ErrorTraced,
    HandoffTraced,
    ModelEnded,
    ModelRetried,
    ModelStarted,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
    TraceRecord,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Meters", "OpenTelemetry"]


_CUT_OFF = "routelock.cut_off"


class OpenTelemetry:
    """A trace that makes spans, and counts, for ``RunConfig(trace=...)``.

    A run is an ``invoke_workflow`` span, in it are an ``invoke_agent`` span for each agent while it has the
    word, and in these ``chat``, ``execute_tool`` and ``handoff`` spans. The app's span that is current when a
    run begins is above all of them; the run of an agent that is called as a tool is below that call. Tokens
    are on ``chat`` spans alone, so that adding up counts them once.

    Args:
        content: whether messages, instructions, tools with their arguments and outputs, reasons and texts of
            errors are put on spans. Secrets are replaced, as far as `routelock.redaction` knows them.
        tracer_provider: None takes the process's own.
        meter_provider: None takes the process's own.

    Raises:
        MissingExtra: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise MissingExtra(
                "OpenTelemetry spans need its API, which is not installed: pip install 'routelock[otel]'."
            ) from error
        self.content = content
        self._api = trace
        self._tracer = trace.get_tracer("routelock", tracer_provider=tracer_provider)
        self.meters = Meters(metrics.get_meter("routelock", meter_provider=meter_provider))

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> TraceWriter:
        """Begin the span of a run."""
        return _Spans(self, start, cast("_Spans | None", parent))

    def start(
        self, name: str, parent: Span | None, attributes: Mapping[str, Any], *, client: bool = False
    ) -> Span:
        """Start a span below another one, or below the app's own."""
        kinds = self._api.SpanKind
        return self._tracer.start_span(
            sendable(name),
            context=None if parent is None else self._api.set_span_in_context(parent),
            kind=kinds.CLIENT if client else kinds.INTERNAL,
            attributes=_sendable(attributes),
        )

    def fail(self, span: Span, kind: str, message: str) -> None:
        """Say on a span that it ended with an error."""
        span.set_attribute(ERROR, sendable(kind))
        told = sendable(quoted(message)) if self.content else None
        span.set_status(self._api.StatusCode.ERROR, told)

    def current(self, span: Span) -> AbstractContextManager[object]:
        """Return that within which a span is the current one."""
        return self._api.use_span(span, record_exception=False, set_status_on_exception=False)


class Meters:
    """What is counted: time and tokens of model calls, and transfers."""

    def __init__(self, meter: Meter) -> None:
        self._seconds = meter.create_histogram(
            "gen_ai.client.operation.duration", unit="s", description="Duration of model calls."
        )
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", unit="{token}", description="Tokens of model calls."
        )
        self._handoffs = meter.create_counter(
            "routelock.handoffs", unit="{handoff}", description="Transfers, by how they ended."
        )

    def model_called(self, asked: Mapping[str, Any], end: ModelEnded, seconds: float) -> None:
        """Count a model call, which may have failed."""
        named = {name: asked[name] for name in (PROVIDER, REQUEST_MODEL)}
        if end.model is not None:
            named[RESPONSE_MODEL] = end.model
        common = {OPERATION: "chat", **_sendable(named)}
        if end.usage is not None:
            used = (("input", end.usage.input_tokens), ("output", end.usage.output_tokens))
            for kind, count in used:
                self._tokens.record(count, {**common, "gen_ai.token.type": kind})
        if end.error is not None:
            common[ERROR] = end.error.type
        self._seconds.record(max(0.0, seconds), common)

    def handed_over(self, record: HandoffTraced) -> None:
        """Count a transfer that has ended."""
        edge = {"source": record.source, "target": record.target, "status": record.status.lower()}
        self._handoffs.add(1, _sendable({f"routelock.handoff.{name}": each for name, each in edge.items()}))


class _Spans:
    """The spans of one run."""

    def __init__(self, otel: OpenTelemetry, start: RunStarted, parent: _Spans | None) -> None:
        self._otel = otel
        self._agents = {agent.name: agent for agent in start.agents}
        self._common = {} if start.conversation_id is None else {CONVERSATION: start.conversation_id}
        self._tools: dict[str, Span] = {}
        self._model: Span | None = None
        self._asked: ModelStarted | None = None
        self._asked_texts = AskedTexts()
        self._retries: list[str] = []
        self._decided: set[str] = set()
        named = {"gen_ai.workflow.name": start.default_agent, "routelock.run.id": start.run}
        above = None if parent is None else parent.of_call(start.parent_call)
        self._run = self._start(above, "invoke_workflow", start.default_agent, named)
        self._speaker, self._agent = "", self._run

    def write(self, record: TraceRecord, /) -> None:
        tell = _TOLD.get(type(record))
        if tell is not None:
            tell(self, record)

    def inside(self, call_id: str | None, /) -> AbstractContextManager[object]:
        """Make the span of a tool's call, or of the model call, the current one for a while."""
        span = self._model if call_id is None else self._tools.get(call_id)
        return nullcontext() if span is None else self._otel.current(span)

    def of_call(self, call_id: str | None) -> Span:
        """Return the span of the call of a tool, or else that of the agent."""
        return self._tools.get(call_id or "", self._agent)

    def _start(
        self, parent: Span | None, operation: str, name: str, more: Mapping[str, Any], *, client: bool = False
    ) -> Span:
        attributes = {OPERATION: operation, **self._common, **more}
        return self._otel.start(f"{operation} {name}", parent, attributes, client=client)

    def _fail(self, span: Span, error: ErrorTraced) -> None:
        self._otel.fail(span, error.type, error.message)

    def model_started(self, record: ModelStarted) -> None:
        if record.agent != self._speaker:
            self._next_speaker(record.agent)
        attributes = requested(record)
        if self._otel.content and record.request is not None:
            attributes |= self._asked_texts.of(record.request)
        self._asked, self._retries = record, []
        self._model = self._start(self._agent, "chat", attributes[REQUEST_MODEL], attributes, client=True)

    def _next_speaker(self, name: str) -> None:
        if self._speaker:
            self._agent.end()
        known, attributes = self._agents.get(name), {AGENT: name}
        if known is not None and known.description:
            attributes["gen_ai.agent.description"] = known.description
        self._speaker, self._agent = name, self._start(self._run, "invoke_agent", name, attributes)

    def model_retried(self, record: ModelRetried) -> None:
        self._retries.append(record.error.type)

    def model_ended(self, record: ModelEnded) -> None:
        span, self._model = self._model, None
        if span is None or self._asked is None:
            return
        span.set_attributes(_sendable(replied(record)))
        if self._otel.content and record.reply is not None:
            span.set_attributes(_sendable(said(record.reply)))
        if self._retries:
            span.set_attribute("routelock.retries", self._retries)
        if record.error is not None:
            self._fail(span, record.error)
        elif record.item is None:
            span.set_attribute(_CUT_OFF, True)
        span.end()
        self._otel.meters.model_called(requested(self._asked), record, record.time - self._asked.time)

    def tool_started(self, record: ToolStarted) -> None:
        attributes = {TOOL: record.name, TOOL_TYPE: "function", CALL_ID: record.call_id, AGENT: record.agent}
        if self._otel.content:
            attributes |= given(record.arguments)
        self._tools[record.call_id] = self._start(self._agent, "execute_tool", record.name, attributes)

    def tool_ended(self, record: ToolEnded) -> None:
        span = self._tools.pop(record.call_id, None)
        if span is None:  # an executor has replayed the call
            return
        if self._otel.content:
            span.set_attributes(_sendable(got(record.output)))
        if record.failure is not None:
            self._fail(span, record.error or ErrorTraced(type=record.failure, message=record.output))
        span.end()

    def handed_over(self, record: HandoffTraced) -> None:
        if record.ended is not None:
            self._otel.meters.handed_over(record)
        if record.id in self._decided:
            return
        self._decided.add(record.id)
        attributes = transfer(record, content=self._otel.content)
        self._start(self._agent, "handoff", record.target, attributes).end()

    def ended(self, record: RunEnded) -> None:
        for span in (*reversed(self._tools.values()), self._model):
            if span is not None:
                span.set_attribute(_CUT_OFF, True)
                span.end()
        if self._speaker:
            self._agent.end()
        self._run.set_attribute("routelock.stop_reason", record.stop_reason)
        if record.error is not None:
            self._fail(self._run, record.error)
        self._run.end()


def _sendable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that an exporter can send: half a surrogate pair in one stops all that it sends."""
    return sendable(dict(attributes))


_TOLD: Mapping[type[Any], Callable[[_Spans, Any], None]] = {
    ModelStarted: _Spans.model_started,
    ModelRetried: _Spans.model_retried,
    ModelEnded: _Spans.model_ended,
    ToolStarted: _Spans.tool_started,
    ToolEnded: _Spans.tool_ended,
    HandoffTraced: _Spans.handed_over,
    RunEnded: _Spans.ended,
}
