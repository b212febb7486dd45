"""Metrics of runs for OpenTelemetry, as the conventions for generative AI name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from routelock.tracing.otel_attributes import (
    AGENT,
    ERROR,
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    Conventions,
    sendable_attributes,
)
from routelock.tracing.records import HandoffTraced, ModelEnded
from routelock.usage import Usage

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram, Meter

__all__ = ["Meters"]


_CALL_SECONDS = [0.01 * 2**step for step in range(14)]

_AGENT_SECONDS = [0.1 * 2**step for step in range(13)]

_CALLS = [float(2**step) for step in range(8)]

_TOKENS = [float(4**step) for step in range(14)]


class Meters:
    """The metrics: durations and tokens of model calls, agents and tools, and the number of transfers.

    Args:
        meter: where the metrics are recorded.
        conventions: the releases of the conventions whose metrics are recorded, see `OpenTelemetry`.
    """

    def __init__(self, meter: Meter, conventions: Conventions = "both") -> None:
        self._older = None if conventions == "0.1" else _CallMeters(meter, _OLDER)
        self._newer = None if conventions == "1.41" else _CallMeters(meter, _NEWER)
        self._counters = None if conventions == "1.41" else _TokenCounters(meter)
        self._work = None if conventions == "1.41" else _WorkMeters(meter)
        self._handoffs = meter.create_counter(
            "routelock.handoffs", unit="{handoff}", description="Transfers, by how they ended."
        )

    def model_called(
        self, request: Mapping[str, Any], end: ModelEnded, seconds: float, chunks: Sequence[float] = ()
    ) -> None:
        """Count a model call, which may have failed.

        Args:
            request: the attributes of its request.
            end: its end.
            seconds: its duration.
            chunks: of a streamed call, the seconds until its first chunk, and from each chunk to the next.
        """
        named = {name: request[name] for name in (PROVIDER, REQUEST_MODEL)}
        if end.model is not None:
            named[RESPONSE_MODEL] = end.model
        common = {OPERATION: "chat", **sendable_attributes(named)}
        for meters in (self._older, self._newer):
            if meters is not None:
                meters.called(common, end, seconds, chunks)
        if self._counters is not None:
            self._counters.called(common, end.usage)

    def agent_ended(
        self, attributes: Mapping[str, Any], seconds: float, *, model_calls: int, tool_calls: int
    ) -> None:
        """Count a period in which an agent was active, with its seconds and its numbers of calls."""
        if self._work is not None:
            self._work.agent_ended(sendable_attributes(attributes), seconds, model_calls, tool_calls)

    def run_ended(self, attributes: Mapping[str, Any], seconds: float) -> None:
        """Count a run, which OpenTelemetry's conventions call a workflow, with its length in seconds."""
        if self._work is not None:
            self._work.agents.record(max(0.0, seconds), sendable_attributes(attributes))

    def tool_ended(self, attributes: Mapping[str, Any], seconds: float) -> None:
        """Count a call of a tool, with its length in seconds."""
        if self._work is not None:
            self._work.tools.record(max(0.0, seconds), sendable_attributes(attributes))

    def handed_over(self, record: HandoffTraced) -> None:
        """Count a transfer that has ended."""
        handoff = {"source": record.source, "target": record.target, "status": record.status.lower()}
        attributes = {f"routelock.handoff.{name}": value for name, value in handoff.items()}
        self._handoffs.add(1, sendable_attributes(attributes))


_OLDER: Mapping[str, str] = {
    "duration": "gen_ai.client.operation.duration",
    "first": "gen_ai.client.operation.time_to_first_chunk",
    "next": "gen_ai.client.operation.time_per_output_chunk",
    "input": "gen_ai.client.token.usage",
    "output": "gen_ai.client.token.usage",
}
"""The metrics of model calls in 1.41."""

_NEWER: Mapping[str, str] = {
    "duration": "gen_ai.client.inference.duration",
    "first": "gen_ai.client.inference.time_to_first_chunk",
    "next": "gen_ai.client.inference.time_per_output_chunk",
    "input": "gen_ai.client.inference.operation.input_tokens",
    "output": "gen_ai.client.inference.operation.output_tokens",
}
"""The metrics of model calls in 0.1."""


