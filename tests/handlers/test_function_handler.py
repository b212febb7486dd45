"""`handler` and `function_handler`: an async function becomes a handler, once."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, Runner, function_handler, function_tool
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.function_handler import FunctionHandler, handler
from routelock.handlers.port import Handler, Priority, Request, family_of
from routelock.handoff_request import HandoffRequest
from routelock.history.messages import Message
from routelock.testing import ScriptedHandler, call
from routelock.usage import Usage

pytestmark = pytest.mark.anyio

REQUEST = Request(messages=[{"role": "user", "content": "Hi"}])
HELLO: Message = {"role": "assistant", "content": "Hello"}


async def events_of(handler: Handler) -> list[HandlerEvent]:
    async with aclosing(handler.stream(REQUEST)) as events:
        return [event async for event in events]


def returning(piece: Any) -> FunctionHandler:
    """A handler around a coroutine function that returns this."""

    async def piece_of(request: Request) -> Any:
        await anyio.lowlevel.checkpoint()
        return piece

    return function_handler(piece_of)


# -- what it is --


async def answer(request: Request) -> str:
    """Answer with a greeting."""
    return "Hello"


async def letters(request: Request) -> AsyncGenerator[str]:
    yield "Hel"
    yield "lo"


def test_defaults_are_the_function_name_and_custom_priority() -> None:
    """The docstring must not leak into the system prompt."""
    made = handler(answer)
    assert (made.name, made.family, family_of(made)) == ("answer", "answer", "answer")
    assert (made.priority, made.scope, made.prompt, made.expose) == (50, "all", None, False)
    assert made == handler()(answer) == function_handler(answer)


def test_given_options_are_kept() -> None:
    made = handler(
        name="desk",
        family="anthropic",
        priority=Priority.LOCAL,
        scope=["owner", "desk"],
        prompt="Greets.",
        expose=True,
    )(answer)
    assert (made.name, made.family, family_of(made)) == ("desk", "anthropic", "anthropic")
    assert (made.priority, tuple(made.scope), made.prompt, made.expose) == (
        10,
        ("owner", "desk"),
        "Greets.",
        True,
    )


def test_family_is_the_name_by_default() -> None:
    assert family_of(function_handler(answer, name="desk")) == "desk"


async def test_it_is_still_the_function() -> None:
    """Documentation, `inspect.signature` and unit tests find the function's own attributes."""
    made = handler(name="desk")(answer)
    assert made.__doc__ == "Answer with a greeting."
    assert (made.__name__, made.__qualname__, made.__module__) == ("answer", "answer", __name__)  # type: ignore[attr-defined]
    assert inspect.unwrap(made) is answer
    assert inspect.signature(made) == inspect.signature(answer)
    assert await made(REQUEST) == "Hello"
    assert [piece async for piece in handler(letters)(request=REQUEST)] == ["Hel", "lo"]


def test_it_cannot_be_changed() -> None:
    made = handler(answer)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.priority = 5  # type: ignore[misc]


async def test_another_can_be_made_of_it() -> None:
    other = dataclasses.replace(handler(answer), name="other", priority=1)
    assert (other.name, other.priority) == ("other", 1)
    assert await events_of(other) == [TextDelta("Hello"), MessageDone(message=HELLO)]


