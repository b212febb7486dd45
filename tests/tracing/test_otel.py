"""Spans of runs: the right ones, below one another, ended, and with nothing left behind in any context."""

from __future__ import annotations

import contextvars
import json
from collections.abc import AsyncGenerator, Callable
from itertools import chain
from typing import Any, cast

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from recorded_spans import Spans, desk, id_of, parent_of, refund, said
from scenes import SCENES, Stage

from routelock import Agent, HandoffRequest, Retry, RunConfig, Runner, function_tool, handoff
from routelock.errors import ConnectionFailed, HandlerError, RoutelockError, ToolError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

SECRET = "sk-" + "a1" * 20


TREE = {
    "0 invoke_workflow triage": {
        "0 invoke_agent triage": {"0 chat scripted": {}, "1 execute_tool transfer_to_refunds": {}},
        "1 invoke_agent refunds": {
            "0 chat scripted": {},
            "1 execute_tool refund": {},
            "2 chat scripted": {},
        },
    }
}


async def test_the_spans_of_a_run_are_below_one_another(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    assert spans.tree() == TREE


async def test_a_streamed_run_has_the_same_spans(spans: Spans) -> None:
    await Runner.run_streamed(desk(), "Hi", run_config=spans.config()).drain()
    assert spans.tree() == TREE


async def test_attributes_follow_the_conventions(spans: Spans) -> None:
    used = Usage(requests=1, input_tokens=12, output_tokens=5, cached_tokens=8, reasoning_tokens=2, cost=0.5)
    model = ScriptedHandler([reply("Hello.", usage=used)])
    model.model = "openai/gpt-4o"  # type: ignore[attr-defined]
    agent = Agent("A", model=model, model_settings={"temperature": 0.5, "stop": "END", "max_tokens": 9})
    await Runner.run(agent, "Hi", run_config=spans.config(conversation_id="c1"))
    [chat] = spans.named("chat gpt-4o")
    assert chat.kind is trace.SpanKind.CLIENT
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.reasoning.output_tokens": 2,
        "gen_ai.conversation.id": "c1",
        "gen_ai.agent.name": "A",
        "routelock.usage.cost": 0.5,
    }
    assert expected.items() <= said(chat).items()


