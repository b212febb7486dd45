"""Everything that changes is in one run's state: runs cannot see one another, and each starts afresh."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import SCENES, Recorder, Scene, Stage, facts
from thoroughness import examples

from routelock import Agent, Retry, RunConfig, Runner, RunStream, function_handler, function_tool, handoff
from routelock._callables import callback_errors
from routelock.agents.checked_graph import find_agent
from routelock.context import ToolContext
from routelock.errors import (
    CallbackError,
    ConfigError,
    ConnectionFailed,
    InvalidRequest,
    RoutelockError,
    ToolError,
)
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.history.messages import Message
from routelock.run.start import input_items
from routelock.testing import ScriptedHandler, call, reply
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

USER: Message = {"role": "user", "content": "Again."}

# -- reset --


def desk(first: ScriptedHandler) -> Agent[Any]:
    """An agent that can hand over to an agent, to a handler and to a name; ``first`` plays it."""
    target = Agent("B", "You are B.", model=ScriptedHandler(["B here."] * 9))
    voice = ScriptedHandler(["The voice."] * 9, name="voice")
    handoffs = [target, voice, handoff("C", preserve_context=False)]
    return Agent("A", "You are A.", model=first, handoffs=handoffs)


def third() -> RunConfig:
    return RunConfig(agents=[Agent("C", model=ScriptedHandler([InvalidRequest("C cannot")] * 9))])


async def finish(stream: RunStream) -> None:
    await stream.drain()


async def leave(stream: RunStream) -> None:
    async with stream:
        async for event in stream:
            if event.type in ("text_delta", "handoff_occurred"):
                return


async def abandon(stream: RunStream) -> None:
    """Read two events and never come back, until the test is over."""
    events = aiter(stream)
    await anext(events)
    await anext(events)


async def cancel(stream: RunStream) -> None:
    with anyio.CancelScope() as scope:
        async for event in stream:
            if event.type == "handoff_occurred":
                scope.cancel()
            await anyio.lowlevel.checkpoint()
    await stream.aclose()


ENDINGS: dict[str, Callable[[RunStream], Any]] = {
    "finish": finish,
    "leave": leave,
    "abandon": abandon,
    "cancel": cancel,
}
REPLIES = {
    "answer": "Hi.",
    "to B": call("transfer_to_b"),
    "to voice": call("transfer_to_voice"),
    "to C": call("transfer_to_c"),
    "broken": InvalidRequest("no"),
    "mistake": call("nothing"),
}


ways = st.tuples(st.sampled_from(sorted(REPLIES)), st.sampled_from(sorted(ENDINGS)))


@given(runs=st.lists(ways, max_size=6))
@examples(25)
async def test_every_run_starts_at_the_default_however_others_ended(runs: list[tuple[str, str]]) -> None:
    """After an answer, a transfer, an error, a cancellation or an abandoned stream."""
    script = ScriptedHandler([])
    agent, config = desk(script), third()
    streams: list[RunStream] = []
    for kind, ending in runs:
        script.replies.append(REPLIES[kind])
        if kind == "mistake":
            script.replies.append("Sorry.")
        streams.append(Runner.run_streamed(agent, "Hi", run_config=config))
        with suppress(RoutelockError):
            await ENDINGS[ending](streams[-1])
        del script.replies[len(script.requests) :]
    before = len(script.requests)
    script.replies.append("Default.")
    result = await Runner.run(agent, "Hi", run_config=config)
    for stream in streams:
        await stream.aclose()
    assert result.final_output == "Default."
    assert [(made.agent, made.handler) for made in result.calls] == [("A", "scripted")]
    fresh = script.requests[before]
    assert fresh.messages == ({"role": "system", "content": "You are A."}, {"role": "user", "content": "Hi"})
    assert [tool["function"]["name"] for tool in fresh.tools] == [
        "transfer_to_b",
        "transfer_to_voice",
        "transfer_to_c",
    ]
    assert (fresh.turn, result.usage.requests, result.context.shared_memory) == (1, 1, {})


async def test_a_handler_lasts_for_its_run_only() -> None:
    """A transfer to a handler holds until the run ends; the next one asks the default again."""
    script = ScriptedHandler([call("transfer_to_voice"), "Default."])
    agent = desk(script)
    first = await Runner.run(agent, "Hi", run_config=third())
    second = await Runner.run(agent, [*first.to_input_list(), USER], run_config=third())
    assert (first.final_output, second.final_output) == ("The voice.", "Default.")


async def test_staying_with_an_agent_is_the_callers_choice() -> None:
    """Pass ``last_agent`` to stay: it has all its tools and handoffs."""
    script = ScriptedHandler([call("transfer_to_b")])
    first = await Runner.run(desk(script), "Hi", run_config=third())
    second = await Runner.run(first.last_agent, [*first.to_input_list(), USER])
    assert second.last_agent.name == "B"
    assert second.calls[0].messages[0] == {"role": "system", "content": "You are B."}


# -- interleaved runs --


@given(order=st.lists(st.booleans(), max_size=40), scenes=st.tuples(*[st.sampled_from(sorted(SCENES))] * 2))
@examples(25)
async def test_two_interleaved_runs_are_independent(order: list[bool], scenes: tuple[str, str]) -> None:
    """Each gives what it gives alone, whichever is moved on when."""
    alone = [await step_by_step([scene], []) for scene in scenes]
    together = await step_by_step(list(scenes), order)
    assert together == [only for (only,) in alone]


async def step_by_step(scenes: list[str], order: list[bool]) -> list[dict[str, Any]]:
    streams = [open_stream(SCENES[name]) for name in scenes]
    for second in order:
        await step(streams[second])
    for stream in streams:
        while await step(stream):
            pass
    return [facts(stream.result) for stream in streams]


def open_stream(scene: Scene) -> RunStream:
    return Runner.run_streamed(
        scene.agent(Stage()), "Hi", max_turns=scene.max_turns, run_config=scene.settings()
    )


async def step(stream: RunStream) -> bool:
    try:
        await anext(aiter(stream))
    except (StopAsyncIteration, RoutelockError):
        return False
    return True


def echoing() -> Agent[Any]:
    """One agent whose tool, memory, usage and transfer all follow from the user's text."""

    @function_tool
    async def remember(context: ToolContext[str], text: str) -> str:
        """Remember."""
        for _ in range(len(text) % 5):
            await anyio.lowlevel.checkpoint()
        seen = context.shared_memory.setdefault("seen", [])
        seen.append(f"{context.context}:{text}")
        return ",".join(seen)

    async def model(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        name = str(request.messages[-1 if request.agent == "B" else 0].get("content"))
        last = request.messages[-1]
        usage = Usage(requests=1, input_tokens=len(name))
        if request.agent == "B":
            return f"{name} got {request.messages[-2].get('content')}"
        if last["role"] == "user":
            return reply(calls=[call("remember", {"text": name})], usage=usage).message
        if last.get("content") == f"{name}:{name}":
            return {"role": "assistant", "content": None, "tool_calls": [call("transfer_to_b")]}
        raise AssertionError(last)

    played = function_handler(model)
    return Agent("A", model=played, tools=[remember], handoffs=[Agent("B", model=played)])


async def test_hundred_concurrent_runs_are_independent() -> None:
    """Shared memory, context, handoffs and transcripts belong to one run each."""
    agent = echoing()
    results: dict[str, Any] = {}

    async def one(name: str) -> None:
        results[name] = await Runner.run(agent, name, context=name)

    async with anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(one, f"user-{'x' * (number % 7)}{number}")
    assert len(results) == 100
    for name, result in results.items():
        assert result.final_output.startswith(f"{name} got Note of the runtime")
        assert result.final_output.count(name) == 4
        assert result.context.shared_memory == {"seen": [f"{name}:{name}"]}
        assert result.last_agent.name == "B"
        others = results.keys() - {name}
        assert not any(f'"{other}"' in str(result.messages) for other in others)


# -- nothing that was passed in changes --


@pytest.mark.parametrize("scene", SCENES)
async def test_inputs_stay_as_they_were(scene: str) -> None:
    """Agents, messages, settings and context are read, never written."""
    played = SCENES[scene]
    agent = played.agent(Stage())
    messages: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [call("add", {"a": 1}, id="x")]},
        USER,
    ]
    context = {"name": "Ada", "list": [1, 2]}
    config = played.settings(model_settings={"temperature": 0, "tool_choice": "auto", "stop": ["x"]})
    before = copy.deepcopy((messages, context, config.model_settings, vars_of(agent)))
    with suppress(RoutelockError):
        await Runner.run(agent, messages, context=context, run_config=config, max_turns=played.max_turns)
    assert (messages, context, config.model_settings, vars_of(agent)) == before


