"""Handlers made of functions, once: afterwards nobody asks which kind of function it was."""

from __future__ import annotations

import copy
import types
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import field
from inspect import isawaitable
from typing import Any, cast, overload

import anyio

from routelock._callables import name_of, unbound
from routelock._records import dataclass
from routelock.errors import ConfigError
from routelock.events import HandlerEvent
from routelock.handler_functions import Parameters, check_async, parameters_of
from routelock.handler_replies import Collector
from routelock.port import Priority, Request
from routelock.scopes import Scope, checked_scope

__all__ = ["FunctionHandler", "function_handler", "handler"]

_CLOSING = 5.0
"""Seconds after which a connection that does not close is given up."""


@dataclass(frozen=True, kw_only=True)
class FunctionHandler:
    """A handler that answers with an async function; `handler` and `function_handler` make one.

    It can be called like the function itself, which is how a unit test calls it. Declared in the body
    of a class it is bound to the instance that it is taken from. Two are equal when they do the same.

    Raises:
        ConfigError: the function is not async, a parameter of it cannot be filled, or another field
            cannot work.
    """

    function: Callable[..., Any] = field(hash=False)
    name: str
    family: str = field(hash=False)
    """Whose private fields it can read, see `routelock.port.family_of`."""
    priority: int = field(default=Priority.CUSTOM, hash=False)
    """The lowest of an agent's handlers is its default."""
    scope: Scope = field(default="all", hash=False)
    """Who may use it, see `routelock.scopes`."""
    prompt: str | None = field(default=None, hash=False)
    """What it is for, in words for the model."""
    expose: bool = field(default=False, hash=False)
    """Whether ``transfer_to_<name>`` is offered without an edge of its own."""
    _parameters: Parameters = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        check_async(self.function, self.name)
        vars(self).update(
            scope=checked_scope(self.scope, f"Handler {self.name!r}"),
            _parameters=parameters_of(self.function, self.name),
            **_told_by(self.function),
        )

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> FunctionHandler:
        """Bind a handler that was made in the body of a class to the instance it is taken from."""
        if instance is None or not self._parameters.is_method:
            return self
        bound = copy.copy(self)  # all but the function stays as it was worked out
        function = types.MethodType(self.function, instance)
        vars(bound).update(function=function, _parameters=self._parameters.bound(), __wrapped__=function)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, with its own parameters."""
        return self.function(*args, **kwargs)

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Yield what the function gives as events, and the complete message last.

        Raises:
            HandlerError: what it gives is no reply.
            IncompleteResponse: the reply ends inside the arguments of a tool call.
            ConfigError: the function is a method, and this was not taken from an instance.
        """
        if self._parameters.is_method:
            raise ConfigError(
                f"Handler {self.name!r} is a method: take the handler from an instance of its class."
            )
        reply = Collector(self.name)
        arguments, named = self._parameters.arrange(request)
        async with aclosing(_pieces(self.function(*arguments, **named))) as pieces:
            async for piece in pieces:
                for event in reply.take(piece):
                    yield event
        for event in reply.done():
            yield event


def _check(made: FunctionHandler) -> None:
    name, priority, prompt = (cast(object, each) for each in (made.name, made.priority, made.prompt))
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f"A handler's name must be text that is not empty, not {name!r:.80}.")
    if isinstance(made.function, FunctionHandler):
        raise ConfigError(
            f"{made.function.name!r} is a handler already; dataclasses.replace(handler, ...) makes another."
        )
    rules = (
        (
            isinstance(priority, int) and not isinstance(priority, bool),
            f"priority must be a whole number, lower first, not {priority!r:.80}",
        ),
        (
            prompt is None or isinstance(prompt, str),
            f"prompt must be text, not {prompt!r:.80}",
        ),
        (isinstance(cast(object, made.expose), bool), f"expose must be a bool, not {made.expose!r:.80}"),
        (isinstance(cast(object, made.family), str), f"family must be text, not {made.family!r:.80}"),
    )
    if wrong := [message for holds, message in rules if not holds]:
        raise ConfigError(f"Handler {name!r}: {'; '.join(wrong)}.")


