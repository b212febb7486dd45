"""`function_handler`: whatever an async function gives becomes events and one complete message."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import anyio.lowlevel
import pytest
from pydantic import BaseModel

from interlock import Agent, Runner, function_handler, function_tool
from interlock.errors import ConfigError, ConnectionFailed, HandlerError
from interlock.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from interlock.messages import Message, calls_of
from interlock.port import Handler, Request, family_of
from interlock.testing import call
from interlock.usage import Usage

pytestmark = pytest.mark.anyio

REQUEST = Request(messages=[{"role": "user", "content": "Hi"}])
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


async def events_of(handler: Handler) -> list[HandlerEvent]:
    async with aclosing(handler.stream(REQUEST)) as events:
        return [event async for event in events]


async def done_by(handler: Handler) -> MessageDone:
    *_, done = await events_of(handler)
    assert isinstance(done, MessageDone)
    return done


def giving(*pieces: Any) -> Handler:
    """A handler around an async generator of these pieces."""

    async def pieces_of(request: Request) -> AsyncGenerator[Any]:
        for piece in pieces:
            yield piece

    return function_handler(pieces_of)


def returning(piece: Any) -> Handler:
    """A handler around a coroutine function that returns this."""

    async def piece_of(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        return piece

    return function_handler(piece_of)


def chunk(**delta: Any) -> dict[str, Any]:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": delta}]}


def completion(message: Message) -> dict[str, Any]:
    return {
        "id": "1",
        "model": "m",
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": USAGE,
    }


HELLO: Message = {"role": "assistant", "content": "Hello"}


# -- what may be given --


async def test_text_is_the_reply() -> None:
    assert await events_of(returning("Hello")) == [TextDelta("Hello"), MessageDone(message=HELLO)]


async def test_pieces_of_text_are_joined() -> None:
    *deltas, done = await events_of(giving("Hel", "", "lo"))
    assert deltas == [TextDelta("Hel"), TextDelta(""), TextDelta("lo")]
    assert isinstance(done, MessageDone)
    assert done.message == HELLO


async def test_empty_text_is_an_empty_reply() -> None:
    assert (await done_by(giving(""))).message == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("make", [giving, returning])
async def test_a_message_dict_is_passed_on_as_it_is(make: Any) -> None:
    """Section 3: unknown keys survive, and no copy is made."""
    message = {**HELLO, "thinking_blocks": [{"type": "thinking", "signature": "s"}], "odd": None}
    assert (await done_by(make(message))).message is message


async def test_a_completion_dict_gives_message_usage_and_reason() -> None:
    done = await done_by(returning(completion(HELLO)))
    assert done.message == HELLO
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)
    assert (done.finish_reason, done.model, done.response_id) == ("stop", "m", "1")


async def test_chunk_dicts_are_assembled() -> None:
    function = {"name": "look", "arguments": "{"}
    handler = giving(
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo", tool_calls=[{"index": 0, "id": "c", "function": function}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        {"choices": [], "usage": USAGE},
    )
    *deltas, done = await events_of(handler)
    assert [delta.type for delta in deltas] == [
        "text_delta",
        "text_delta",
        "tool_call_delta",
        "tool_call_delta",
    ]
    assert isinstance(done, MessageDone)
    assert calls_of(done.message) == [call("look", "{}", id="c")]
    assert done.usage == Usage(requests=1, input_tokens=3, output_tokens=4)


class Reply(BaseModel):
    """Stands for the reply objects of openai and litellm, which are pydantic models."""

    id: str = "1"
    model: str = "m"
    choices: list[dict[str, Any]] = [{"message": HELLO, "finish_reason": "stop"}]
    usage: dict[str, int] | None = None


async def test_reply_objects_are_taken_as_dicts() -> None:
    assert (await done_by(returning(Reply()))).message == HELLO


async def test_events_are_passed_on() -> None:
    given = [ReasoningDelta("Hm"), TextDelta("Hello"), MessageDone(message=HELLO)]
    assert await events_of(giving(*given)) == given


async def test_events_without_the_complete_message_are_put_together() -> None:
    handler = giving(
        ReasoningDelta("Hm, "),
        ReasoningDelta("hm."),
        TextDelta("Hello"),
        ToolCallDelta(0, "a", "look", '{"at": '),
        ToolCallDelta(0, "a", "look", "1}"),
        ToolCallDelta(1, "b", "look", "{}"),
    )
    assert (await done_by(handler)).message == {
        **HELLO,
        "reasoning_content": "Hm, hm.",
        "tool_calls": [call("look", {"at": 1}, id="a"), call("look", "{}", id="b")],
    }


async def test_text_and_chunks_may_be_mixed() -> None:
    """Nothing that was shown is missing from the message."""
    handler = giving("He", chunk(content="ll"), TextDelta("o"))
    assert (await done_by(handler)).message == HELLO


async def test_a_complete_message_wins_over_the_pieces_before_it() -> None:
    *_, done = await events_of(giving("Hel", "lo", HELLO))
    assert isinstance(done, MessageDone)
    assert done.message is HELLO


async def test_a_failed_attempt_voids_the_pieces_before_it() -> None:
    failed = AttemptFailed(error=ConnectionFailed("x"), attempt=1, delay=0)
    assert (await done_by(giving("Hallo", failed, "Hello"))).message == HELLO


async def test_arguments_that_are_objects_become_json_text() -> None:
    """Ollama's own client gives objects, and no ids; every provider takes text."""
    made = {"function": {"name": "look", "arguments": {"at": 1}}}
    done = await done_by(returning({"role": "assistant", "content": "", "tool_calls": [made]}))
    assert calls_of(done.message) == [call("look", {"at": 1})]


