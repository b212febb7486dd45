"""Spans and metrics of runs in a test, in memory."""

from __future__ import annotations

from typing import Any

import anyio
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, ScopeMetrics
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from routelock import Agent, Retry, RunConfig, function_tool, handoff
from routelock.testing import ScriptedHandler, call
from routelock.tracing.otel import OpenTelemetry
from routelock.tracing.otel_attributes import Conventions


class Spans:
    """Where the spans of a test go."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def config(
        self, *, content: bool = False, conventions: Conventions = "both", **settings: Any
    ) -> RunConfig:
        traced = OpenTelemetry(
            content=content,
            conventions=conventions,
            tracer_provider=self.provider,
            meter_provider=self.meters,
        )
        return RunConfig(trace=traced, retry=Retry(sleep=_at_once), **settings)

    @property
    def all(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def tree(self) -> dict[str, Any]:
        """The names of the spans below one another, in the order in which they began."""

        def below(parent: int | None) -> dict[str, Any]:
            children = [span for span in self.all if parent_of(span) == parent]
            children.sort(key=lambda span: span.start_time or 0)
            return {f"{place} {one.name}": below(id_of(one)) for place, one in enumerate(children)}

        return below(None)

    def measured(self) -> dict[str, list[Any]]:
        """The points of each metric, by its name."""
        return {metric.name: list(metric.data.data_points) for metric in self._metrics().metrics}

    def metric_scope(self) -> InstrumentationScope:
        return self._metrics().scope

    def _metrics(self) -> ScopeMetrics:
        data = self.reader.get_metrics_data()
        assert data is not None
        return data.resource_metrics[0].scope_metrics[0]


def id_of(span: ReadableSpan) -> int | None:
    context = span.get_span_context()
    return None if context is None else context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def _at_once(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


@function_tool
async def refund(order: int) -> str:
    return f"refunded {order}"


def desk() -> Agent[Any]:
    model = ScriptedHandler([call("transfer_to_refunds"), call("refund", {"order": 7}), "All done."])
    refunds = Agent(
        "refunds", "You refund.", model=model, tools=[refund], handoff_description="Refunds money."
    )
    return Agent("triage", "You route.", model=model, handoffs=[handoff(refunds)])
