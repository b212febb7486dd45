"""Which functions can be handlers, and what they are called with: decided once, when they are declared."""

from __future__ import annotations

import functools
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from contextlib import aclosing
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Optional, Protocol, TypeVar

import pydantic
import pytest

from routelock import Request, RunContext, ToolContext, function_handler
from routelock.errors import ConfigError
from routelock.handlers.events import MessageDone

if TYPE_CHECKING:
    import collections.abc as abc
    import typing

    import routelock as il
    from routelock import Request as Ask

    State = Any

pytestmark = pytest.mark.anyio

CONTEXT = RunContext(context="the app's", run_id="r")
REQUEST = Request(
    messages=[{"role": "user", "content": "Hi"}],
    tools=[{"type": "function", "function": {"name": "look"}}],
    settings={"temperature": 0},
    context=CONTEXT,
    handoff_input={"city": "Rome", "request": "mine", "self": "me", "prefix": "x", 5: "five"},
)
T = TypeVar("T")


async def reply_of(function: Any, request: Request = REQUEST) -> Any:
    async with aclosing(function_handler(function).stream(request)) as events:
        *_, done = [event async for event in events]
    assert isinstance(done, MessageDone)
    return done.message.get("content")


async def seen_by(function: Callable[..., Any], request: Request = REQUEST) -> Any:
    """What `function` returns when it is called as a handler would be."""
    seen: list[Any] = []

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> str:
        seen.append(await function(*args, **kwargs))
        return ""

    await reply_of(wrapper, request)
    return seen[0]


# -- which callables --


async def words() -> AsyncGenerator[str]:
    yield "Hel"
    yield "lo"


async def coroutine(request: Request) -> str:
    return "Hello"


async def generator(request: Request) -> AsyncGenerator[str]:
    async for word in words():
        yield word


async def returns_a_generator(request: Request) -> AsyncIterator[str]:
    return words()


async def prefixed(prefix: str, request: Request) -> str:
    return prefix + "lo"


async def prefixed_generator(prefix: str, request: Request) -> AsyncGenerator[str]:
    yield prefix
    yield "lo"


class Desk:
    """An object whose call is a coroutine, and its methods."""

    async def __call__(self, request: Request) -> str:
        return "Hello"

    async def coroutine(self, request: Request) -> str:
        return "Hello"

    async def generator(self, request: Request) -> AsyncGenerator[str]:
        async for word in words():
            yield word

    @classmethod
    async def of_class(cls, request: Request) -> str:
        return "Hello"

    @staticmethod
    async def static(request: Request) -> str:
        return "Hello"


class Teller:
    """An object whose call is a generator."""

    async def __call__(self, request: Request) -> AsyncGenerator[str]:
        async for word in words():
            yield word


def passing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Decorated:
    """An object whose call is wrapped."""

    __call__ = passing_on(Desk.coroutine)


def in_async(function: Any) -> Any:
    """An async wrapper around a sync function, which it may well call in a thread."""

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class AroundObject:
    """A decorator that is a class."""

    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]


class Answer:
    """A class whose objects are the reply."""

    def __init__(self, request: Request) -> None:
        self.left = ["lo", "Hel"]

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> str:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        generator,
        returns_a_generator,
        functools.partial(prefixed, "Hel"),
        functools.partial(prefixed, prefix="Hel"),
        functools.partial(functools.partial(prefixed_generator), "Hel"),
        functools.partial(Desk().coroutine),
        functools.partial(Desk()),
        Desk(),
        Teller(),
        Decorated(),
        Desk().coroutine,
        Desk().generator,
        Desk.of_class,
        Desk.static,
        staticmethod(coroutine),
        passing_on(coroutine),
        passing_on(generator),
        passing_on(passing_on(Desk().generator)),
        passing_on(functools.partial(prefixed, "Hel")),
        functools.partial(passing_on(prefixed), "Hel"),
        in_async(lambda request: "Hello"),
        AroundObject(coroutine),
        Answer,
    ],
)
async def test_whatever_is_async_is_taken(function: Any) -> None:
    """Functions, methods, partials, callable objects, and wrappers of any of them."""
    assert await reply_of(function) == "Hello"


def says_iterator(request: Request) -> AsyncIterator[str]:
    return words()


