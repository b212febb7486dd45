"""Traces of runs as OpenTelemetry spans, named by its semantic conventions for generative AI.

    await Runner.run(agent, "Hi", run_config=RunConfig(trace=OpenTelemetry()))

It needs the extra ``routelock[otel]``, which is OpenTelemetry's API alone: the app sets up the SDK and the
exporter. Without an SDK nothing is recorded.

A span is the current one only while code of the app or of a provider runs inside it, and never while the
reader of a stream runs. So no context variable stays set after a stream was read, cancelled or left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from routelock._json import sendable
from routelock._json_document import decode
from routelock._redaction import redact, redact_text
from routelock.errors import MissingExtra
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.messages import Message, calls_of
from routelock.tracing.recorder import TraceWriter
from routelock.tracing.records import (
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
from routelock.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Meters", "OpenTelemetry", "RequestTexts"]


AGENT = "gen_ai.agent.name"

CALL_ID = "gen_ai.tool.call.id"

CONVERSATION = "gen_ai.conversation.id"

ERROR = "error.type"

OPERATION = "gen_ai.operation.name"

PROVIDER = "gen_ai.provider.name"

REQUEST_MODEL = "gen_ai.request.model"

RESPONSE_MODEL = "gen_ai.response.model"

TOOL = "gen_ai.tool.name"

TOOL_TYPE = "gen_ai.tool.type"

_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""The name in the conventions of each provider that LiteLLM calls differently."""

_SETTINGS = {
    "frequency_penalty": (int, float),
    "max_tokens": (int,),
    "presence_penalty": (int, float),
    "seed": (int,),
    "temperature": (int, float),
    "top_k": (int, float),
    "top_p": (int, float),
}
"""The settings with an attribute of their own, and the types that the attribute may have."""


def _request_attributes(record: ModelStarted) -> dict[str, Any]:
    provider = record.provider or "routelock"
    found: dict[str, Any] = {
        AGENT: record.agent,
        PROVIDER: _PROVIDERS.get(provider, provider),
        REQUEST_MODEL: (record.model or record.handler).removeprefix(f"{provider}/"),
        "routelock.handler.name": record.handler,
        "routelock.turn": record.turn,
    }
    for name, kinds in _SETTINGS.items():
        value = record.settings.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool):
            found[f"gen_ai.request.{name}"] = value
    stop = record.settings.get("stop")
    if stop and all(isinstance(each, str) for each in ([stop] if isinstance(stop, str) else stop)):
        found["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if record.request is not None and record.request.stream:
        found["gen_ai.request.stream"] = True
    if record.output_schema is not None:
        found["gen_ai.output.type"] = "json"
    return found


def _reply_attributes(record: ModelEnded) -> dict[str, Any]:
    found = {
        "gen_ai.response.id": record.response_id,
        RESPONSE_MODEL: record.model,
        "gen_ai.response.finish_reasons": None if record.finish_reason is None else [record.finish_reason],
        **({} if record.usage is None else _usage_attributes(record.usage)),
    }
    return {name: value for name, value in found.items() if value is not None}


def _usage_attributes(usage: Usage) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens or None,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens or None,
        "routelock.usage.cost": usage.cost,
        "routelock.usage.estimated": usage.estimated or None,
    }


def _handoff_attributes(record: HandoffTraced, *, content: bool) -> dict[str, Any]:
    found = {
        "routelock.handoff.id": record.id,
        "routelock.handoff.source": record.source,
        "routelock.handoff.target": record.target,
        "routelock.handoff.status": record.status.lower(),
        CALL_ID: record.call_id,
    }
    if content and record.reason:
        found["routelock.handoff.reason"] = redact_text(record.reason)
    return found


# -- content: it is on spans only with OpenTelemetry(content=True) --


class RequestTexts:
    """The requests of a run as attributes; each message and each tool is converted to JSON once.

    The span of each model call has all messages. Converting them again for each call would make the time
    grow with the square of the number of turns.
    """

    __slots__ = ("_known", "_system")

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}
        self._system: tuple[list[dict[str, Any]], str] = [], ""

    def of(self, request: Request) -> dict[str, str]:
        """Return the messages, instructions and tools of a request as attributes."""
        messages = list(request.messages)
        system: list[dict[str, Any]] = []
        while messages and messages[0]["role"] == "system":
            system += _parts(messages.pop(0))
        found = {"gen_ai.input.messages": self._list(_message, messages)}
        if system:
            if system != self._system[0]:
                self._system = system, _json(system)
            found["gen_ai.system_instructions"] = self._system[1]
        if request.tools:
            found["gen_ai.tool.definitions"] = self._list(_definition, request.tools)
        return found

    def _list(self, convert: Callable[[Any], object], values: Iterable[object]) -> str:
        return f"[{', '.join([self._text(convert, value) for value in values])}]"

    def _text(self, convert: Callable[[Any], object], value: object) -> str:
        known = self._known.get(id(value))
        if known is None:  # the value is kept, so that no other object can get its id
            known = self._known[id(value)] = value, _json(convert(value))
        return known[1]


