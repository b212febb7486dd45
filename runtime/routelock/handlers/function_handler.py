"""Functions as handlers: ``@handler``, ``function_handler``, and what a handler's function is called with."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from operator import attrgetter
from typing import Any, cast, overload

import anyio

from routelock._callables import is_method, name_of, types_in, unbound
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Priority, Request
from routelock.handlers.replies import Collector
from routelock.scopes import Scope, checked_scope

__all__ = ["FunctionHandler", "Parameters", "check_async", "function_handler", "handler", "parameters_of"]


_Source = Callable[[Request], Any]
"""Where the value of a parameter comes from."""

_ANY: Any = Any

_EMPTY: Any = inspect.Parameter.empty

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_LATER = frozenset(("AsyncGenerator", "AsyncIterable", "AsyncIterator", "Awaitable", "Coroutine"))


# -- what may be a handler --


def check_async(function: object, name: str) -> None:
    """Check that a call of ``function`` cannot block the other runs of the process.

    It is async, wraps or binds something that is, or says in its annotation that it returns something
    to await or to iterate over.

    Raises:
        ConfigError: it is not; or it cannot be called.
    """
    must = f"Handler {name!r} must be an async function or async generator"
    if not callable(function):
        raise ConfigError(f"{must}; {function!r:.80} cannot be called. Pass the function itself.")
    if not any(map(_is_async, _layers(function))):
        raise ConfigError(
            f"{must}, because a sync one would hold up every other run. Write `async def`, and call what "
            "blocks with `await anyio.to_thread.run_sync(...)`. A sync function that returns something async "
            "says so in its annotation: `-> AsyncIterator[str]`."
        )


def _layers(function: object) -> Iterator[Any]:
    """Yield a callable and all that it is wrapped around, the outermost first."""
    seen: set[int] = set()
    layer: Any = function
    while layer is not None and id(layer) not in seen:
        seen.add(id(layer))
        yield layer
        if not inspect.isroutine(layer) and not inspect.isclass(layer) and layer is unbound(layer):
            yield from _layers(type(layer).__call__)
        inner = unbound(layer)
        layer = getattr(layer, "__wrapped__", None) if inner is layer else inner


def _is_async(layer: Any) -> bool:
    if inspect.iscoroutinefunction(layer) or inspect.isasyncgenfunction(layer):
        return True
    if inspect.isclass(layer):  # what it returns is an object of itself
        return issubclass(layer, AsyncIterable | Awaitable)
    returned = getattr(layer, "__annotations__", {}).get("return", _EMPTY)
    return any(
        each in _LATER if isinstance(each, str) else issubclass(each, AsyncIterable | Awaitable)
        for each in types_in(layer, returned)
    )


# -- what it is called with --


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How the parameters of a handler's function are filled."""

    is_method: bool
    """Whether ``self`` is still to come, from an instance."""
    positional: tuple[_Source, ...]
    """What is passed by position: the parameters that come first and always have a value."""
    named: tuple[tuple[str, _Source], ...]
    optional: frozenset[str]
    """Parameters with a default of their own, which what a transfer passed along may replace."""
    taken: frozenset[str]
    """Names that a ``**`` parameter must not be given."""
    takes_rest: bool
    """Whether there is a ``**`` parameter."""

    def bound(self) -> Parameters:
        """Return the same of a method that has its instance."""
        return replace(self, is_method=False)

    def arrange(self, request: Request) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments and keyword arguments for the call."""
        named = {name: source(request) for name, source in self.named}
        passed: object = request.handoff_input
        if (self.optional or self.takes_rest) and isinstance(passed, Mapping):
            given = cast("Mapping[str, Any]", passed)
            named |= {key: value for key, value in given.items() if self._takes(key)}
        return [source(request) for source in self.positional], named

    def _takes(self, key: object) -> bool:
        return key in self.optional or (self.takes_rest and isinstance(key, str) and key not in self.taken)


def parameters_of(function: Callable[..., Any], name: str) -> Parameters:
    """Work out how ``function`` is called with a `Request`.

    A parameter annotated `Request` or named ``request`` is given the request, one annotated
    `RunContext` or named ``context`` the run's context, and those named ``messages``, ``tools`` and
    ``settings`` what the request has under that name. One other required parameter is the request as
    well. Parameters with a default, and a ``**`` parameter, are filled from what a transfer passed along
    (``Request.handoff_input``) if that is a mapping with such a key.

    Args:
        function: what `check_async` lets pass.
        name: the handler's, for messages.

    Raises:
        ConfigError: a parameter has no default and nothing to be filled with.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    declared = _declared(function, name)
    of_class = is_method(function, declared)
    declared = declared[of_class:]
    plain = [each for each in declared if each.kind not in _VARIADIC]
    sources = {each.name: source for each in plain if (source := _source(function, each, name))}
    _add_request(function, name, plain, sources)
    positional = _by_position(plain, sources)
    named = [each.name for each in plain[len(positional) :]]
    if not plain and any(each.kind is each.VAR_POSITIONAL for each in declared):
        positional = (_itself,)  # a decorator that forgot functools.wraps
    return Parameters(
        is_method=of_class,
        positional=positional,
        named=tuple((each, sources[each]) for each in named if each in sources),
        optional=frozenset(each for each in named if each not in sources),
        taken=frozenset((*(each.name for each in plain), *_spoken_for(function))),
        takes_rest=any(each.kind is each.VAR_KEYWORD for each in declared),
    )