def says_generator(request: Request) -> AsyncGenerator[str, None]:
    return words()


def says_iterable(request: Request) -> AsyncIterable[str]:
    return words()


def says_awaitable(request: Request) -> Awaitable[str]:
    return coroutine(request)


def says_coroutine(request: Request) -> Coroutine[Any, Any, str]:
    return coroutine(request)


def says_either(request: Request) -> AsyncIterator[str] | dict[str, Any]:
    return {"role": "assistant", "content": "Hello"}


def says_maybe(request: Request) -> Annotated[Optional[AsyncIterator[str]], "or nothing"]:  # noqa: UP045
    return words()


def says_a_class(request: Request) -> Answer:
    return Answer(request)


def says_for_type_checkers(request: Request) -> abc.AsyncIterator[State]:
    return words()


def says_maybe_for_type_checkers(request: Request) -> typing.Optional[abc.AsyncIterator[State]]:  # noqa: UP045
    return words()


def says_either_for_type_checkers(request: Request) -> dict[str, State] | abc.Awaitable[State]:
    return coroutine(request)


class Forwarding:
    """An object whose ``__call__`` has an async return annotation."""

    def __call__(self, request: Request) -> AsyncIterator[str]:
        return words()

    def method(self, request: Request) -> AsyncIterator[str]:
        return words()


@pytest.mark.parametrize(
    "function",
    [
        says_iterator,
        says_generator,
        says_iterable,
        says_awaitable,
        says_coroutine,
        says_either,
        says_maybe,
        says_a_class,
        says_for_type_checkers,
        says_maybe_for_type_checkers,
        says_either_for_type_checkers,
        functools.partial(says_iterator),
        Forwarding(),
        Forwarding().method,
    ],
)
async def test_sync_function_with_async_annotation_is_accepted(function: Any) -> None:
    """Such a call cannot block, and its result is read like any other."""
    assert await reply_of(function) == "Hello"


def sync(request: Request) -> str:
    return "Hello"


def sync_generator(request: Request) -> Any:
    yield "Hello"


class SyncDesk:
    """An object that answers at once."""

    def __call__(self, request: Request) -> str:
        return "Hello"


@pytest.mark.parametrize(
    "function",
    [
        sync,
        sync_generator,
        lambda request: "Hello",
        functools.partial(sync),
        passing_on(sync),
        SyncDesk(),
        SyncDesk().__call__,
        SyncDesk,
        len,
        str,
    ],
)
def test_sync_function_is_an_error_with_advice(function: Any) -> None:
    """A sync function would block every other run of the process, so the declaration fails."""
    with pytest.raises(ValueError, match="must be an async function or async generator") as caught:
        function_handler(function, name="desk")
    assert isinstance(caught.value, ConfigError)
    for word in ("'desk'", "`async def`", "anyio.to_thread.run_sync", "AsyncIterator"):
        assert word in str(caught.value)


@pytest.mark.parametrize("nothing", [None, 5, "gpt", {"role": "assistant"}, [coroutine]])
def test_object_that_cannot_be_called_is_an_error(nothing: Any) -> None:
    """When it is declared, and not when it is needed."""
    with pytest.raises(
        ConfigError, match=r"must be an async function .* cannot be called\. Pass the function"
    ):
        function_handler(nothing)


def test_wrapper_of_itself_ends_the_search() -> None:
    sync_again: Any = passing_on(sync)
    sync_again.__wrapped__ = sync_again
    with pytest.raises(ConfigError, match="must be an async function"):
        function_handler(sync_again)


# -- what it is called with --


async def by_name(request: Any, context: Any, messages: Any, tools: Any, settings: Any) -> Any:
    return request, context, messages, tools, settings


async def in_any_order(settings: Any, *, tools: Any, messages: Any, context: Any, request: Any) -> Any:
    return request, context, messages, tools, settings


async def with_defaults(
    request: Any = None, context: Any = None, messages: Any = (), tools: Any = (), settings: Any = None
) -> Any:
    return request, context, messages, tools, settings


async def by_position(request: Any, context: Any, messages: Any, tools: Any, settings: Any, /) -> Any:
    return request, context, messages, tools, settings


