"""Traces of runs as OpenTelemetry spans, named by its semantic conventions for generative AI.

    await Runner.run(agent, "Hi", run_config=RunConfig(trace=OpenTelemetry()))

It needs the extra ``routelock[otel]``, which is OpenTelemetry's API alone: the app sets up the SDK and the
exporter. Without an SDK nothing is recorded.

A span is the current one only while code of the app or of a provider runs inside it, and never while the
reader of a stream runs. So no context variable stays set after a stream was read, cancelled or left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal, cast

from routelock._lazy import needs_extra
from routelock._redaction import redact, redact_text
from routelock._sendable import sendable
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone
from routelock.history.messages import calls_of
from routelock.tracing.otel_attributes import (
    AGENT,
    ARGUMENTS,
    CALL_ID,
    CONVERSATION,
    ERROR,
    OPERATION,
    REQUEST_MODEL,
    TOOL,
    TOOL_TYPE,
    WORKFLOW,
    Conventions,
    check_conventions,
    handoff_attributes,
    reply_attributes,
    request_attributes,
    schema_url,
    sendable_attributes,
)
from routelock.tracing.otel_messages import RequestTexts, messages_text, output_text, reply_text
from routelock.tracing.otel_meters import Meters
from routelock.tracing.recorder import TraceWriter
from routelock.tracing.records import (
    CompactedTraced,
    ErrorTraced,
    HandoffTraced,
    ItemTraced,
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
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["OpenTelemetry"]


_CUT_OFF = "routelock.cut_off"

_LONGEST_ERROR = 2000
"""The longest error text on a span, in characters."""


class OpenTelemetry:
    """A trace that writes spans and metrics, for ``RunConfig(trace=...)``.

    A run is an ``invoke_workflow`` span. It contains an ``invoke_agent`` span for each period in which an
    agent is active, and these contain ``chat`` and ``execute_tool`` spans. A handoff is an ``execute_tool``
    span of its tool, and an event on the span of its source. The parent of a run's span is the span that is
    current when the run starts. If the run answers a call of an agent as a tool, the parent is the span of
    the call. Only ``chat`` spans have tokens, so that sums count them once.

    Args:
        content: whether spans have messages, instructions, tools with their arguments and outputs, reasons
            and error texts. Secrets that `redact` finds are replaced.
        conventions: the release of the conventions that names the attributes: ``"0.1"``, the first release of
            their own repository; ``"1.41"``, the last one before it; or ``"both"``. Version 0.2 of routelock
            writes the names of 0.1 by default, and those of 1.41 no more.
        largest_media: the longest image, recording or file in a message, in characters of base64. Of a
            longer one only the type and the length are written. An address is always written.
        tracer_provider: makes the tracer; None takes the provider of the process.
        meter_provider: makes the meter; None takes the provider of the process.

    Raises:
        ConfigError: ``conventions`` has another value.
        MissingExtra: OpenTelemetry's API is not installed.
    """

    def __init__(
        self,
        *,
        content: bool = False,
        conventions: Literal["both", "0.1", "1.41"] = "both",
        largest_media: int = 100_000,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        check_conventions(conventions)
        with needs_extra("OpenTelemetry spans need its API, which is not installed", "otel"):
            from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra
        self.content = content
        self.conventions: Conventions = conventions
        self.largest_media = largest_media
        self._api = trace
        names = schema_url(conventions)
        self._tracer = trace.get_tracer("routelock", _version(), tracer_provider, names)
        meter = metrics.get_meter("routelock", _version() or "", meter_provider, names)
        self.meters: Meters = Meters(meter, conventions)

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> TraceWriter:
        """Start the span of a run."""
        return _Spans(self, start, cast("_Spans | None", parent))

    def start(
        self, name: str, parent: Span | None, attributes: Mapping[str, Any], *, client: bool = False
    ) -> Span:
        """Start a span; its parent is the given one, or else the app's current span."""
        kinds = self._api.SpanKind
        return self._tracer.start_span(
            sendable(name),
            context=None if parent is None else self._api.set_span_in_context(parent),
            kind=kinds.CLIENT if client else kinds.INTERNAL,
            attributes=sendable_attributes(attributes),
        )

    def fail(self, span: Span, kind: str, message: str) -> None:
        """Mark a span as ended with an error."""
        span.set_attribute(ERROR, sendable(kind))
        description = sendable(redact_text(message)[:_LONGEST_ERROR]) if self.content else None
        span.set_status(self._api.StatusCode.ERROR, description)

    def current(self, span: Span) -> AbstractContextManager[object]:
        """Return a context manager that makes a span the current one."""
        return self._api.use_span(span, record_exception=False, set_status_on_exception=False)


def _version() -> str | None:
    """Return the version of routelock; None in a checkout that is not installed."""
    try:
        return version("routelock")
    except PackageNotFoundError:
        return None


