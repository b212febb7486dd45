"""One loop: streamed or not, and whatever kind of handler answers, a run is the same."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes import SCENES, Kind, Recorder, Scene, Stage, facts
from scenes_of_outcomes import MORE
from thoroughness import examples

from routelock import Agent, Runner, RunResult, RunStream, function_handler, function_tool
from routelock.errors import RoutelockError
from routelock.handlers.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from routelock.handlers.port import Handler, Request
from routelock.history.messages import calls_of, text_of
from routelock.run.events import (
    AgentUpdated,
    HandoffCompleted,
    HandoffFailed,
    HandoffOccurred,
    HandoffRequested,
    NestedEvent,
    RunDone,
    ToolCalled,
    ToolOutput,
)
from routelock.run.start import start
from routelock.testing import ScriptedHandler, call, reply

pytestmark = pytest.mark.anyio

Cut = Callable[[str], Iterable[str]]
DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)
ALL = {**SCENES, **MORE}


def pairs(text: str) -> list[str]:
    return [text[index : index + 2] for index in range(0, len(text), 2)]


async def complete(handler: ScriptedHandler, request: Request) -> MessageDone:
    async with aclosing(handler.stream(replace(request, stream=False))) as events:
        (done,) = [event async for event in events]
    assert isinstance(done, MessageDone)
    return done


def completion(done: MessageDone) -> dict[str, Any]:
    """Write a reply as a chat.completion dict."""
    assert done.usage is not None
    return {
        "id": done.response_id,
        "object": "chat.completion",
        "model": done.model,
        "choices": [{"index": 0, "message": done.message, "finish_reason": done.finish_reason}],
        "usage": {
            "prompt_tokens": done.usage.input_tokens,
            "completion_tokens": done.usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": done.usage.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": done.usage.reasoning_tokens},
        },
    }


def deltas(done: MessageDone, cut: Cut) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {**done.message}
    yield {"role": "assistant", "content": ""}
    for key in [key for key in message if key not in ("role", "content", "tool_calls")]:
        if isinstance(message[key], str):
            yield from ({key: piece} for piece in cut(message[key]))
        else:
            yield {key: message[key]}
    yield from ({"content": piece} for piece in cut(text_of(done.message)))
    for index, made in enumerate(calls_of(done.message)):
        function = made["function"]
        yield {"tool_calls": [{**made, "index": index, "function": {**function, "arguments": ""}}]}
        for piece in cut(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def chunks(done: MessageDone, cut: Cut) -> Iterator[dict[str, Any]]:
    """Write a reply as chat.completion.chunk dicts, its texts cut up."""
    whole = completion(done)
    common = {"id": whole["id"], "object": "chat.completion.chunk", "model": whole["model"]}
    for delta in deltas(done, cut):
        yield {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": done.finish_reason}]}
    yield {**common, "choices": [], "usage": whole["usage"]}


def coroutine(script: ScriptedHandler) -> Handler:
    async def answer(request: Request) -> MessageDone:
        return await complete(script, request)

    return function_handler(answer, name=script.name)


def async_generator(script: ScriptedHandler) -> Handler:
    async def answer(request: Request) -> AsyncGenerator[HandlerEvent]:
        async with aclosing(script.stream(replace(request, stream=True))) as events:
            async for event in events:
                await anyio.lowlevel.checkpoint()
                yield event

    return function_handler(answer, name=script.name)


def completion_dicts(script: ScriptedHandler) -> Handler:
    async def answer(request: Request) -> dict[str, Any]:
        return completion(await complete(script, request))

    return function_handler(answer, name=script.name)


def chunk_dicts(cut: Cut) -> Kind:
    def kind(script: ScriptedHandler) -> Handler:
        async def answer(request: Request) -> AsyncGenerator[dict[str, Any]]:
            for chunk in chunks(await complete(script, request), cut):
                yield chunk

        return function_handler(answer, name=script.name)

    return kind


KINDS: dict[str, Kind] = {
    "scripted": lambda script: script,
    "coroutine": coroutine,
    "async generator": async_generator,
    "completion dicts": completion_dicts,
    "chunk dicts": chunk_dicts(pairs),
    "chunk dicts letter by letter": chunk_dicts(list),
}


NOT_COMPARED = (*DELTAS, NestedEvent, RunDone)


async def play(scene: Scene, kind: Kind, *, stream: bool) -> dict[str, Any]:
    """Play a scene and return all that must not depend on how it was played."""
    stage, hooks, events = Stage(kind=kind), Recorder(), list[Any]()
    agent = scene.agent(stage)
    run = start(agent, "Hi", None, scene.max_turns, hooks, scene.settings(), stream=stream)
    error: RoutelockError | None = None
    running = RunStream(run)
    try:
        async for event in running:
            events.append(event)
    except RoutelockError as raised:
        error = raised
    assert error is None or everything(error.result) == everything(running.result)
    return {
        **everything(running.result),
        "hooks": in_order(hooks.calls),
        "events": [repr(each) for each in events if stream and not isinstance(each, NOT_COMPARED)],
        "side effects": sorted(stage.done),
        "error": repr(error),
    }


def everything(result: RunResult[Any]) -> dict[str, Any]:
    """What two results must share, and those of the agents that were asked within them."""
    return {
        **facts(result),
        "pending": result.pending,
        "handler": (result.last_handler, result.usage_by_handler),
        "nested": {call_id: everything(inner) for call_id, inner in result.nested.items()},
    }


def in_order(hooks: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sort what happens at the same time: trio starts tasks in any order."""
    groups = itertools.groupby(hooks, lambda hook: hook[0].startswith("tool"))
    return [hook for at_once, group in groups for hook in (sorted(group) if at_once else group)]