async def test_an_agent_is_described_and_a_tool_named(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    [agent] = spans.named("invoke_agent refunds")
    assert said(agent)["gen_ai.agent.description"] == "Refunds money."
    [tool] = spans.named("execute_tool refund")
    assert said(tool)["gen_ai.tool.call.id"] == "call_2_0"


async def test_handoff_is_a_call_of_its_tool(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    [moved] = spans.named("execute_tool transfer_to_refunds")
    expected = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "transfer_to_refunds",
        "gen_ai.tool.call.id": "call_1_0",
        "gen_ai.agent.name": "triage",
        "routelock.handoff.target": "refunds",
        "routelock.handoff.status": "accepted",
    }
    assert expected.items() <= said(moved).items()


async def test_handoff_is_an_event_of_its_source(spans: Spans) -> None:
    await Runner.run(desk(), "Hi", run_config=spans.config())
    [source] = spans.named("invoke_agent triage")
    [event] = source.events
    assert event.name == "routelock.handoff"
    assert dict(event.attributes or {})["routelock.handoff.target"] == "refunds"


async def test_handoff_that_a_tool_asks_for_has_the_span_of_that_tool(spans: Spans) -> None:
    @function_tool
    async def escalate() -> HandoffRequest:
        return HandoffRequest("refunds")

    model = ScriptedHandler([call("escalate"), "All done."])
    triage = Agent("triage", model=model, tools=[escalate], handoffs=[handoff(Agent("refunds", model=model))])
    await Runner.run(triage, "Hi", run_config=spans.config())
    assert [one.name for one in spans.all if "execute_tool" in one.name] == ["execute_tool escalate"]
    [source] = spans.named("invoke_agent triage")
    assert [event.name for event in source.events] == ["routelock.handoff"]


async def test_spans_have_no_content_by_default(spans: Spans) -> None:
    @function_tool
    async def fail(word: str) -> str:
        raise ValueError(f"word {word}")

    model = ScriptedHandler([call("fail", {"word": "quince"}), "quince"])
    agent = Agent("A", "quince", model=model, tools=[fail], model_settings={"stop": []})
    await Runner.run(agent, "quince", run_config=spans.config())
    assert "quince" not in "".join(span.to_json() for span in spans.all)


async def test_content_follows_the_conventions_without_secrets(spans: Spans) -> None:
    model = ScriptedHandler([call("refund", {"order": 7}), f"Your key is {SECRET}."])
    agent = Agent("A", "You refund.", model=model, tools=[refund])
    await Runner.run(agent, f"I am {SECRET}", run_config=spans.config(content=True))
    last = spans.named("chat scripted")[-1]
    asked = json.loads(str(said(last)["gen_ai.input.messages"]))
    called = {"type": "tool_call", "id": "call_1_0", "name": "refund", "arguments": {"order": 7}}
    answered = {"type": "tool_call_response", "id": "call_1_0", "response": "refunded 7"}
    assert asked == [
        {"role": "user", "parts": [{"type": "text", "content": "I am [redacted]"}]},
        {"role": "assistant", "parts": [called]},
        {"role": "tool", "parts": [answered]},
    ]
    system = json.loads(str(said(last)["gen_ai.system_instructions"]))
    assert system == [{"type": "text", "content": "You refund."}]
    [out] = json.loads(str(said(last)["gen_ai.output.messages"]))
    assert out["finish_reason"] == "stop"
    assert said(spans.named("execute_tool refund")[0])["gen_ai.tool.call.result"] == "refunded 7"
    assert SECRET not in "".join(span.to_json() for span in spans.all)


async def test_run_has_its_input_and_its_output(spans: Spans) -> None:
    await Runner.run(desk(), "Refund order 7.", run_config=spans.config(content=True))
    [run] = spans.named("invoke_workflow triage")
    [asked] = json.loads(str(said(run)["gen_ai.input.messages"]))
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "Refund order 7."}]}
    [answered] = json.loads(str(said(run)["gen_ai.output.messages"]))
    assert answered["parts"] == [{"type": "text", "content": "All done."}]


async def test_handoff_has_the_arguments_of_its_call(spans: Spans) -> None:
    model = ScriptedHandler([call("transfer_to_b", {"reason": f"with {SECRET}"}), "Hello."])
    triage = Agent("a", model=model, handoffs=[handoff(Agent("b", model=model))])
    await Runner.run(triage, "Hi", run_config=spans.config(content=True))
    [moved] = spans.named("execute_tool transfer_to_b")
    assert json.loads(str(said(moved)["gen_ai.tool.call.arguments"])) == {"reason": "with [redacted]"}


async def test_deeply_nested_arguments_are_text(spans: Spans) -> None:
    deep = f'{{"order": {"[" * 9000}{"]" * 9000}}}'
    agent = Agent("A", model=ScriptedHandler([call("refund", deep), "Sorry."]), tools=[refund])
    result = await Runner.run(agent, "Hi", run_config=spans.config(content=True))
    assert [problem.kind for problem in result.errors] == ["bad_arguments"]
    [out] = json.loads(str(said(spans.named("chat scripted")[0])["gen_ai.output.messages"]))
    assert out["parts"][0]["arguments"] == deep


async def test_half_a_surrogate_pair_is_on_no_span_and_in_no_metric(spans: Spans) -> None:
    """As protobuf refuses a text with one, and with it all spans that were to be sent."""
    half = "\ud83d"

    @function_tool
    async def fail() -> str:
        raise ValueError(f"no {half}")

    model = ScriptedHandler(
        [
            call("transfer_to_b", {"reason": f"because {half}"}),
            call("fail", {"word": half}, id=f"c{half}"),
            call("fail", id=f"d{half}"),
            reply(half, model=f"m{half}", finish_reason=f"f{half}"),
        ]
    )
    b = Agent("b", half, model=model, tools=[fail], handoff_description=half)
    config = spans.config(content=True, conversation_id=f"c{half}")
    await Runner.run(Agent("a", model=model, handoffs=[handoff(b)]), half, run_config=config)
    points = [point for one in spans.measured().values() for point in one]
    values = [
        *chain(*(said(one).values() for one in spans.all), *(one.attributes.values() for one in points))
    ]
    texts = [part for each in values for part in (each if isinstance(each, tuple) else [each])]
    told = [*texts, *(f"{one.name} {one.status.description}" for one in spans.all)]
    found = "|".join(map(str, told)).encode()
    assert "|because \ufffd|".encode() in found
    assert "no \ufffd".encode() in found