def test_handlers_can_be_compared_and_hashed() -> None:
    made = [handler(answer), handler(name="desk")(answer), handler(letters), handler(scope=["desk"])(answer)]
    assert len({*made, *(dataclasses.replace(each) for each in made)}) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, r"A handler's name must be text that is not empty, not ''"),
        ({"name": "  "}, r"must be text that is not empty, not '  '"),
        ({"name": 5}, "must be text that is not empty, not 5"),
        ({"family": 5}, "'answer': family must be text, not 5"),
        ({"priority": "high"}, "'answer': priority must be a whole number, lower first, not 'high'"),
        ({"priority": 1.5}, "not 1.5"),
        ({"priority": True}, "not True"),
        ({"priority": None}, "not None"),
        ({"scope": 5}, "Handler 'answer': scope must be .* not 5"),
        ({"scope": ""}, "scope must be"),
        ({"scope": None}, "scope must be"),
        ({"scope": ["admin", 5]}, "scope must be"),
        ({"scope": b"admin"}, "scope must be"),
        ({"prompt": 5}, "'answer': prompt must be text, not 5"),
        ({"prompt": len}, "prompt must be text, not <built-in"),
        ({"expose": "yes"}, "'answer': expose must be a bool, not 'yes'"),
        ({"priority": "high", "prompt": 5}, "priority must be .*; prompt must be"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Any, message: str) -> None:
    for make in (handler(**options), lambda function: function_handler(function, **options)):
        with pytest.raises(ConfigError, match=message):
            make(answer)


def test_a_handler_is_not_made_of_a_handler() -> None:
    with pytest.raises(ConfigError, match=r"'answer' is a handler already. dataclasses\.replace"):
        handler(name="desk")(handler(answer))
    with pytest.raises(ConfigError, match="cannot be called"):
        function_handler(ScriptedHandler([]))  # type: ignore[arg-type]


# -- methods --


class Desk:
    """Handlers in the body of a class, with all kinds of options."""

    def __init__(self, greeting: str) -> None:
        self.greeting = greeting

    @handler
    async def greet(self, request: Request) -> str:
        """Greet."""
        return self.greeting

    @handler(name="spell", priority=5, prompt="Spells.")
    async def in_letters(self, request: Request) -> AsyncGenerator[str]:
        for letter in self.greeting:
            yield letter

    @handler
    @staticmethod
    async def static(request: Request) -> str:
        return "Hello"


class Shop(Desk):
    """Inherits them."""


@pytest.mark.parametrize("owner", [Desk, Shop])
async def test_a_method_is_bound_to_its_instance(owner: type[Desk]) -> None:
    desk, other = owner("Hello"), owner("Bye")
    assert await events_of(desk.greet) == [TextDelta("Hello"), MessageDone(message=HELLO)]
    assert (await events_of(desk.in_letters))[-1] == MessageDone(message=HELLO)
    assert (await events_of(other.greet))[0] == TextDelta("Bye")
    assert await events_of(desk.static) == await events_of(owner.static)
    assert await desk.greet(REQUEST) == "Hello"
    assert await owner.greet(desk, REQUEST) == "Hello"


def test_bound_handlers_of_one_instance_are_equal() -> None:
    desk = Desk("Hello")
    assert desk.greet == desk.greet
    assert hash(desk.greet) == hash(desk.greet)
    assert desk.greet != Desk("Hello").greet
    assert desk.in_letters == dataclasses.replace(desk.in_letters)
    assert (desk.in_letters.name, desk.in_letters.priority, desk.in_letters.prompt) == ("spell", 5, "Spells.")
    assert desk.greet.__doc__ == "Greet."
    assert list(inspect.signature(desk.greet).parameters) == ["request"]


async def test_method_without_an_instance_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'greet' is a method: take the handler from an instance"):
        await events_of(Desk.greet)


# -- closing --


class Stream:
    """An iterator with ``close``, sync or async, as the vendors' clients have it."""

    def __init__(self, *, is_async: bool) -> None:
        self.is_async = is_async
        self.closed = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return {"content": "Hel"}

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
    """The connection behind it goes at once."""
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


class Connected:
    """Like openai's stream: the iterator is a separate generator, and only the stream has the connection."""

    def __init__(self, pieces: int = 99) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[str]:
        for _ in range(self.pieces):
            await anyio.lowlevel.checkpoint()
            yield "Hel"

    async def close(self) -> None:
        await anyio.sleep(0.001)  # as a connection waits for the other side
        self.closed = True


async def test_stream_with_a_separate_iterator_is_closed() -> None:
    stream, ended = Connected(), Connected(pieces=1)
    events = returning(stream).stream(REQUEST)
    await anext(events)
    await events.aclose()
    await events_of(returning(ended))
    assert (stream.closed, ended.closed) == (True, True)