async def test_a_call_without_a_function_is_left_for_the_run_to_refuse() -> None:
    message = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}
    assert (await done_by(returning(message))).message is message


async def test_a_stream_that_is_returned_is_read() -> None:
    """``return await client.chat.completions.create(stream=True)`` is all a handler needs."""

    async def chunks() -> AsyncGenerator[Any]:
        yield chunk(content="Hello")

    assert (await done_by(returning(chunks()))).message == HELLO


# -- what may not --


@pytest.mark.parametrize("odd", [None, 5, b"Hello", ["Hello"], {"answer": 5}, SimpleNamespace(choices=[])])
@pytest.mark.parametrize("make", [giving, returning])
async def test_anything_else_is_refused_with_what_there_is(make: Any, odd: Any) -> None:
    with pytest.raises(HandlerError, match=r"Handler 'piece.*' gave .*; give text, a message"):
        await events_of(make(odd))


async def test_a_generator_that_gives_nothing_is_named() -> None:
    with pytest.raises(HandlerError, match="'pieces_of' ended without a reply"):
        await events_of(giving())


@pytest.mark.parametrize("function", [lambda request: "Hello", len, 5, "gpt", Reply])
def test_what_is_not_async_is_refused_when_it_is_declared(function: Any) -> None:
    with pytest.raises(ConfigError, match="must be an async function or async generator"):
        function_handler(function)


# -- which kinds of functions --


class Callable:
    """An object with an async ``__call__``."""

    async def __call__(self, request: Request) -> str:
        return "Hello"

    async def method(self, request: Request) -> str:
        return "Hello"

    async def stream(self, request: Request) -> AsyncGenerator[str]:
        yield "Hello"


async def with_prefix(prefix: str, request: Request) -> str:
    return prefix + "lo"


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(request: Request) -> Any:
        return function(request)

    return wrapper


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Callable(), "Callable"),
        (Callable().method, "method"),
        (Callable().stream, "stream"),
        (functools.partial(with_prefix, "Hel"), "with_prefix"),
        (logged(Callable().method), "method"),
    ],
)
async def test_methods_partials_objects_and_wrappers_will_do(function: Any, name: str) -> None:
    handler = function_handler(function)
    assert handler.name == name
    assert (await done_by(handler)).message == HELLO


def test_name_and_family_can_be_given() -> None:
    plain = function_handler(Callable())
    named = function_handler(Callable(), name="desk", family="anthropic")
    assert (plain.name, family_of(plain)) == ("Callable", "Callable")
    assert (named.name, family_of(named)) == ("desk", "anthropic")
    assert family_of(function_handler(Callable(), name="desk")) == "desk"


# -- closing --


class Stream:
    """An iterator with ``close``, sync or async, as the vendors' clients have it."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return chunk(content="Hel")

    def close(self) -> Any:
        self.closed = True
        return self._aclose() if self.is_async else None

    async def _aclose(self) -> None:
        await anyio.lowlevel.checkpoint()


class Endless:
    """An iterator that cannot be closed."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return "Hel"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_returned_stream_is_closed_when_the_reader_leaves(is_async: bool) -> None:
    """Pain 11: the connection behind it goes at once."""
    stream = Stream(is_async=is_async)
    events = returning(stream).stream(REQUEST)
    assert await anext(events) == TextDelta("Hel")
    await events.aclose()
    assert stream.closed


async def test_a_stream_that_cannot_be_closed_is_left_alone() -> None:
    events = returning(Endless()).stream(REQUEST)
    assert await anext(events) == TextDelta("Hel")
    await events.aclose()


async def test_a_generator_is_closed_when_the_reader_leaves() -> None:
    ended: list[str] = []

    async def forever(request: Request) -> AsyncGenerator[str]:
        try:
            while True:
                yield "Hel"
        finally:
            ended.append("closed")

    events = function_handler(forever).stream(REQUEST)
    await anext(events)
    await events.aclose()
    assert ended == ["closed"]


async def test_nothing_is_called_before_the_stream_is_read() -> None:
    called: list[Request] = []

    async def answer(request: Request) -> str:
        called.append(request)
        return "Hello"

    events = function_handler(answer).stream(REQUEST)
    assert called == []
    await events.aclose()
    assert called == []


# -- in a run --


async def test_a_function_can_play_an_agent() -> None:
    """A run with nothing but a function: tools, then the answer, and usage that says it is a guess."""

    @function_tool
    async def look(at: int) -> str:
        """Look."""
        return f"seen {at}"

    async def model(request: Request) -> Any:
        if request.messages[-1]["role"] == "user":
            return {"role": "assistant", "content": None, "tool_calls": [call("look", {"at": 1})]}
        return f"I saw: {request.messages[-1].get('content')}"

    result = await Runner.run(Agent("A", model=function_handler(model), tools=[look]), "Hi")
    assert result.final_output == "I saw: seen 1"
    assert result.usage == Usage(requests=2, estimated=True)