class _Chunks:
    """The times of the chunks of one model call."""

    __slots__ = ("_latest", "gaps")

    def __init__(self, start: float) -> None:
        self._latest = start
        self.gaps: list[float] = []
        """The seconds until the first chunk, and from each chunk to the next."""

    def add(self, time: float) -> None:
        self.gaps.append(time - self._latest)
        self._latest = time


class _Period:
    """A period in which an agent is active, or the run itself before the first one."""

    __slots__ = ("model_calls", "name", "span", "started", "tool_calls")

    def __init__(self, name: str, span: Span, started: float) -> None:
        self.name = name
        self.span = span
        self.started = started
        self.model_calls = 0
        self.tool_calls = 0


class _Spans:
    """The spans of one run."""

    def __init__(self, otel: OpenTelemetry, start: RunStarted, parent: _Spans | None) -> None:
        self._otel = otel
        self._start_record = start
        self._agents = {agent.name: agent for agent in start.agents}
        self._common = {} if start.conversation_id is None else {CONVERSATION: start.conversation_id}
        self._tools: dict[str, tuple[Span, ToolStarted]] = {}
        self._model: Span | None = None
        self._request: ModelStarted | None = None
        """The start of the latest model call."""
        self._asked: Mapping[str, Any] = {}
        """The attributes of that call, without content."""
        self._request_texts = RequestTexts(otel.largest_media)
        self._input: list[Mapping[str, Any]] = []
        """The messages of the input, until they are on the span of the run."""
        self._retries: list[str] = []
        self._chunks: _Chunks | None = None
        self._arguments: dict[str, str] = {}
        """The arguments of the calls in the latest reply, by id; empty without content."""
        self._compacted: set[str] = set()
        """The agents whose view of the conversation was compacted."""
        self._decided: set[str] = set()
        """The ids of handoffs that have a span."""
        names = {"0.1": [AGENT], "1.41": [WORKFLOW], "both": [AGENT, WORKFLOW]}[otel.conventions]
        attributes = {**dict.fromkeys(names, start.default_agent), "routelock.run.id": start.run}
        above = None if parent is None else parent.of_call(start.parent_call)
        self._run = self._start(above, "invoke_workflow", start.default_agent, attributes)
        self._agent = _Period("", self._run, start.time)

    def write(self, record: TraceRecord, /) -> None:
        handle = _HANDLERS.get(type(record))
        if handle is not None:
            handle(self, record)

    def inside(self, call_id: str | None, /) -> AbstractContextManager[object]:
        """Return a context manager in which the span of a tool call, or of the model call, is current."""
        span = self._model if call_id is None else self._tool_span(call_id)
        return nullcontext() if span is None else self._otel.current(span)

    def received(self, event: HandlerEvent, time: float, /) -> None:
        """Keep the time of a chunk of a streamed reply."""
        if self._chunks is not None and not isinstance(event, AttemptFailed | MessageDone):
            self._chunks.add(time)

    def of_call(self, call_id: str | None) -> Span:
        """Return the span of a tool call, or that of the active agent."""
        return self._tool_span(call_id or "") or self._agent.span

    def _tool_span(self, call_id: str) -> Span | None:
        found = self._tools.get(call_id)
        return None if found is None else found[0]

    def _start(
        self, parent: Span | None, operation: str, name: str, more: Mapping[str, Any], *, client: bool = False
    ) -> Span:
        attributes = {OPERATION: operation, **self._common, **more}
        return self._otel.start(f"{operation} {name}", parent, attributes, client=client)

    def _fail(self, span: Span, error: ErrorTraced) -> None:
        self._otel.fail(span, error.type, error.message)

    def item(self, record: ItemTraced) -> None:
        if self._otel.content and 0 <= record.id < self._start_record.input_count:
            self._input.append(record.message)

    def compacted(self, record: CompactedTraced) -> None:
        self._compacted.add(record.agent)

    def model_started(self, record: ModelStarted) -> None:
        self._show_input()
        if record.agent != self._agent.name:
            self._next_agent(record.agent, record.time)
        self._agent.model_calls += 1
        attributes = request_attributes(record, self._otel.conventions)
        if record.agent in self._compacted and self._otel.conventions != "1.41":
            attributes["gen_ai.conversation.compacted"] = True
        self._request, self._asked, self._retries = record, attributes, []
        if self._otel.content and record.request is not None:
            attributes = attributes | self._request_texts.of(record.request)
        self._chunks = _Chunks(record.time) if "gen_ai.request.stream" in attributes else None
        self._model = self._start(
            self._agent.span, "chat", attributes[REQUEST_MODEL], attributes, client=True
        )

    def _show_input(self) -> None:
        if self._input:
            text = messages_text(self._input, self._otel.largest_media)
            self._run.set_attribute("gen_ai.input.messages", sendable(text))
            self._input = []

    def _next_agent(self, name: str, time: float) -> None:
        self._end_agent(time)
        known, attributes = self._agents.get(name), {AGENT: name}
        if known is not None and known.description:
            attributes["gen_ai.agent.description"] = known.description
        self._agent = _Period(name, self._start(self._run, "invoke_agent", name, attributes), time)

    def _end_agent(self, time: float, error: ErrorTraced | None = None) -> None:
        ended = self._agent
        if not ended.name:  # no agent was active yet
            return
        attributes = {OPERATION: "invoke_agent", AGENT: ended.name}
        if error is not None:
            attributes[ERROR] = error.type
            self._fail(ended.span, error)
        ended.span.end()
        self._otel.meters.agent_ended(
            attributes, time - ended.started, model_calls=ended.model_calls, tool_calls=ended.tool_calls
        )

    def model_retried(self, record: ModelRetried) -> None:
        self._retries.append(record.error.type)
        if self._chunks is not None and self._request is not None:
            self._chunks = _Chunks(self._request.time)

    def model_ended(self, record: ModelEnded) -> None:
        span, self._model = self._model, None
        if span is None or self._request is None:
            return
        span.set_attributes(sendable_attributes(reply_attributes(record)))
        if self._otel.content and record.reply is not None:
            calls = calls_of(record.reply.message)
            self._arguments = {one["id"]: one["function"].get("arguments") or "" for one in calls}
            text = reply_text(record.reply, self._otel.largest_media)
            span.set_attribute("gen_ai.output.messages", sendable(text))
        if self._retries:
            span.set_attribute("routelock.retries", self._retries)
        chunks = self._chunks.gaps if self._chunks is not None else []
        if chunks:
            span.set_attribute("gen_ai.response.time_to_first_chunk", max(0.0, chunks[0]))
        if record.error is not None:
            self._fail(span, record.error)
        elif record.item is None:
            span.set_attribute(_CUT_OFF, True)
        span.end()
        self._otel.meters.model_called(self._asked, record, record.time - self._request.time, chunks)

    def tool_started(self, record: ToolStarted) -> None:
        self._agent.tool_calls += 1
        attributes = {TOOL: record.name, TOOL_TYPE: "function", CALL_ID: record.call_id, AGENT: record.agent}
        if self._otel.content:
            attributes[ARGUMENTS] = redact(record.arguments)
        span = self._start(self._agent.span, "execute_tool", record.name, attributes)
        self._tools[record.call_id] = span, record

    def tool_ended(self, record: ToolEnded) -> None:
        if record.call_id not in self._tools:  # an executor has replayed the call
            return
        span, start = self._tools.pop(record.call_id)
        if self._otel.content:
            span.set_attribute("gen_ai.tool.call.result", sendable(redact(record.output)))
        attributes = {OPERATION: "execute_tool", TOOL: start.name, TOOL_TYPE: "function", AGENT: start.agent}
        if record.failure is not None:
            error = record.error or ErrorTraced(type=record.failure, message=record.output)
            self._fail(span, error)
            attributes[ERROR] = error.type
        span.end()
        self._otel.meters.tool_ended(attributes, record.time - start.time)

    def handed_over(self, record: HandoffTraced) -> None:
        if record.ended is not None:
            self._otel.meters.handed_over(record)
        if record.id in self._decided:
            return
        self._decided.add(record.id)
        attributes = handoff_attributes(record, content=self._otel.content)
        self._agent.span.add_event("routelock.handoff", sendable_attributes(attributes))
        if record.requested_by == "tool":  # the tool has a span already
            return
        called = {
            TOOL: record.tool_name,
            TOOL_TYPE: "function",
            CALL_ID: record.call_id,
            AGENT: record.source,
        }
        if record.call_id in self._arguments:
            called[ARGUMENTS] = redact(self._arguments[record.call_id])
        self._start(self._agent.span, "execute_tool", record.tool_name, {**attributes, **called}).end()

    def ended(self, record: RunEnded) -> None:
        self._show_input()
        tools = [span for span, _ in self._tools.values()]
        for span in (*reversed(tools), self._model):
            if span is not None:
                span.set_attribute(_CUT_OFF, True)
                span.end()
        self._end_agent(record.time, record.error)
        self._run.set_attribute("routelock.stop_reason", record.stop_reason)
        if self._otel.content and record.output is not None:
            text = output_text(record.output)
            self._run.set_attribute("gen_ai.output.messages", sendable(text))
        attributes = {OPERATION: "invoke_workflow", AGENT: self._start_record.default_agent}
        if record.error is not None:
            self._fail(self._run, record.error)
            attributes[ERROR] = record.error.type
        self._run.end()
        self._otel.meters.run_ended(attributes, record.time - self._start_record.time)


_HANDLERS: Mapping[type[Any], Callable[[_Spans, Any], None]] = {
    CompactedTraced: _Spans.compacted,
    HandoffTraced: _Spans.handed_over,
    ItemTraced: _Spans.item,
    ModelEnded: _Spans.model_ended,
    ModelRetried: _Spans.model_retried,
    ModelStarted: _Spans.model_started,
    RunEnded: _Spans.ended,
    ToolEnded: _Spans.tool_ended,
    ToolStarted: _Spans.tool_started,
}