WAYS = [*itertools.product(SCENES, KINDS), *itertools.product(MORE, ["scripted", "chunk dicts"])]


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(("scene", "kind"), WAYS)
async def test_a_run_is_the_same_however_it_is_played(scene: str, kind: str, stream: bool) -> None:
    """Equal items, output, usage, errors, handoffs, agent path, hooks, events."""
    plain, streamed = [await play(ALL[scene], KINDS["scripted"], stream=each) for each in (False, True)]
    assert plain == {**streamed, "events": []}
    assert await play(ALL[scene], KINDS[kind], stream=stream) == (streamed if stream else plain)


@pytest.mark.parametrize("scene", ALL)
async def test_runner_run_returns_or_raises_what_the_stream_shows(scene: str) -> None:
    """`Runner.run` drains the same loop."""
    played = ALL[scene]
    expected = await play(played, KINDS["scripted"], stream=True)
    try:
        result = await Runner.run(
            played.agent(Stage()), "Hi", max_turns=played.max_turns, run_config=played.settings()
        )
    except RoutelockError as error:
        result = error.result
    assert everything(result).items() <= expected.items()


@given(cuts=st.lists(st.lists(st.floats(0, 1), max_size=6), min_size=1, max_size=8))
@examples(10)
@pytest.mark.parametrize("scene", ["one tool", "transfer", "structured", "siblings"])
async def test_where_a_stream_is_cut_changes_nothing(scene: str, cuts: list[list[float]]) -> None:
    """Fuzzed chunk boundaries, from one letter to the whole text."""
    more = itertools.cycle(cuts)  # drawn beforehand: an event loop hides what drawing raises

    def cut(text: str) -> list[str]:
        ends = [0, *sorted(round(share * len(text)) for share in next(more)), len(text)]
        return [text[begin:end] for begin, end in itertools.pairwise(ends)]

    expected = await play(SCENES[scene], KINDS["scripted"], stream=True)
    assert await play(SCENES[scene], chunk_dicts(cut), stream=True) == expected


@function_tool
async def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.pairwise
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("text", [None, "", "  \n", "Wait."])
@pytest.mark.parametrize("finish", ["stop", "tool_calls", "length", "content_filter", None, "nonsense"])
async def test_calls_decide_and_never_the_finish_reason(
    finish: str | None, text: str | None, stream: bool
) -> None:
    """A wrong finish reason or text before a call neither ends a run nor keeps it going."""
    with_calls = MessageDone(
        message={"role": "assistant", "content": text, "tool_calls": [call("look", id="c")]},
        finish_reason=finish,
    )
    last = MessageDone(message={"role": "assistant", "content": "Done."}, finish_reason=finish)
    agent = Agent("A", model=ScriptedHandler([with_calls, last]), tools=[look])
    result = await (Runner.run_streamed(agent, "Hi").drain() if stream else Runner.run(agent, "Hi"))
    assert result.final_output == "Done."
    assert [item.kind for item in result.new_items] == ["model", "tool", "model"]


async def test_the_events_of_a_handoff_come_in_order() -> None:
    """The target's deltas continue in the same iterator."""
    target = Agent("B", model=ScriptedHandler(["B here."]))
    agent = Agent("A", model=ScriptedHandler([call("transfer_to_b")]), handoffs=[target])
    kinds = [type(event) async for event in Runner.run_streamed(agent, "Hi")]
    assert kinds == [
        AgentUpdated,
        ToolCallDelta,
        MessageDone,
        HandoffRequested,
        HandoffOccurred,
        AgentUpdated,
        TextDelta,
        TextDelta,
        MessageDone,
        HandoffCompleted,
        RunDone,
    ]


async def test_the_events_of_a_turn_come_in_order() -> None:
    """Tools, then what was not taken, then the transfer."""
    names = [type(event) async for event in Runner.run_streamed(SCENES["transfer"].agent(Stage()), "Hi")]
    turn = names[names.index(MessageDone) + 1 : names.index(AgentUpdated, 1)]
    assert turn == [ToolCalled, ToolOutput, HandoffFailed, HandoffRequested, HandoffOccurred]


async def test_a_retried_call_says_that_it_is_made_again() -> None:
    """A reader of the stream learns that the text is void."""
    scene = SCENES["retried"]
    stream = Runner.run_streamed(scene.agent(Stage()), "Hi", run_config=scene.settings())
    assert [event.attempt async for event in stream if isinstance(event, AttemptFailed)] == [1]


async def test_deltas_make_up_the_reply() -> None:
    """What was shown piece by piece is the message, letter for letter."""
    script = [reply("Hello  there.\n", calls=[call("look")], reasoning="Hm, hm."), "Bye."]
    agent = Agent("A", model=ScriptedHandler(script), tools=[look])
    text, reasoning, arguments = "", "", ""
    async for event in (stream := Runner.run_streamed(agent, "Hi")):
        match event:
            case TextDelta(text=piece):
                text += piece
            case ReasoningDelta(text=piece):
                reasoning += piece
            case ToolCallDelta(arguments=piece):
                arguments += piece
            case _:
                pass
    assert text == "".join(text_of(done.message) for done in stream.result.raw_replies)
    assert (reasoning, arguments) == ("Hm, hm.", "{}")
