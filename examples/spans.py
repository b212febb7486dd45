"""Shows the OpenTelemetry spans of a run: `routelock[otel]`, and its SDK.

As it is, the program prints the spans. Below `opentelemetry-instrument` they go where the environment says,
see docs/opentelemetry.md.
"""

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from routelock import Agent, RunConfig, Runner, function_tool, handoff
from routelock.testing import ScriptedHandler, call
from routelock.tracing import OpenTelemetry

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
QUESTION = {
    "role": "user",
    "content": [
        {"type": "text", "text": "I want my money back for order 7, see the picture."},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ],
}


@function_tool
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded order {order}"


model = ScriptedHandler(
    [call("transfer_to_refunds", {"reason": "money"}), call("refund", {"order": 7}), "Order 7 is refunded."]
)
refunds = Agent("refunds", "You handle refunds.", model=model, tools=[refund])
triage = Agent("triage", "You route requests.", model=model, handoffs=[handoff(refunds)])


def show(spans: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    """Print spans below one another, in the order in which they began."""
    for span in sorted(spans, key=lambda each: each.start_time or 0):
        above, own = span.parent, span.get_span_context()
        if (None if above is None else above.span_id) == parent and own is not None:
            print("  " * depth + span.name, *(f"[{event.name}]" for event in span.events))
            show(spans, own.span_id, depth + 1)


memory = InMemorySpanExporter()
if not isinstance(trace.get_tracer_provider(), TracerProvider):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
config = RunConfig(trace=OpenTelemetry(content=True), conversation_id="c-7")
print(Runner.run_sync(triage, [QUESTION], run_config=config).final_output)
show([*memory.get_finished_spans()])
