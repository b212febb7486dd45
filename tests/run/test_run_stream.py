"""`RunStream`: the same run, handed out event by event, at the pace of its reader."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import anyio
import pytest
from scenes import SCENES, Stage

from routelock import Agent, RunConfig, Runner, RunStream, function_handler, function_tool
from routelock.errors import ConfigError, InvalidRequest
from routelock.handlers.events import MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.events import (
    AgentUpdated,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    Repaired,
    RunDone,
    ToolCalled,
    ToolOutput,
)
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio


def stream(scene: str, **settings: Any) -> RunStream:
    played = SCENES[scene]
    return Runner.run_streamed(played.agent(Stage()), "Hi", run_config=played.settings(**settings))


async def collect(source: AsyncIterable[Any]) -> list[Any]:
    return [event async for event in source]


# -- reading --


async def test_nothing_happens_before_the_first_event_is_asked_for() -> None:
    script = ScriptedHandler(["Hi"])
    running = Runner.run_streamed(Agent("A", model=script), "Hello")
    await anyio.lowlevel.checkpoint()
    assert script.requests == []
    await running.aclose()


async def test_the_stream_is_pulled_by_its_reader() -> None:
    """No queue in between; the handler makes no piece before it is asked for."""
    made: list[int] = []

    async def count(request: Request) -> AsyncGenerator[str]:
        for number in range(5):
            made.append(number)
            yield str(number)

    read = 0
    async for event in Runner.run_streamed(Agent("A", model=function_handler(count)), "Hi"):
        if isinstance(event, TextDelta):
            read += 1
            assert len(made) == read


async def test_iterating_and_stream_events_are_the_same() -> None:
    running = stream("transfer")
    events = [await anext(aiter(running.stream_events())), *await collect(running)]
    assert events[:-1] == (await collect(stream("transfer")))[:-1]


async def test_draining_gives_the_result() -> None:
    running = stream("answer")
    result = await running.drain()
    assert result == running.result
    assert result.final_output == running.final_output == "Hello there,\n  you."


async def test_draining_goes_on_where_the_reader_stopped() -> None:
    running = stream("one tool")
    async for event in running:
        if isinstance(event, ToolCalled):
            break
    assert (await running.drain()).final_output == "It is 3."


async def test_a_finished_stream_has_no_more_events() -> None:
    running = stream("answer")
    await running.drain()
    assert await collect(running) == []
    assert running.result.stop_reason == "done"


async def test_closing_twice_is_safe() -> None:
    async with stream("answer") as running:
        await running.aclose()
        await running.aclose()
    assert await collect(running) == []


async def test_a_finished_stream_can_be_closed() -> None:
    running = stream("answer")
    await running.drain()
    await running.aclose()
    assert running.result.stop_reason == "done"


async def test_closing_a_stream_in_use_says_what_to_do() -> None:
    """A generator that runs cannot be closed; cancelling its reader closes it."""
    opened: list[str] = []

    async def wait(request: Request) -> AsyncGenerator[str]:
        opened.append("open")
        try:
            await anyio.sleep_forever()
            yield "never"
        finally:
            opened.remove("open")

    running = Runner.run_streamed(Agent("A", model=function_handler(wait)), "Hi")
    async with anyio.create_task_group() as group:
        group.start_soon(running.drain)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ConfigError, match="Another task is reading this stream"):
            await running.aclose()
        assert opened == ["open"]
        group.cancel_scope.cancel()
    await running.aclose()
    assert opened == []


async def test_the_block_lets_the_readers_own_error_through() -> None:
    async def read() -> None:
        async with stream("answer") as running:
            await anext(aiter(running))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await read()


async def test_an_error_of_the_run_reaches_the_reader() -> None:
    """The result stays readable: it is the one on the error."""
    running = stream("failing")
    with pytest.raises(InvalidRequest) as caught:
        await collect(running)
    assert running.result == caught.value.result
    assert running.result.stop_reason == "error"


# -- the result while the run goes on --


async def test_result_and_agent_follow_the_run() -> None:
    running = stream("transfer")
    seen: list[tuple[str, int, Any]] = []
    async for event in running:
        if isinstance(event, AgentUpdated | MessageDone):
            result = running.result
            seen.append((running.current_agent.name, len(result.new_items), result.stop_reason))
    assert seen == [(name, count, "unfinished") for name, count in (("A", 0), ("A", 1), ("B", 4), ("B", 5))]
    assert running.final_output == "B here."


async def test_an_earlier_result_does_not_change() -> None:
    running = stream("one tool")
    async for event in running:
        if isinstance(event, ToolCalled):
            break
    before = running.result
    items, usage, calls = list(before.items), before.usage, list(before.calls)
    await running.drain()
    assert (list(before.items), before.usage, list(before.calls)) == (items, usage, calls)


# -- the events --


async def test_a_plain_answer() -> None:
    kinds = [event.type for event in await collect(stream("answer"))]
    assert kinds == ["agent_updated", *["text_delta"] * 3, "message_done", "run_done"]


async def test_a_tool_call_is_announced_and_answered() -> None:
    events = await collect(stream("one tool"))
    (called,) = [event for event in events if isinstance(event, ToolCalled)]
    (output,) = [event for event in events if isinstance(event, ToolOutput)]
    assert called == ToolCalled(agent="A", call_id="call_1_0", name="add", arguments='{"a": 1, "b": 2}')
    assert output == ToolOutput(agent="A", call_id="call_1_0", name="add", output="3")


async def test_answers_come_in_call_order_with_their_errors() -> None:
    """Whichever tool is done first."""
    outputs = [event for event in await collect(stream("siblings")) if isinstance(event, ToolOutput)]
    assert [(event.call_id, event.error) for event in outputs] == [
        ("x", None),
        ("call_1_1", "raised"),
        ("call_1_2", None),
        ("call_2_0", None),
    ]


async def test_mistakes_are_outputs_without_a_tool_call() -> None:
    """A tool that does not exist is never announced as about to run."""
    events = await collect(stream("mistakes"))
    assert [event.name for event in events if isinstance(event, ToolCalled)] == ["add", "add"]
    errors = [event.error for event in events if isinstance(event, ToolOutput)]
    assert errors == ["unknown_tool", None, "arguments"]


async def test_handoff_events_come_in_order() -> None:
    events = await collect(stream("transfer"))
    (requested,) = [event for event in events if isinstance(event, HandoffRequested)]
    (occurred,) = [event for event in events if isinstance(event, HandoffOccurred)]
    assert (requested.source, requested.target, requested.arguments) == ("A", "B", "{}")
    assert (occurred.source, occurred.target, occurred.call_id) == ("A", "B", requested.call_id)
    assert events[events.index(occurred) + 1] == AgentUpdated("B")


async def test_a_transfer_that_fails_is_told_with_its_reason() -> None:
    """Completed also on failure; no new agent is announced."""
    events = await collect(stream("refused transfer"))
    (failed,) = [event for event in events if isinstance(event, HandoffFailed)]
    assert (failed.source, failed.target) == ("A", "B")
    assert "nobody is there" in failed.reason
    assert [event.agent for event in events if isinstance(event, AgentUpdated)] == ["A"]


async def test_a_transfer_to_a_handler_announces_no_agent() -> None:
    events = await collect(stream("chain"))
    assert [event.agent for event in events if isinstance(event, AgentUpdated)] == ["A", "B", "A"]
    assert [event.target for event in events if isinstance(event, HandoffOccurred)] == ["B", "A", "voice"]


async def test_deltas_of_the_target_arrive_before_the_run_ends() -> None:
    """A target streams as the first agent does."""
    events = await collect(stream("transfer"))
    after = events[events.index(AgentUpdated("B")) :]
    assert [event.text for event in after if isinstance(event, TextDelta)] == ["B", " here."]


async def test_a_repair_of_the_input_is_told_and_kept() -> None:
    """Each repair is visible."""
    poisoned: list[Message] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("look", id="c")]},
        {"role": "user", "content": "Well?"},
    ]
    running = Runner.run_streamed(Agent("A", model=ScriptedHandler(["Hello."])), poisoned)
    told = [event.repair for event in await collect(running) if isinstance(event, Repaired)]
    assert told == ["added a missing answer to tool call 'c'"]
    assert list(running.result.repairs) == told


async def test_what_a_filter_did_is_not_streamed() -> None:
    """Items that were streamed stay in the result, whatever the target is shown."""

    def nothing_new(data: Any) -> Any:
        return data.clone(pre_handoff_items=(), new_items=())

    running = stream("transfer", handoff_input_filter=nothing_new)
    events = await collect(running)
    said = [event.message for event in events if isinstance(event, MessageDone)]
    assert said == [item.message for item in running.result.items if item.kind == "model"]
    assert [message["role"] for message in running.result.calls[1].messages] == ["system", "user"]


async def test_the_last_event_is_the_result() -> None:
    running = stream("answer")
    last = (await collect(running))[-1]
    assert last == RunDone(running.result)


async def test_text_and_calls_of_one_reply_are_both_streamed() -> None:
    @function_tool
    async def look() -> str:
        """Look."""
        return "seen"

    script = ScriptedHandler([reply("One moment.", calls=[call("look")], reasoning="Hm."), "Done."])
    running = Runner.run_streamed(Agent("A", model=script, tools=[look]), "Hi")
    kinds = [event.type for event in await collect(running)]
    assert kinds[:6] == [
        "agent_updated",
        "reasoning_delta",
        "text_delta",
        "text_delta",
        "tool_call_delta",
        "message_done",
    ]


async def test_result_may_be_read_by_another_task() -> None:
    running = Runner.run_streamed(SCENES["one tool"].agent(Stage()), "Hi", run_config=RunConfig())
    sizes: list[int] = []

    async def watch() -> None:
        while running.result.stop_reason == "unfinished":
            sizes.append(len(running.result.items))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        async for _ in running:
            await anyio.lowlevel.checkpoint()
    assert sizes == sorted(sizes)