def _output_messages(reply: MessageDone) -> str:
    return _json([{**_message(reply.message), "finish_reason": reply.finish_reason or ""}])


def _definition(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function", **spec["function"]} if "function" in spec else dict(spec)


def _message(message: Message) -> dict[str, Any]:
    if message["role"] == "tool":
        content = message.get("content")
        response = [_part(part) for part in content] if isinstance(content, list) else content
        answer = {"id": message.get("tool_call_id"), "response": response}
        return {"role": "tool", "parts": [{"type": "tool_call_response", **answer}]}
    return {"role": message["role"], "parts": _parts(message)}


def _parts(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    listed: Iterable[Mapping[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) and content else content or ()
    )
    parts = [_part(part) for part in listed]
    if refusal := message.get("refusal"):
        parts.append({"type": "refusal", "content": refusal})
    for call in calls_of(message):
        function = call["function"]
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name") or "",
                "arguments": _parsed(function.get("arguments") or ""),
            }
        )
    return parts


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "text":
        return {"type": "text", "content": str(part.get("text") or "")}
    return {"type": str(part.get("type") or "unknown")}  # images and files are left out


def _parsed(arguments: str) -> object:
    try:
        return decode(arguments.encode())
    except ValueError:
        return arguments


def _json(value: object) -> str:
    return json.dumps(redact(value), ensure_ascii=False, default=str)


_CUT_OFF = "routelock.cut_off"

_LONGEST_ERROR = 2000
"""The longest error text on a span, in characters."""