def _told_by(function: Callable[..., Any]) -> dict[str, Any]:
    """Return what a decorated function is to say of itself."""
    told = {"__wrapped__": function, "__doc__": unbound(function).__doc__, "__name__": name_of(function)}
    for key in ("__module__", "__qualname__"):
        told[key] = getattr(unbound(function), key, told["__name__"])
    return told


# -- what a call of the function gives --


async def _pieces(given: Any) -> AsyncGenerator[Any]:
    """Yield what a call of the function gives, one by one."""
    if isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterable):
        yield given
        return
    iterator: AsyncIterator[Any] = aiter(cast(Any, given))
    try:
        async for piece in iterator:
            yield piece
    finally:
        await _close(iterator)
        if cast(object, given) is not iterator:  # openai's stream is not closed with its iterator
            await _close(cast(Any, given))


async def _close(source: Any) -> None:
    if isinstance(source, AsyncGenerator):
        await source.aclose()  # its own code decides what it does about a cancellation
        return
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    if close is None:
        return
    with anyio.move_on_after(_CLOSING, shield=True):
        closing = close()
        if isawaitable(closing):
            await closing


# -- making handlers --


def function_handler(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
    expose: bool = False,
) -> FunctionHandler:
    """Return a handler that answers with an async function or async generator.

    It may return or yield: text; a message dict; a chat-completions reply or its chunks, as dicts or
    as the objects of the openai and litellm packages; a dict of ``content``, ``tool_calls``,
    ``finish_reason`` and ``usage``; or routelock's own events. It may return an async iterator of these.
    Text and chunks are put together into the complete message.

    Its parameters are filled by annotation or name: the `Request` (``request``, or any one name), the
    `RunContext` (``context``), ``messages``, ``tools`` and ``settings`` of the request. Parameters with a
    default are filled from what a transfer passed along, if that is a mapping with such a key. In a
    run all but the context are copies, which the function may edit.

    Args:
        function: an ``async def``, with or without ``yield``; a partial, a method, a callable object or a
            wrapper of one; or a sync function that is annotated to return something async.
        name: the handler's name; the function's own when left out.
        family: see `routelock.port.family_of`; the name when left out.
        priority: the lowest of an agent's handlers is its default.
        scope: who may use it, see `routelock.scopes`.
        prompt: what it is for, in words for the model. The docstring is never shown.
        expose: whether ``transfer_to_<name>`` is offered without an edge of its own.

    Raises:
        ConfigError: the function is not async, so calling it would block every other run; a parameter
            of it cannot be filled; or an option is of the wrong type.
    """
    named = name_of(function) if name is None else name
    return FunctionHandler(
        function=function,
        name=named,
        family=named if family is None else family,
        priority=priority,
        scope=scope,
        prompt=prompt,
        expose=expose,
    )


@overload
def handler(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
    expose: bool = False,
) -> FunctionHandler: ...
@overload
def handler(
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
    expose: bool = False,
) -> Callable[[Callable[..., Any]], FunctionHandler]: ...
def handler(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    family: str | None = None,
    priority: int = Priority.CUSTOM,
    scope: Scope = "all",
    prompt: str | None = None,
    expose: bool = False,
) -> FunctionHandler | Callable[[Callable[..., Any]], FunctionHandler]:
    """Make a handler of a function or a method: ``@handler`` or ``@handler(priority=10)``.

    It takes what `function_handler` takes.
    """

    def make(function: Callable[..., Any]) -> FunctionHandler:
        return function_handler(
            function,
            name=name,
            family=family,
            priority=priority,
            scope=scope,
            prompt=prompt,
            expose=expose,
        )

    return make if function is None else make(function)
