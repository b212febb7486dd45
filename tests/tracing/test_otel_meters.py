"""Metrics: under the names of each release of the conventions, and with what they want to be told."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from recorded_spans import Spans, desk

from routelock import Agent, RunConfig, Runner, function_tool
from routelock.errors import ConnectionFailed
from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.handlers.retry import Retry
from routelock.testing import ScriptedHandler, call, reply
from routelock.tracing.otel_attributes import Conventions
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

NEWER = {
    "gen_ai.client.inference.duration",
    "gen_ai.client.inference.operation.input_tokens",
    "gen_ai.client.inference.operation.output_tokens",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
    "gen_ai.execute_tool.duration",
    "gen_ai.invoke_agent.duration",
    "gen_ai.invoke_agent.inference_calls",
    "gen_ai.invoke_agent.tool_calls",
}

OLDER = {"gen_ai.client.operation.duration", "gen_ai.client.token.usage"}

NAMES: dict[Conventions, set[str]] = {"0.1": NEWER, "1.41": OLDER, "both": NEWER | OLDER}


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Slow(ScriptedHandler):
    """A model whose chunks come 2 seconds, 1 second and 3 seconds after one another."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(["Hello."])
        self.clock = clock

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        for text, seconds in (("H", 2.0), ("el", 1.0), ("lo.", 3.0)):
            self.clock.now += seconds
            yield TextDelta(text=text)
        yield MessageDone(message={"role": "assistant", "content": "Hello."}, usage=Usage(requests=1))


def by(points: list[Any], name: str, value: str) -> list[Any]:
    return [point for point in points if point.attributes.get(name) == value]


@pytest.mark.parametrize("conventions", NAMES)
async def test_metrics_have_the_names_of_the_release(conventions: Conventions, spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config(conventions=conventions))
    assert {*spans.measured()} - {"routelock.handoffs"} == NAMES[conventions]


def test_names_of_the_older_release_are_those_of_its_package() -> None:
    known = {value for name, value in vars(gen_ai_metrics).items() if name.startswith("GEN_AI")}
    assert known >= OLDER


async def test_calls_and_their_tokens_are_counted(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    found = spans.measured()
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in found["gen_ai.client.token.usage"]
    }
    assert tokens == {"input": 30, "output": 15}
    for name in ("gen_ai.client.operation.duration", "gen_ai.client.inference.duration"):
        assert sum(point.count for point in found[name]) == 3