class OpenTelemetry:
    """A trace that writes spans and metrics, for ``RunConfig(trace=...)``.

    A run is an ``invoke_workflow`` span. It contains an ``invoke_agent`` span for each period in which an
    agent is active, and these contain ``chat``, ``execute_tool`` and ``handoff`` spans. The parent of a run's
    span is the span that is current when the run starts; for an agent that is called as a tool it is the span
    of that call. Only ``chat`` spans have tokens, so that sums count them once.

    Args:
        content: whether spans have messages, instructions, tools with their arguments and outputs, reasons
            and error texts. Secrets that `redact` finds are replaced.
        tracer_provider: None for that of the process.
        meter_provider: None for that of the process.

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
        self.meters: Meters = Meters(metrics.get_meter("routelock", meter_provider=meter_provider))

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
            attributes=_sendable(attributes),
        )

    def fail(self, span: Span, kind: str, message: str) -> None:
        """Mark a span as ended with an error."""
        span.set_attribute(ERROR, sendable(kind))
        description = sendable(redact_text(message)[:_LONGEST_ERROR]) if self.content else None
        span.set_status(self._api.StatusCode.ERROR, description)

    def current(self, span: Span) -> AbstractContextManager[object]:
        """Return a context manager that makes a span the current one."""
        return self._api.use_span(span, record_exception=False, set_status_on_exception=False)


class Meters:
    """The metrics: duration and tokens of model calls, and the number of transfers."""

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

    def model_called(self, request: Mapping[str, Any], end: ModelEnded, seconds: float) -> None:
        """Count a model call, which may have failed; ``request`` has the attributes of its request."""
        named = {name: request[name] for name in (PROVIDER, REQUEST_MODEL)}
        if end.model is not None:
            named[RESPONSE_MODEL] = end.model
        common = {OPERATION: "chat", **_sendable(named)}
        if end.usage is not None:
            for kind, count in (("input", end.usage.input_tokens), ("output", end.usage.output_tokens)):
                self._tokens.record(count, {**common, "gen_ai.token.type": kind})
        if end.error is not None:
            common[ERROR] = end.error.type
        self._seconds.record(max(0.0, seconds), common)

    def handed_over(self, record: HandoffTraced) -> None:
        """Count a transfer that has ended."""
        handoff = {"source": record.source, "target": record.target, "status": record.status.lower()}
        attributes = {f"routelock.handoff.{name}": value for name, value in handoff.items()}
        self._handoffs.add(1, _sendable(attributes))


class _Spans:
    """The spans of one run."""

    def __init__(self, otel: OpenTelemetry, start: RunStarted, parent: _Spans | None) -> None:
        self._otel = otel
        self._agents = {agent.name: agent for agent in start.agents}
        self._common = {} if start.conversation_id is None else {CONVERSATION: start.conversation_id}
        self._tools: dict[str, Span] = {}
        self._model: Span | None = None
        self._request: ModelStarted | None = None
        """The start of the latest model call."""
        self._request_texts = RequestTexts()
        self._retries: list[str] = []
        self._decided: set[str] = set()
        """The ids of handoffs that have a span."""
        attributes = {"gen_ai.workflow.name": start.default_agent, "routelock.run.id": start.run}
        above = None if parent is None else parent.of_call(start.parent_call)
        self._run = self._start(above, "invoke_workflow", start.default_agent, attributes)
        self._agent_name, self._agent = "", self._run

    def write(self, record: TraceRecord, /) -> None:
        handle = _HANDLERS.get(type(record))
        if handle is not None:
            handle(self, record)

    def inside(self, call_id: str | None, /) -> AbstractContextManager[object]:
        """Return a context manager in which the span of a tool call, or of the model call, is current."""
        span = self._model if call_id is None else self._tools.get(call_id)
        return nullcontext() if span is None else self._otel.current(span)

    def of_call(self, call_id: str | None) -> Span:
        """Return the span of a tool call, or that of the active agent."""
        return self._tools.get(call_id or "", self._agent)

    def _start(
        self, parent: Span | None, operation: str, name: str, more: Mapping[str, Any], *, client: bool = False
    ) -> Span:
        attributes = {OPERATION: operation, **self._common, **more}
        return self._otel.start(f"{operation} {name}", parent, attributes, client=client)

    def _fail(self, span: Span, error: ErrorTraced) -> None:
        self._otel.fail(span, error.type, error.message)

    def model_started(self, record: ModelStarted) -> None:
        if record.agent != self._agent_name:
            self._next_agent(record.agent)
        attributes = _request_attributes(record)
        if self._otel.content and record.request is not None:
            attributes |= self._request_texts.of(record.request)
        self._request, self._retries = record, []
        self._model = self._start(self._agent, "chat", attributes[REQUEST_MODEL], attributes, client=True)

    def _next_agent(self, name: str) -> None:
        if self._agent_name:
            self._agent.end()
        known, attributes = self._agents.get(name), {AGENT: name}
        if known is not None and known.description:
            attributes["gen_ai.agent.description"] = known.description
        self._agent_name, self._agent = name, self._start(self._run, "invoke_agent", name, attributes)

    def model_retried(self, record: ModelRetried) -> None:
        self._retries.append(record.error.type)

    def model_ended(self, record: ModelEnded) -> None:
        span, self._model = self._model, None
        if span is None or self._request is None:
            return
        span.set_attributes(_sendable(_reply_attributes(record)))
        if self._otel.content and record.reply is not None:
            span.set_attribute("gen_ai.output.messages", sendable(_output_messages(record.reply)))
        if self._retries:
            span.set_attribute("routelock.retries", self._retries)
        if record.error is not None:
            self._fail(span, record.error)
        elif record.item is None:
            span.set_attribute(_CUT_OFF, True)
        span.end()
        seconds = record.time - self._request.time
        self._otel.meters.model_called(_request_attributes(self._request), record, seconds)

    def tool_started(self, record: ToolStarted) -> None:
        attributes = {TOOL: record.name, TOOL_TYPE: "function", CALL_ID: record.call_id, AGENT: record.agent}
        if self._otel.content:
            attributes["gen_ai.tool.call.arguments"] = redact(record.arguments)
        self._tools[record.call_id] = self._start(self._agent, "execute_tool", record.name, attributes)

    def tool_ended(self, record: ToolEnded) -> None:
        span = self._tools.pop(record.call_id, None)
        if span is None:  # an executor has replayed the call
            return
        if self._otel.content:
            span.set_attribute("gen_ai.tool.call.result", sendable(redact(record.output)))
        if record.failure is not None:
            self._fail(span, record.error or ErrorTraced(type=record.failure, message=record.output))
        span.end()

    def handed_over(self, record: HandoffTraced) -> None:
        if record.ended is not None:
            self._otel.meters.handed_over(record)
        if record.id in self._decided:
            return
        self._decided.add(record.id)
        attributes = _handoff_attributes(record, content=self._otel.content)
        self._start(self._agent, "handoff", record.target, attributes).end()

    def ended(self, record: RunEnded) -> None:
        for span in (*reversed(self._tools.values()), self._model):
            if span is not None:
                span.set_attribute(_CUT_OFF, True)
                span.end()
        if self._agent_name:
            self._agent.end()
        self._run.set_attribute("routelock.stop_reason", record.stop_reason)
        if record.error is not None:
            self._fail(self._run, record.error)
        self._run.end()


def _sendable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that an exporter can send: half a surrogate pair in one stops the whole export."""
    return sendable(dict(attributes))


_HANDLERS: Mapping[type[Any], Callable[[_Spans, Any], None]] = {
    ModelStarted: _Spans.model_started,
    ModelRetried: _Spans.model_retried,
    ModelEnded: _Spans.model_ended,
    ToolStarted: _Spans.tool_started,
    ToolEnded: _Spans.tool_ended,
    HandoffTraced: _Spans.handed_over,
    RunEnded: _Spans.ended,
}