def _declared(function: Callable[..., Any], name: str) -> Sequence[inspect.Parameter]:
    """Return the parameters; of a wrapper its own, unless it passes on whatever it is given."""
    try:
        found = inspect.signature(function, follow_wrapped=False).parameters.values()
        if any(each.kind in _VARIADIC for each in found):
            found = inspect.signature(function).parameters.values()
    except (ValueError, TypeError, NameError) as error:
        raise ConfigError(
            f"Handler {name!r}: the signature of {name_of(function)!r} cannot be read: {error}. "
            "Wrap it in a function."
        ) from error
    bound = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in found if each.name not in bound]


def _itself(request: Request) -> Request:
    return request


def _source(function: Callable[..., Any], parameter: inspect.Parameter, name: str) -> _Source | None:
    kinds = types_in(function, parameter.annotation)
    if _names(kinds, Request):
        return _itself
    if _names(kinds, RunContext):
        return attrgetter("context")
    if _names(kinds, ToolContext):
        raise ConfigError(
            f"Handler {name!r}: parameter {parameter.name!r} is annotated ToolContext, which belongs to the "
            "call of a tool. Annotate it RunContext."
        )
    match parameter.name:
        case "request":
            return _itself
        case "context" | "messages" | "tools" | "settings":
            return attrgetter(parameter.name)
        case _:
            return None


def _names(kinds: Sequence[type | str], kind: type) -> bool:
    return kind in kinds or kind.__name__ in kinds


def _add_request(
    function: Callable[..., Any],
    name: str,
    plain: Sequence[inspect.Parameter],
    sources: dict[str, _Source],
) -> None:
    """Let the one required parameter that is left be the request."""
    left = [each for each in plain if each.default is _EMPTY and each.name not in sources]
    if not left:
        return
    first, is_only = left[0], len(left) == 1 and _itself not in sources.values()
    if not is_only or first.kind not in _BY_POSITION or not _may_be_request(function, first):
        raise ConfigError(
            f"Handler {name!r}: nothing can be passed for {' and '.join(repr(each.name) for each in left)}. "
            "There are: request (or any name annotated Request), context (or any name annotated RunContext), "
            "messages, tools and settings. A parameter with a default, and a ** parameter, are filled from "
            "what a transfer passes along."
        )
    sources[first.name] = _itself


def _may_be_request(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    kinds = types_in(function, parameter.annotation)
    known = [each for each in kinds if not isinstance(each, str) and not _is_open(each)]
    return not kinds or len(known) < len(kinds) or any(issubclass(Request, each) for each in known)


def _is_open(kind: type) -> bool:
    """Whether it says nothing against a request: Any, or a protocol."""
    return kind is _ANY or bool(getattr(kind, "_is_protocol", False))


def _by_position(plain: Sequence[inspect.Parameter], sources: Mapping[str, _Source]) -> tuple[_Source, ...]:
    """Return the sources of the first parameters, as far as each can be passed by position."""
    found: list[_Source] = []
    for each in plain:
        source = sources.get(each.name)
        if each.kind is each.POSITIONAL_ONLY:
            source = source or functools.partial(_passed, each.name, each.default)
        elif source is None or each.kind is each.KEYWORD_ONLY:
            break
        found.append(source)
    return tuple(found)


def _passed(name: str, default: Any, request: Request) -> Any:
    passed: object = request.handoff_input
    return cast("Mapping[str, Any]", passed).get(name, default) if isinstance(passed, Mapping) else default


def _spoken_for(function: Any) -> Iterator[str]:
    """Yield the names of what a partial or an instance has bound already."""
    inner = unbound(function)
    inner = getattr(inner, "__func__", inner) if inspect.isroutine(inner) else type(inner).__call__
    yield from inspect.signature(inner).parameters


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
    """Whose private fields it can read, see `routelock.handlers.family_of`."""
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
        family: see `routelock.handlers.family_of`; the name when left out.
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