@pytest.mark.parametrize("function", [by_name, in_any_order, with_defaults, by_position])
async def test_parameters_are_filled_by_name(function: Any) -> None:
    """With or without a default, by position or by keyword."""
    request, context, messages, tools, settings = await seen_by(function)
    assert request is REQUEST
    assert context is CONTEXT
    assert messages is REQUEST.messages
    assert tools is REQUEST.tools
    assert settings is REQUEST.settings


async def by_annotation(ctx: RunContext, q: Request) -> Any:
    return q, ctx


async def by_generic(q: Request, ctx: RunContext[str]) -> Any:
    return q, ctx


async def by_optional(q: Request | None, ctx: Optional[RunContext[Any]]) -> Any:  # noqa: UP045
    return q, ctx


async def by_annotated(q: Annotated[Request, "what"], ctx: Annotated[RunContext[Any] | None, "where"]) -> Any:
    return q, ctx


async def by_text(q: "Request", ctx: "RunContext[Any] | None" = None) -> Any:  # noqa: UP037
    return q, ctx


async def by_names_for_type_checkers(q: il.Request, ctx: typing.Optional[il.RunContext[State]]) -> Any:  # noqa: UP045
    return q, ctx


async def by_union_for_type_checkers(ctx: dict[str, State] | RunContext[State], q: il.Request | None) -> Any:
    return q, ctx


async def by_annotation_against_the_name(context: Request, request: RunContext) -> Any:
    return context, request


@pytest.mark.parametrize(
    "function",
    [
        by_annotation,
        by_generic,
        by_optional,
        by_annotated,
        by_text,
        by_names_for_type_checkers,
        by_union_for_type_checkers,
        by_annotation_against_the_name,
    ],
)
async def test_parameters_are_filled_by_annotation(function: Any) -> None:
    """Any name will do, in any of the ways to write it."""
    q, ctx = await seen_by(function)
    assert q is REQUEST
    assert ctx is CONTEXT


async def unannotated(q: Any) -> Any:
    return q


async def of_another_name(ask: Ask) -> Any:
    return ask


async def of_any_type(q: T) -> Any:  # pyright: ignore[reportInvalidTypeVarUse]
    return q


async def of_object(q: object) -> Any:
    return q


class Asks(Protocol):
    """What a handler of one's own may declare to need."""

    @property
    def messages(self) -> Any: ...


async def of_protocol(q: Asks) -> Any:
    return q


async def undecorated(*args: Any, **kwargs: Any) -> Any:
    return args[0]


@pytest.mark.parametrize(
    "function", [unannotated, of_another_name, of_any_type, of_object, of_protocol, undecorated]
)
async def test_the_one_parameter_that_is_left_is_the_request(function: Any) -> None:
    assert await seen_by(function) is REQUEST


async def test_one_that_is_left_may_stand_beside_others() -> None:
    async def answer(q: Any, context: Any, city: str = "Oslo") -> Any:
        return q, context, city

    assert await seen_by(answer) == (REQUEST, CONTEXT, "Rome")


async def test_function_may_have_no_parameters() -> None:
    async def answer() -> str:
        return "Hello"

    assert await reply_of(answer) == "Hello"


# -- what a transfer passes along --


async def test_optional_parameters_get_values_of_the_handoff_input() -> None:
    """The input of a handoff reaches the parameters of the handler's function."""

    async def answer(request: Request, city: str = "Oslo", *, country: str = "Norway") -> Any:
        return city, country

    assert await seen_by(answer) == ("Rome", "Norway")


async def test_positional_parameter_with_default_is_filled() -> None:
    async def answer(request: Request, city: str = "Oslo", country: str = "Norway", /) -> Any:
        return city, country

    assert await seen_by(answer) == ("Rome", "Norway")
    assert await seen_by(answer, Request(messages=[])) == ("Oslo", "Norway")


async def test_variadic_parameter_gets_the_other_keys() -> None:
    """The handoff input cannot replace parameters that have another source."""

    async def answer(request: Request, city: str = "Oslo", **rest: Any) -> Any:
        assert request is REQUEST
        return city, rest

    assert await seen_by(answer) == ("Rome", {"self": "me", "prefix": "x"})


class Shop:
    """Its methods have a self, and its partial a prefix, that a transfer must not replace."""

    async def answer(self, request: Request, **rest: Any) -> str:
        return " ".join(rest)

    async def __call__(self, prefix: str, request: Request, **rest: Any) -> str:
        return " ".join(rest)