async def test_what_the_app_does_in_a_tool_is_below_the_tool(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("app")

    @function_tool
    async def own() -> str:
        with tracer.start_as_current_span("query"):
            await anyio.lowlevel.checkpoint()
        return "ok"

    @function_tool
    def threaded() -> str:
        with tracer.start_as_current_span("blocking"):
            return "ok"

    model = ScriptedHandler([[call("own"), call("threaded")], "Done."])
    agent = Agent("A", model=model, tools=[own, threaded])
    with tracer.start_as_current_span("request"):
        await Runner.run(agent, "Hi", run_config=spans.config())
    [query], [blocking] = spans.named("query"), spans.named("blocking")
    assert parent_of(query) == id_of(spans.named("execute_tool own")[0])
    assert parent_of(blocking) == id_of(spans.named("execute_tool threaded")[0])
    assert parent_of(spans.named("invoke_workflow A")[0]) == id_of(spans.named("request")[0])


async def test_what_a_handler_does_is_below_the_model_call(spans: Spans) -> None:
    """As the request that a client library sends is."""
    tracer = spans.provider.get_tracer("client")

    class Client(ScriptedHandler):
        async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
            with tracer.start_as_current_span("POST"):
                await anyio.lowlevel.checkpoint()
            async for event in super().stream(request):
                seen.append(trace.get_current_span().get_span_context().span_id)
                yield event

    seen: list[int] = []
    async with Runner.run_streamed(
        Agent("A", model=Client(["Hi there."])), "Hi", run_config=spans.config()
    ) as stream:
        async for _ in stream:
            assert trace.get_current_span() is trace.INVALID_SPAN
    [chat] = spans.named("chat scripted")
    assert parent_of(spans.named("POST")[0]) == id_of(chat)
    assert {*seen} == {id_of(chat)}


async def test_handler_that_is_no_generator_is_an_error(spans: Spans) -> None:
    class Odd:
        name = "odd"

        async def stream(self, request: Request) -> str:
            return "Hello."

    with pytest.raises(HandlerError, match="stream must be an async generator"):
        await Runner.run(Agent("A", model=cast(Any, Odd())), "Hi", run_config=spans.config())


async def test_an_agent_that_is_called_as_a_tool_is_below_the_call(spans: Spans) -> None:
    inner = Agent("expert", model=ScriptedHandler(["42."]))
    model = ScriptedHandler([call("expert", {"input": "?"}), "Done."])
    await Runner.run(Agent("A", model=model, tools=[inner.as_tool()]), "Hi", run_config=spans.config())
    [tool], [run] = spans.named("execute_tool expert"), spans.named("invoke_workflow expert")
    assert parent_of(run) == id_of(tool)


async def test_an_error_is_on_the_span_where_it_happened_and_on_the_run(spans: Spans) -> None:
    model = ScriptedHandler([ConnectionFailed("quince"), ConnectionFailed("quince")])
    agent = Agent("A", model=model)
    config = spans.config()
    with pytest.raises(ConnectionFailed):
        await Runner.run(agent, "Hi", run_config=RunConfig(trace=config.trace, retry=Retry(attempts=1)))
    for name in ("chat scripted", "invoke_agent A", "invoke_workflow A"):
        [span] = spans.named(name)
        assert said(span)["error.type"] == "ConnectionFailed"
        assert span.status.status_code is trace.StatusCode.ERROR
        assert span.status.description is None


async def test_retries_are_on_the_span_of_the_call(spans: Spans) -> None:
    model = ScriptedHandler([ConnectionFailed("down"), "Hello."])
    await Runner.run(Agent("A", model=model), "Hi", run_config=spans.config())
    [chat] = spans.named("chat scripted")
    assert said(chat)["routelock.retries"] == ("ConnectionFailed",)
    assert chat.status.status_code is trace.StatusCode.UNSET


async def test_a_tool_that_raises_is_an_error_of_its_span_alone(spans: Spans) -> None:
    @function_tool
    async def fail() -> str:
        raise ValueError("no")

    model = ScriptedHandler([call("fail"), "Done."])
    await Runner.run(Agent("A", model=model, tools=[fail]), "Hi", run_config=spans.config())
    [tool], [run] = spans.named("execute_tool fail"), spans.named("invoke_workflow A")
    assert said(tool)["error.type"] == "ValueError"
    assert run.status.status_code is trace.StatusCode.UNSET


async def _left(spans: Spans, stop_at: int) -> int:
    """Read so many events of a streamed run, and leave it; return how many there were."""
    read = 0
    async with Runner.run_streamed(desk(), "Hi", run_config=spans.config()) as stream:
        async for _ in stream:
            read += 1
            if read == stop_at:
                break
    return read


async def test_left_stream_ends_all_its_spans(spans: Spans) -> None:
    whole = await _left(spans, 10**6)
    for place in range(1, whole + 1):
        spans.exporter.clear()
        await _left(spans, place)
        assert _started_and_ended(spans)


def _started_and_ended(spans: Spans) -> bool:
    """Whether each parent of a span has ended as well."""
    ids = {id_of(span) for span in spans.all}
    return len(spans.named("invoke_workflow triage")) == 1 and all(
        parent_of(span) is None or parent_of(span) in ids for span in spans.all
    )


@pytest.mark.asyncio_only
async def test_stream_closed_in_another_task_leaves_no_context(spans: Spans) -> None:
    """What makes others log "Failed to detach context"."""
    whole = await _left(spans, 10**6)
    for place in range(1, whole):
        spans.exporter.clear()
        stream = Runner.run_streamed(desk(), "Hi", run_config=spans.config())
        events = aiter(stream)
        for _ in range(place):
            await _in_a_context_of_its_own(lambda: anext(events))  # noqa: B023 - it is called at once
        await _in_a_context_of_its_own(stream.aclose)
        assert _started_and_ended(spans)


async def _in_a_context_of_its_own(step: Callable[[], Any]) -> None:
    import asyncio

    await asyncio.get_running_loop().create_task(_await(step), context=contextvars.Context())


async def _await(step: Callable[[], Any]) -> None:
    await step()


async def test_a_run_that_is_cancelled_in_a_tool_ends_all_its_spans(spans: Spans) -> None:
    @function_tool
    async def wait() -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    model = ScriptedHandler([call("wait"), "Done."])
    with anyio.CancelScope() as scope:
        await Runner.run(Agent("A", model=model, tools=[wait]), "Hi", run_config=spans.config())
    [tool], [run] = spans.named("execute_tool wait"), spans.named("invoke_workflow A")
    assert said(tool)["routelock.cut_off"] is True
    assert said(run)["routelock.stop_reason"] == "unfinished"


@pytest.mark.virtual_time
async def test_timed_out_run_has_its_error(spans: Spans) -> None:
    @function_tool
    async def wait() -> str:
        await anyio.sleep_forever()
        return ""

    model = ScriptedHandler([call("wait"), "Done."])
    with pytest.raises(RoutelockError):
        await Runner.run(Agent("A", model=model, tools=[wait]), "Hi", run_config=spans.config(timeout=0.05))
    [run] = spans.named("invoke_workflow A")
    assert said(run)["error.type"] == "RunTimeout"
    assert said(run)["routelock.stop_reason"] == "error"


@pytest.mark.parametrize("scene", SCENES)
async def test_every_span_that_began_has_ended(scene: str, spans: Spans) -> None:
    started: list[str] = []
    it = SCENES[scene]

    class Counting(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            started.append(span.name)

    spans.provider.add_span_processor(Counting(InMemorySpanExporter()))
    config = it.settings(trace=spans.config().trace)
    for stream in (False, True):
        try:
            if stream:
                await Runner.run_streamed(
                    it.agent(Stage()), "Hi", max_turns=it.max_turns, run_config=config
                ).drain()
            else:
                await Runner.run(it.agent(Stage()), "Hi", max_turns=it.max_turns, run_config=config)
        except (RoutelockError, ToolError):
            pass
    assert sorted(started) == sorted(span.name for span in spans.all)
