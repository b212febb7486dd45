"""A run may end at any moment: what happened until then is whole, and nothing is left behind."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from cancel_traps import Trap, Watched
from scenes import SCENES, Recorder, Scene, Stage

from routelock import Agent, RunHooks, Runner, RunResult, RunStream, function_handler, function_tool
from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Handler, Request
from routelock.history.messages import Message
from routelock.history.validity import problems
from routelock.run.events import HandoffOccurred, RunDone, ToolCalled
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = [pytest.mark.anyio, pytest.mark.every_loop]

USER: Message = {"role": "user", "content": "Go on."}
WAITING = sorted(SCENES.keys() - {"answer", "refusal", "silence", "same call again", "limit returned"})


class Played:
    """One scene, played under a trap."""

    def __init__(self, scene: Scene, k: int = 0) -> None:
        self.trap = Trap(k)
        self.open: list[str] = []
        self.begun: list[Request] = []
        self.stage = Stage(kind=self._watched, wait=self.trap.wait)
        self.scene = scene
        self.agent = scene.agent(self.stage)
        self.hooks = Recorder(self.trap.wait)

    def _watched(self, script: ScriptedHandler) -> Handler:
        return Watched(script, self.trap, self.open, self.begun)

    def stream(self) -> RunStream:
        return Runner.run_streamed(
            self.agent,
            "Hi",
            hooks=self.hooks,
            max_turns=self.scene.max_turns,
            run_config=self.scene.settings(),
        )

    async def drain(self) -> RunResult[Any]:
        stream = self.stream()
        with self.trap.scope:
            try:
                await stream.drain()
            except RoutelockError:
                pass
            finally:
                await stream.aclose()
        return stream.result

    async def check(self, result: RunResult[Any]) -> None:
        """Whatever happened: a valid transcript, all calls counted, all answers kept, all closed."""
        assert problems([*result.to_input_list(), USER]) == []
        assert self.open == []
        waiting_to_retry = self.scene is SCENES["retried"] and len(result.errors)
        assert len(self.begun) <= result.usage.requests <= len(self.begun) + waiting_to_retry
        for seen in result.raw_replies:
            assert seen.message in [item.message for item in result.items]
        kept = sum(item.kind == "tool" for item in result.items)
        assert len(self.stage.done) <= kept
        await self.go_on(result)

    async def go_on(self, result: RunResult[Any]) -> None:
        """The next run of the same agents starts at the default and gets a valid request."""
        script = ScriptedHandler(["Here I am."])
        agent = Agent(self.agent.name, self.agent.instructions, model=script, tools=self.agent.tools)
        after = await Runner.run(agent, [*result.to_input_list(), USER])
        assert after.final_output == "Here I am."
        assert problems(script.requests[0].messages) == []


async def settled() -> None:
    """Let what the collector finds of earlier tests end now, so that it is not counted in this one."""
    gc.collect()
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("name", WAITING)
async def test_a_run_can_be_cancelled_at_any_await(name: str) -> None:
    """A handler, tool, filter, callback or hook in which the surrounding scope is cancelled."""
    await settled()
    counting = Played(SCENES[name])
    await counting.drain()
    assert counting.trap.passed > 5
    for k in range(1, counting.trap.passed + 1):
        before = len(anyio.get_running_tasks())
        played = Played(SCENES[name], k)
        result = await played.drain()
        assert played.trap.scope.cancelled_caught or result.stop_reason != "unfinished", k
        assert len(anyio.get_running_tasks()) == before, k
        await played.check(result)


@pytest.mark.parametrize("name", ["one tool", "chain", "siblings"])
async def test_a_plain_run_can_be_cancelled_at_any_await(name: str) -> None:
    """`Runner.run` leaves nothing open either, and its agents go on as if nothing had been."""
    await settled()
    scene, before = SCENES[name], len(anyio.get_running_tasks())
    for k in range(1, 100):
        played = Played(scene, k)
        with played.trap.scope:
            await Runner.run(played.agent, "Hi", hooks=played.hooks, run_config=scene.settings())
        assert (played.open, len(anyio.get_running_tasks())) == ([], before), k
        if not played.trap.scope.cancelled_caught:
            break
    assert 10 < played.trap.passed < k


@pytest.mark.parametrize("name", SCENES)
async def test_a_stream_can_be_left_after_any_event(name: str) -> None:
    """Leaving the block closes what is behind it, without waiting for the collector."""
    await settled()
    for k in range(1, 100):
        before = len(anyio.get_running_tasks())
        played = Played(SCENES[name])
        finished = await leave_after(played.stream(), k, played)
        assert len(anyio.get_running_tasks()) == before, k
        if finished:
            return
    raise AssertionError("the scene never ends")


async def leave_after(stream: RunStream, k: int, played: Played) -> bool:
    seen = 0
    try:
        async with stream:
            async for event in stream:
                seen += 1
                if seen == k or isinstance(event, RunDone):
                    break
    except RoutelockError:
        return True
    await played.check(stream.result)
    return stream.result.stop_reason != "unfinished"


@pytest.mark.parametrize("name", ["transfer", "chain", "siblings"])
async def test_another_task_may_close_the_stream(name: str) -> None:
    """No task group and no cancel scope is open while an event is handed out."""
    for k in range(1, 40):
        played = Played(SCENES[name])
        stream = played.stream()
        ended = await step_in_tasks(stream, k)
        async with anyio.create_task_group() as group:
            group.start_soon(stream.aclose)
        await played.check(stream.result)
        if ended:
            return
    raise AssertionError("the scene never ends")


async def step_in_tasks(stream: RunStream, count: int) -> bool:
    """Read each event in a task of its own."""
    events = aiter(stream)
    ended = False

    async def step() -> None:
        nonlocal ended
        ended = isinstance(await anext(events), RunDone)

    for _ in range(count):
        if not ended:
            async with anyio.create_task_group() as group:
                group.start_soon(step)
    return ended


async def test_the_answers_of_finished_siblings_are_kept() -> None:
    """What two tools did is in the transcript when the third is cancelled."""
    scope = anyio.CancelScope()

    @function_tool
    async def quick(name: str) -> str:
        """Answer at once."""
        return f"{name} done"

    @function_tool
    async def last() -> str:
        """Wait for the others, then be cancelled."""
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    calls = [call("quick", {"name": "a"}), call("last"), call("quick", {"name": "b"})]
    agent = Agent("A", model=ScriptedHandler([calls]), tools=[quick, last])
    stream = Runner.run_streamed(agent, "Hi")
    with scope:
        await stream.drain()
    answers = [
        message.get("content") for message in stream.result.to_input_list() if message["role"] == "tool"
    ]
    assert answers == ["a done", "No result was recorded for this call.", "b done"]


class _CancelsAtTheEnd(RunHooks):
    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope = scope

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: str) -> None:
        self.scope.cancel()
        await anyio.lowlevel.checkpoint()


async def test_finished_tool_is_kept_when_its_hook_is_cancelled() -> None:
    """The tool did its work, so the next run must know."""
    scope, stage = anyio.CancelScope(), Stage()
    stream = Runner.run_streamed(SCENES["one tool"].agent(stage), "Hi", hooks=_CancelsAtTheEnd(scope))
    with scope:
        await stream.drain()
    assert stage.done == ["add 1 2"]
    assert stream.result.items[-1].message == {"role": "tool", "tool_call_id": "call_1_0", "content": "3"}


def lingering(ends: Callable[[], Any], usage: Usage | None) -> Handler:
    """A handler that still has something to do after its complete reply."""

    async def answer(request: Request) -> AsyncGenerator[HandlerEvent]:
        yield TextDelta("Hel")
        yield TextDelta("lo")
        message = reply("Hello", calls=[call("look", id="c")]).message
        yield MessageDone(message=message, usage=usage)
        await ends()

    return function_handler(answer, name="lingering")


async def test_complete_reply_is_kept_when_its_handler_is_cancelled() -> None:
    """What was received is counted and kept, the calls included."""
    scope = anyio.CancelScope()

    async def cancelled() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    usage = Usage(requests=1, input_tokens=7, cost=0.1)
    stream = Runner.run_streamed(Agent("A", model=lingering(cancelled, usage)), "Hi")
    with scope:
        await stream.drain()
    assert stream.result.usage == usage
    assert [message["role"] for message in stream.result.to_input_list()] == ["user", "assistant", "tool"]
    assert stream.result.warnings == ()


async def test_streamed_text_is_kept_when_the_stream_is_closed() -> None:
    """Half a reply is a message of its own, and says so."""
    stream = Runner.run_streamed(SCENES["answer"].agent(Stage()), "Hi")
    async with stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    assert stream.result.messages[-1] == {"role": "assistant", "content": "Hello"}
    assert stream.result.warnings == ("turn 1: the reply was cut off after 5 characters",)
    assert stream.result.usage == Usage(requests=1, estimated=True)
    assert stream.result.stop_reason == "unfinished"


async def test_partial_call_is_dropped_and_the_text_before_kept() -> None:
    """No tool runs and none is stored before its call is complete."""
    stage = Stage()
    stream = Runner.run_streamed(SCENES["one tool"].agent(stage), "Hi")
    async with stream:
        async for event in stream:
            if type(event).__name__ == "ToolCallDelta":
                break
    assert stage.done == []
    assert stream.result.messages[1:] == [{"role": "assistant", "content": "Let me see."}]


async def test_leaving_before_a_tool_runs_does_not_run_it() -> None:
    stage = Stage()
    async with Runner.run_streamed(SCENES["one tool"].agent(stage), "Hi") as stream:
        async for event in stream:
            if isinstance(event, ToolCalled):
                break
    assert stage.done == []
    assert stream.result.to_input_list()[-1].get("content") == "No result was recorded for this call."


async def test_a_stream_that_is_never_read_leaves_nothing() -> None:
    script = ScriptedHandler(["Hi"])
    stream = Runner.run_streamed(Agent("A", model=script), "Hello")
    await stream.aclose()
    assert script.requests == []
    assert stream.result.stop_reason == "unfinished"
    assert stream.result.to_input_list() == [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_abandoned_stream_is_closed_by_the_event_loop() -> None:
    """Code that breaks out of `stream_events()` without closing it still lets the connection go."""
    played = Played(SCENES["answer"])
    async for event in played.stream().stream_events():
        if isinstance(event, TextDelta):
            break
    gc.collect()
    await anyio.wait_all_tasks_blocked()
    assert played.open == []


async def test_leaving_at_a_handoff_closes_every_generator_at_once() -> None:
    """trio complains of generators that are left to the collector, and warnings are errors here."""
    async with Runner.run_streamed(SCENES["transfer"].agent(Stage()), "Hi") as stream:
        async for event in stream:
            if isinstance(event, HandoffOccurred):
                break
    gc.collect()
    assert stream.result.last_agent.name == "B"


async def test_a_cancelled_run_cancels_what_its_tools_started() -> None:
    """No task outlives the run."""
    scope = anyio.CancelScope()
    started: list[str] = []
    ended: list[str] = []

    async def child(name: str) -> None:
        started.append(name)
        if len(started) == 2:
            scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    @function_tool
    async def nest(name: str) -> str:
        """Start a task."""
        async with anyio.create_task_group() as group:
            group.start_soon(child, name)
        return "never"

    calls = [call("nest", {"name": "a"}), call("nest", {"name": "b"})]
    agent = Agent("A", model=ScriptedHandler([calls]), tools=[nest])
    with scope:
        await Runner.run(agent, "Hi")
    assert scope.cancelled_caught
    assert sorted(ended) == ["a", "b"]