async def test_transfers_are_counted(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    [moved] = spans.measured()["routelock.handoffs"]
    assert (moved.value, moved.attributes["routelock.handoff.status"]) == (1, "completed")


async def test_tokens_are_sums_and_distributions(spans: Spans) -> None:
    used = Usage(requests=1, input_tokens=12, output_tokens=5, cached_tokens=8, reasoning_tokens=2)
    agent = Agent("A", model=ScriptedHandler([reply("Hello.", usage=used)]))
    await Runner.run(agent, "Hi", run_config=spans.config())
    found = spans.measured()
    usage = "gen_ai.client.inference.usage"
    sums = {name.removeprefix(f"{usage}."): one[0] for name, one in found.items() if name.startswith(usage)}
    assert {name: one.value for name, one in sums.items()} == {
        "input_tokens": 12,
        "output_tokens": 5,
        "cache_read.input_tokens": 8,
        "reasoning.output_tokens": 2,
    }
    assert sums["input_tokens"].attributes["gen_ai.token.modality"] == "unknown"
    [distributed] = found["gen_ai.client.inference.operation.input_tokens"]
    assert (distributed.sum, distributed.count) == (12, 1)


async def test_failed_call_has_a_sum_of_zero_and_no_distribution(spans: Spans) -> None:
    config = spans.config()
    once = RunConfig(trace=config.trace, retry=Retry(attempts=1))
    with pytest.raises(ConnectionFailed):
        await Runner.run(Agent("A", model=ScriptedHandler([ConnectionFailed("no")])), "Hi", run_config=once)
    found = spans.measured()
    [counted] = found["gen_ai.client.inference.usage.input_tokens"]
    assert counted.value == 0
    assert "gen_ai.client.inference.operation.input_tokens" not in found
    [lasted] = found["gen_ai.client.inference.duration"]
    assert lasted.attributes["error.type"] == "ConnectionFailed"


async def test_chunks_of_a_streamed_reply_are_timed(spans: Spans) -> None:
    clock = Clock()
    config = spans.config(clock=clock)
    await Runner.run_streamed(Agent("A", model=Slow(clock)), "Hi", run_config=config).drain()
    found = spans.measured()
    for kind in ("operation", "inference"):
        [first] = found[f"gen_ai.client.{kind}.time_to_first_chunk"]
        assert (first.sum, first.count) == (2.0, 1)
        [later] = found[f"gen_ai.client.{kind}.time_per_output_chunk"]
        assert (later.sum, later.count) == (4.0, 2)
    [chat] = [span for span in spans.all if span.name.startswith("chat")]
    assert dict(chat.attributes or {})["gen_ai.response.time_to_first_chunk"] == 2.0


async def test_chunks_of_a_failed_attempt_are_not_timed(spans: Spans) -> None:
    class Cut(Slow):
        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            yield TextDelta(text="He")
            yield AttemptFailed(error=ConnectionFailed("cut"), attempt=1, delay=0.0)
            async for event in super().stream(request):
                yield event

    clock = Clock()
    config = spans.config(clock=clock)
    await Runner.run_streamed(Agent("A", model=Cut(clock)), "Hi", run_config=config).drain()
    [first] = spans.measured()["gen_ai.client.inference.time_to_first_chunk"]
    assert (first.sum, first.count) == (2.0, 1)


async def test_reply_that_is_not_streamed_has_no_chunks(spans: Spans) -> None:
    clock = Clock()
    await Runner.run(Agent("A", model=Slow(clock)), "Hi", run_config=spans.config(clock=clock))
    assert not [name for name in spans.measured() if "chunk" in name]


async def test_work_of_each_agent_is_counted(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    found = spans.measured()
    for metric, expected in (("inference_calls", 2), ("tool_calls", 1)):
        [refunds] = by(found[f"gen_ai.invoke_agent.{metric}"], "gen_ai.agent.name", "refunds")
        assert (refunds.sum, refunds.count) == (expected, 1)


async def test_runs_and_agents_are_timed_by_one_metric(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    points = spans.measured()["gen_ai.invoke_agent.duration"]
    names = ("gen_ai.operation.name", "gen_ai.agent.name")
    found = {tuple(point.attributes[name] for name in names) for point in points}
    assert found == {("invoke_workflow", "triage"), ("invoke_agent", "triage"), ("invoke_agent", "refunds")}


async def test_tool_is_timed_with_its_error(spans: Spans) -> None:
    clock = Clock()

    @function_tool
    async def fail() -> str:
        clock.now += 5
        raise ValueError("no")

    agent = Agent("A", model=ScriptedHandler([call("fail"), "Done."]), tools=[fail])
    await Runner.run(agent, "Hi", run_config=spans.config(clock=clock))
    [timed] = spans.measured()["gen_ai.execute_tool.duration"]
    assert timed.sum == 5
    expected = {"gen_ai.tool.name": "fail", "gen_ai.agent.name": "A", "error.type": "ValueError"}
    assert expected.items() <= dict(timed.attributes).items()


async def test_buckets_are_those_of_the_conventions(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    found = spans.measured()
    seconds = found["gen_ai.client.inference.duration"][0].explicit_bounds
    assert (seconds[0], seconds[-1]) == (0.01, 81.92)
    assert found["gen_ai.invoke_agent.tool_calls"][0].explicit_bounds == (1, 2, 4, 8, 16, 32, 64, 128)
    assert found["gen_ai.client.token.usage"][0].explicit_bounds[-1] == 67108864