def vars_of(agent: Agent[Any]) -> list[Any]:
    """What an agent and those behind it declare, without what is worked out once from that."""
    plain = ("name", "instructions", "model_settings", "handoff_description", "output_type")
    return [
        [
            {key: getattr(each, key) for key in plain},
            [tool.spec for tool in each.all_tools],
            len(each.handoffs),
        ]
        for each in agent.graph.values()
    ]


async def test_edits_of_returned_lists_do_not_change_the_result() -> None:
    """`to_input_list` gives a list of its own each time."""
    result = await Runner.run(SCENES["one tool"].agent(Stage()), "Hi")
    result.to_input_list().append(USER)
    result.messages.clear()
    assert len(result.to_input_list()) == len(result.messages) == 4


# -- the state's own rules --


async def test_turns_count_over_all_agents() -> None:
    hooks = Recorder()
    await Runner.run(SCENES["chain"].agent(Stage()), "Hi", hooks=hooks)
    starts = [(who, turn) for name, who, *rest in hooks.calls if name == "llm_start" for turn in rest]
    assert starts == [("A", "1"), ("A", "2"), ("B", "3"), ("B", "4"), ("A", "5"), ("A", "6")]


def test_an_input_message_remembers_which_family_wrote_it() -> None:
    """The private key of `to_input_list` becomes the item's origin, and leaves the message."""
    written: Any = {"role": "assistant", "content": "Hi", "thinking_blocks": [1], "_origin": "anthropic"}
    plain: Message = {"role": "user", "content": "Hi"}
    first, second = input_items([plain, written])
    assert (first.id, first.kind, first.origin, second.id) == (0, "input", None, 1)
    assert first.message is plain
    assert second.origin == "anthropic"
    assert second.message == {"role": "assistant", "content": "Hi", "thinking_blocks": [1]}
    assert "_origin" in written