class _CallMeters:
    """The histograms of model calls under the names of one release of the conventions."""

    __slots__ = ("_duration", "_first", "_input", "_next", "_output", "_typed")

    def __init__(self, meter: Meter, names: Mapping[str, str]) -> None:
        self._duration = _seconds(meter, names["duration"], "Duration of model calls.", _CALL_SECONDS)
        self._first = _seconds(meter, names["first"], "Time to the first chunk of a reply.", _CALL_SECONDS)
        self._next = _seconds(meter, names["next"], "Time from a chunk to the next.", _CALL_SECONDS)
        self._input = _tokens(meter, names["input"])
        self._typed = names["input"] == names["output"]
        self._output = self._input if self._typed else _tokens(meter, names["output"])

    def called(
        self, common: Mapping[str, Any], end: ModelEnded, seconds: float, chunks: Sequence[float]
    ) -> None:
        if end.usage is not None:
            self._input.record(end.usage.input_tokens, self._of_type(common, "input"))
            self._output.record(end.usage.output_tokens, self._of_type(common, "output"))
        for place, each in enumerate(chunks):
            (self._next if place else self._first).record(max(0.0, each), common)
        failed = {} if end.error is None else {ERROR: end.error.type}
        self._duration.record(max(0.0, seconds), {**common, **failed})

    def _of_type(self, common: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        return {**common, "gen_ai.token.type": kind} if self._typed else common


class _TokenCounters:
    """The tokens of model calls as counters, which 0.1 of the conventions has for sums and costs.

    No provider says which of its tokens were text and which an image, so the modality is unknown.
    """

    __slots__ = ("_cached", "_input", "_output", "_reasoning")

    def __init__(self, meter: Meter) -> None:
        self._input = _counter(meter, "input_tokens", "Input tokens, cached ones included.")
        self._output = _counter(meter, "output_tokens", "Output tokens, those of reasoning included.")
        self._cached = _counter(meter, "cache_read.input_tokens", "Input tokens read from a cache.")
        self._reasoning = _counter(meter, "reasoning.output_tokens", "Output tokens of reasoning.")

    def called(self, common: Mapping[str, Any], usage: Usage | None) -> None:
        attributes = {**common, "gen_ai.token.modality": "unknown"}
        usage = usage or Usage()
        self._input.add(usage.input_tokens, attributes)
        self._output.add(usage.output_tokens, attributes)
        self._cached.add(usage.cached_tokens, attributes)
        self._reasoning.add(usage.reasoning_tokens, attributes)


class _WorkMeters:
    """The histograms of runs, agents and tools, which are new in 0.1 of the conventions."""

    __slots__ = ("_model_calls", "_tool_calls", "agents", "tools")

    def __init__(self, meter: Meter) -> None:
        what = "Duration of runs, and of the periods in which an agent was active."
        self.agents = _seconds(meter, "gen_ai.invoke_agent.duration", what, _AGENT_SECONDS)
        self.tools = _seconds(meter, "gen_ai.execute_tool.duration", "Duration of tools.", _CALL_SECONDS)
        self._model_calls = meter.create_histogram(
            "gen_ai.invoke_agent.inference_calls",
            unit="{inference_call}",
            description="Model calls of an agent in one period.",
            explicit_bucket_boundaries_advisory=_CALLS,
        )
        self._tool_calls = meter.create_histogram(
            "gen_ai.invoke_agent.tool_calls",
            unit="{tool_call}",
            description="Tool calls of an agent in one period.",
            explicit_bucket_boundaries_advisory=_CALLS,
        )

    def agent_ended(
        self, attributes: Mapping[str, Any], seconds: float, model_calls: int, tool_calls: int
    ) -> None:
        self.agents.record(max(0.0, seconds), attributes)
        named = {AGENT: attributes[AGENT]}
        self._model_calls.record(model_calls, named)
        self._tool_calls.record(tool_calls, named)


def _seconds(meter: Meter, name: str, description: str, buckets: Sequence[float]) -> Histogram:
    return meter.create_histogram(
        name, unit="s", description=description, explicit_bucket_boundaries_advisory=buckets
    )


def _tokens(meter: Meter, name: str) -> Histogram:
    return meter.create_histogram(
        name,
        unit="{token}",
        description="Tokens of a model call.",
        explicit_bucket_boundaries_advisory=_TOKENS,
    )


def _counter(meter: Meter, name: str, description: str) -> Counter:
    return meter.create_counter(
        f"gen_ai.client.inference.usage.{name}", unit="{token}", description=description
    )