@pytest.mark.parametrize(
    ("function", "rest"),
    [
        (Shop().answer, "city prefix"),
        (functools.partial(Shop(), "x"), "city"),
        (functools.partial(Shop(), prefix="x"), "city"),
    ],
)
async def test_bound_arguments_are_not_replaced(function: Any, rest: str) -> None:
    assert await reply_of(function) == rest


async def test_a_partials_own_arguments_stay() -> None:
    """Bound arguments stay, even if they have names that a handler fills."""

    async def answer(request: Request, context: str, city: str) -> str:
        return f"{context} {city}"

    assert await reply_of(functools.partial(answer, context="shop", city="Paris")) == "shop Paris"


@dataclass
class Trip:
    """What a transfer passes with ``input_type=Trip``."""

    city: str


class Tour(pydantic.BaseModel):
    """The same as a model of pydantic."""

    city: str


@pytest.mark.parametrize("passed", [Trip("Rome"), Tour(city="Rome")])
async def test_fields_of_an_object_fill_parameters(passed: Any) -> None:
    async def answer(request: Request, city: str = "Oslo", **rest: Any) -> Any:
        return city, rest

    assert await seen_by(answer, Request(messages=[], handoff_input=passed)) == ("Rome", {})


async def test_positional_parameter_is_filled_by_a_field() -> None:
    async def answer(request: Request, city: str = "Oslo", country: str = "Norway", /) -> Any:
        return city, country

    assert await seen_by(answer, Request(messages=[], handoff_input=Trip("Rome"))) == ("Rome", "Norway")


@pytest.mark.parametrize("passed", [None, "Rome", 5, ["city"], CONTEXT, Trip])
async def test_other_handoff_input_fills_no_parameter(passed: Any) -> None:
    async def answer(request: Request, city: str = "Oslo", **rest: Any) -> Any:
        return city, rest, request.handoff_input

    assert await seen_by(answer, Request(messages=[], handoff_input=passed)) == ("Oslo", {}, passed)


# -- wrappers --


async def test_a_wrapper_is_called_with_its_own_parameters() -> None:
    """The wrapper is called, so its own parameters count."""

    @functools.wraps(prefixed)
    async def wrapper(request: Request) -> str:
        return await prefixed("Hel", request)

    assert await reply_of(wrapper) == "Hello"


# -- what cannot be filled --


async def two_unknown(q: Any, city: str) -> str:
    return city


async def one_too_many(request: Request, city: str) -> str:
    return city


async def keyword_only(*, city: Any) -> str:
    return city


async def of_another_type(city: str) -> str:
    return city


async def of_a_list(conversation: list[Mapping[str, Any]]) -> str:
    return ""


@pytest.mark.parametrize("function", [two_unknown, one_too_many, keyword_only, of_another_type, of_a_list])
def test_parameter_without_a_source_is_named(function: Any) -> None:
    with pytest.raises(ConfigError, match=r"there is no value for .*'(city|conversation)'\.") as caught:
        function_handler(function, name="desk")
    for word in ("'desk'", "request", "RunContext", "messages", "tools", "settings", "default"):
        assert word in str(caught.value)


async def of_a_tool(request: Request, context: ToolContext) -> str:
    return ""


async def of_a_tool_for_type_checkers(request: Request, ctx: il.ToolContext[State]) -> str:
    return ""


@pytest.mark.parametrize("function", [of_a_tool, of_a_tool_for_type_checkers])
def test_a_handler_has_no_tool_context(function: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"'(context|ctx)' is annotated ToolContext.*Annotate it RunContext"
    ):
        function_handler(function)


def test_unreadable_signature_is_an_error() -> None:
    async def answer(request: Request) -> str:
        return ""

    answer.__signature__ = "odd"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="the signature of 'answer' cannot be read"):
        function_handler(answer)


async def test_the_context_cannot_be_changed() -> None:
    """Its shared memory is the one bag that can."""

    async def answer(context: RunContext[Any]) -> str:
        context.shared_memory["seen"] = True
        with pytest.raises(FrozenInstanceError):
            context.turn = 5  # type: ignore[misc]
        return "Hello"

    assert await reply_of(answer) == "Hello"
    assert CONTEXT.shared_memory.pop("seen")