def test_exception_of_a_callback_names_the_callback() -> None:
    with (
        pytest.raises(CallbackError, match="The filter raised ValueError: x") as caught,
        callback_errors("The filter"),
    ):
        raise ValueError("x")
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_of_routelock_passes_through_the_apps_code() -> None:
    with pytest.raises(ToolError), callback_errors("The filter"):
        raise ToolError("x")


def test_unknown_agent_error_lists_known_agents() -> None:
    agent = Agent("B", model=ScriptedHandler([]))
    assert find_agent({"B": agent}, "B", "A") is agent
    with pytest.raises(ConfigError, match=r"'A' hands off to 'C', which is no agent of this run\. Known: B"):
        find_agent({"B": agent}, "C", "A")


async def test_usage_of_a_call_that_fails_later_is_counted() -> None:
    """Retried attempts are counted with what they consumed."""
    counted = MessageDone(message={"role": "assistant", "content": "Hi"}, usage=Usage(1, 9, 9))

    async def now(seconds: float) -> None: ...

    model = ScriptedHandler([[counted, ConnectionFailed("cut")], "Hello."])
    config = RunConfig(retry=Retry(mid_stream=True, sleep=now))
    result = await Runner.run(Agent("A", model=model), "Hi", run_config=config)
    assert (result.usage.requests, result.usage.input_tokens) == (2, 19)


async def test_a_call_that_was_refused_costs_nothing() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await Runner.run(Agent("A", model=ScriptedHandler([InvalidRequest("no")])), "Hi")
    assert caught.value.result.usage == Usage(requests=1, cost=0.0)