async def test_a_connection_is_closed_when_the_run_is_cancelled() -> None:
    """A cancelled task may wait for nothing, and a connection has to."""
    stream = Connected()
    with anyio.CancelScope() as scope:
        async for _ in returning(stream).stream(REQUEST):
            scope.cancel()
    assert stream.closed


@pytest.mark.parametrize("leave", ["cancelled while it waits", "cancelled while it is read", "broken off"])
async def test_the_generator_is_closed_however_a_run_ends(leave: str) -> None:
    """Its finally runs before the run is over."""
    ended: list[str] = []

    async def forever(request: Request) -> AsyncGenerator[str]:
        try:
            yield "Hel"
            if leave == "cancelled while it waits":
                scope.cancel()
                await anyio.sleep_forever()
            while True:
                await anyio.lowlevel.checkpoint()
                yield "lo"
        finally:
            ended.append("closed")

    with anyio.CancelScope() as scope:
        async with Runner.run_streamed(Agent("A", model=handler(forever)), "Hi") as stream:
            async for event in stream:
                if event == TextDelta("lo") and leave == "cancelled while it is read":
                    scope.cancel()
                elif event == TextDelta("lo"):
                    break
    assert ended == ["closed"]


@pytest.mark.parametrize("before", [(), ("Hel",)])
async def test_an_error_of_the_functions_own_passes_untouched(before: tuple[str, ...]) -> None:
    error = LookupError("no such customer")

    async def broken(request: Request) -> AsyncGenerator[str]:
        for piece in before:
            yield piece
        raise error

    async def broken_at_once(request: Request) -> str:
        raise error

    for function in (broken, broken_at_once):
        with pytest.raises(LookupError) as caught:
            await events_of(handler(function))
        assert caught.value is error


async def test_function_is_called_when_the_stream_is_read() -> None:
    called: list[Request] = []

    async def answer(request: Request) -> str:
        called.append(request)
        return "Hello"

    events = function_handler(answer).stream(REQUEST)
    assert called == []
    await events.aclose()
    assert called == []


# -- in a run --


async def test_the_lowest_of_an_agents_functions_answers() -> None:
    """Functions, handlers and methods side by side."""
    agent = Agent("A", handlers=[letters, handler(priority=60)(answer), Desk("Bye").in_letters])
    assert (await Runner.run(agent, "Hi")).final_output == "Bye"
    assert (await Runner.run(Agent("A", handlers=[answer, letters]), "Hi")).last_handler == "answer"


@pytest.mark.parametrize("passed", [{"city": "Rome", "unknown": 1}, None])
async def test_input_of_a_handoff_request_reaches_the_function(passed: Any) -> None:
    """By name, and whole in the request."""
    seen: list[Any] = []

    @function_tool
    async def ask_the_guide() -> HandoffRequest:
        """Ask the guide."""
        return HandoffRequest("guide", input=passed)

    @handler
    async def guide(messages: Any, request: Request, city: str = "Oslo") -> AsyncGenerator[str]:
        seen.append((request.handoff_input, messages[-1]["role"]))
        yield f"Welcome to {city}."

    desk = ScriptedHandler([call("ask_the_guide")])
    agent = Agent("A", model=desk, handlers=[guide], tools=[ask_the_guide])
    result = await Runner.run(agent, "Hi")
    assert result.final_output == f"Welcome to {'Rome' if passed else 'Oslo'}."
    assert seen == [(passed, "tool")]


async def test_a_method_can_play_an_agent() -> None:
    for made, expected in ((Desk("Hello").greet, "Hello"), (Desk("Bye").in_letters, "Bye")):
        assert (await Runner.run(Agent("A", model=made), "Hi")).final_output == expected


async def test_a_function_can_play_an_agent() -> None:
    """A run with only a function: tools, then the answer, and usage marked as an estimate."""

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
