"""Functions as handlers: ``@handler``, ``function_handler``, and the arguments of a handler's function."""

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
    Set,
)
from contextlib import aclosing
from dataclasses import dataclass, field, fields, is_dataclass, replace
from inspect import isawaitable
from operator import attrgetter
from typing import Any, cast, overload

import anyio

from routelock._callables import declared_parameters, is_method, name_of, types_in, unbound
from routelock._hints import hint_keywords
from routelock._peer_names import HANDLER_KEYWORDS
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError
from routelock.handlers.collector import Collector
from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Handler, Priority, Request, copy_of
from routelock.scopes import Scope, checked_scope

__all__ = [
    "CopyingHandler",
    "FunctionHandler",
    "Parameters",
    "function_handler",
    "handler",
]


_Source = Callable[[Request], Any]
"""Returns the value of a parameter."""

_ANY: Any = Any

_EMPTY: Any = inspect.Parameter.empty

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

_ASYNC_TYPES = frozenset(("AsyncGenerator", "AsyncIterable", "AsyncIterator", "Awaitable", "Coroutine"))


# -- which functions can be handlers --


def _check_async(function: object, name: str) -> None:
    """Check that a function is async, so a call of it cannot block the other runs of the process.

    A function is async if it is declared so, wraps or binds an async function, or has a return annotation
    that is awaitable or an async iterable.

    Raises:
        ConfigError: the function is not async, or cannot be called.
    """
    must = f"Handler {name!r} must be an async function or async generator"
    if not callable(function):
        raise ConfigError(f"{must}; {function!r:.80} cannot be called. Pass the function itself.")
    if not any(map(_is_async, _layers(function))):
        raise ConfigError(
            f"{must}, because a sync function would block every other run. Write `async def`, and call "
            "blocking code with `await anyio.to_thread.run_sync(...)`. If a sync function returns something "
            "async, annotate it: `-> AsyncIterator[str]`."
        )


def _layers(function: object) -> Iterator[Any]:
    """Yield a callable and each callable inside it, the outermost first."""
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
    if inspect.isclass(layer):  # a call returns an instance
        return issubclass(layer, AsyncIterable | Awaitable)
    returned = getattr(layer, "__annotations__", {}).get("return", _EMPTY)
    return any(
        each in _ASYNC_TYPES if isinstance(each, str) else issubclass(each, AsyncIterable | Awaitable)
        for each in types_in(layer, returned)
    )


# -- the arguments of the function --


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The sources of the arguments of a handler's function."""

    is_method: bool
    """Whether the function is a method that is not bound to an instance."""
    positional: tuple[_Source, ...]
    """The sources of positional arguments: the first parameters, as long as each has a source."""
    named: tuple[tuple[str, _Source], ...]
    optional: frozenset[str]
    """Parameters with a default, which the input of a handoff may fill."""
    taken: frozenset[str]
    """Names that must not be passed to a ``**`` parameter."""
    takes_rest: bool
    """Whether there is a ``**`` parameter."""

    def bound(self) -> Parameters:
        """Return the parameters of the method after it is bound to an instance."""
        return replace(self, is_method=False)

    def arrange(self, request: Request) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments and keyword arguments for the call."""
        named = {name: source(request) for name, source in self.named}
        if request.handoff_input is not None:
            named |= self._passed(request.handoff_input)
        return [source(request) for source in self.positional], named

    def _passed(self, given: object) -> dict[str, Any]:
        """Return the keyword arguments that the input of a handoff has."""
        if isinstance(given, Mapping):
            passed = cast("Mapping[str, Any]", given)
            return {key: value for key, value in passed.items() if self._takes(key)}
        return {key: getattr(given, key) for key in self.optional & _fields_of(given)}

    def _takes(self, key: object) -> bool:
        return key in self.optional or (self.takes_rest and isinstance(key, str) and key not in self.taken)


def _parameters_of(function: Callable[..., Any], name: str) -> Parameters:
    """Return how to call ``function`` with a `Request`.

    A parameter annotated `Request` or named ``request`` gets the request. One annotated `RunContext` or named
    ``context`` gets the run's context. Parameters named ``messages``, ``tools`` and ``settings`` get that
    field of the request. One other required parameter gets the request too. A parameter with a default gets
    its value from the input of a handoff (``Request.handoff_input``), if that is a mapping with such a key,
    or a dataclass or pydantic model with such a field. A ``**`` parameter gets the other keys of a mapping.

    Args:
        function: an async function, see `_check_async`.
        name: the name of the handler, for errors.

    Raises:
        ConfigError: a required parameter has no source.
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
        positional = (_whole_request,)  # a decorator without functools.wraps
    return Parameters(
        is_method=of_class,
        positional=positional,
        named=tuple((each, sources[each]) for each in named if each in sources),
        optional=frozenset(each for each in named if each not in sources),
        taken=frozenset((*(each.name for each in plain), *_bound_names(function))),
        takes_rest=any(each.kind is each.VAR_KEYWORD for each in declared),
    )


def _declared(function: Callable[..., Any], name: str) -> Sequence[inspect.Parameter]:
    """Return the parameters of a function.

    A wrapper that passes all its arguments on has the parameters of the wrapped function.
    """
    owner = f"Handler {name!r}"
    found = declared_parameters(function, owner, follow_wrapped=False)
    if any(each.kind in _VARIADIC for each in found):
        found = declared_parameters(function, owner)
    return found


def _whole_request(request: Request) -> Request:
    return request


def _source(function: Callable[..., Any], parameter: inspect.Parameter, name: str) -> _Source | None:
    kinds = types_in(function, parameter.annotation)
    if _includes(kinds, Request):
        return _whole_request
    if _includes(kinds, RunContext):
        return attrgetter("context")
    if _includes(kinds, ToolContext):
        raise ConfigError(
            f"Handler {name!r}: parameter {parameter.name!r} is annotated ToolContext, which only the "
            "function of a tool gets. Annotate it RunContext."
        )
    match parameter.name:
        case "request":
            return _whole_request
        case "context" | "messages" | "tools" | "settings":
            return attrgetter(parameter.name)
        case _:
            return None


def _includes(kinds: Sequence[type | str], kind: type) -> bool:
    return kind in kinds or kind.__name__ in kinds


def _add_request(
    function: Callable[..., Any],
    name: str,
    plain: Sequence[inspect.Parameter],
    sources: dict[str, _Source],
) -> None:
    """Pass the request to the one required parameter that has no source yet."""
    left = [each for each in plain if each.default is _EMPTY and each.name not in sources]
    if not left:
        return
    first, is_only = left[0], len(left) == 1 and _whole_request not in sources.values()
    if not is_only or first.kind not in _BY_POSITION or not _may_be_request(function, first):
        raise ConfigError(
            f"Handler {name!r}: there is no value for {' and '.join(repr(each.name) for each in left)}. Use "
            "the parameters request (or any name annotated Request), context (or any name annotated "
            "RunContext), messages, tools and settings. A parameter with a default, and a ** parameter, get "
            "values from the input of a handoff."
        )
    sources[first.name] = _whole_request


def _may_be_request(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    kinds = types_in(function, parameter.annotation)
    known = [each for each in kinds if not isinstance(each, str) and not _is_open(each)]
    return not kinds or len(known) < len(kinds) or any(issubclass(Request, each) for each in known)


def _is_open(kind: type) -> bool:
    """Whether the type is Any or a protocol, which a request may satisfy."""
    return kind is _ANY or bool(getattr(kind, "_is_protocol", False))


def _by_position(plain: Sequence[inspect.Parameter], sources: Mapping[str, _Source]) -> tuple[_Source, ...]:
    """Return the sources of the first parameters, up to one that cannot be passed by position."""
    found: list[_Source] = []
    for each in plain:
        source = sources.get(each.name)
        if each.kind is each.POSITIONAL_ONLY:
            source = source or functools.partial(_from_handoff, each.name, each.default)
        elif source is None or each.kind is each.KEYWORD_ONLY:
            break
        found.append(source)
    return tuple(found)


def _from_handoff(name: str, default: Any, request: Request) -> Any:
    passed: object = request.handoff_input
    if isinstance(passed, Mapping):
        return cast("Mapping[str, Any]", passed).get(name, default)
    return getattr(passed, name) if name in _fields_of(passed) else default


def _fields_of(passed: object) -> Set[str]:
    """Return the names of the fields of a dataclass or a pydantic model; of other values there are none."""
    kind = type(passed)
    if is_dataclass(kind):
        return {each.name for each in fields(kind)}
    return {*getattr(kind, "model_fields", ())}


def _bound_names(function: Any) -> Iterator[str]:
    """Yield the names of all parameters, those that a partial or an instance has bound included."""
    inner = unbound(function)
    inner = getattr(inner, "__func__", inner) if inspect.isroutine(inner) else type(inner).__call__
    yield from inspect.signature(inner).parameters


_CLOSE_SECONDS = 5.0
"""The time limit for closing a connection, in seconds."""


@dataclass(frozen=True, kw_only=True)
class FunctionHandler:
    """A handler whose replies come from an async function; `handler` and `function_handler` make one.

    Calling the handler calls the function, which is useful in unit tests. A handler in the body of a class is
    a method, bound to the instance that it is taken from. Two handlers are equal if all fields are equal.

    Raises:
        ConfigError: the function is not async, one of its parameters has no source, or another field is
            invalid.
    """

    function: Callable[..., Any] = field(hash=False)
    name: str
    family: str = field(hash=False)
    """The provider family whose private fields it can read, see `routelock.handlers.family_of`."""
    priority: int = field(default=Priority.CUSTOM, hash=False)
    """The handler with the lowest priority is the agent's default."""
    scope: Scope = field(default="all", hash=False)
    """Which runs may use it, see `routelock.scopes`."""
    prompt: str | None = field(default=None, hash=False)
    """The purpose of the handler, for the model."""
    expose: bool = field(default=False, hash=False)
    """Whether the model is offered ``transfer_to_<name>`` without a handoff in ``Agent.handoffs``."""
    _parameters: Parameters = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        _check_async(self.function, self.name)
        vars(self).update(
            scope=checked_scope(self.scope, f"Handler {self.name!r}"),
            _parameters=_parameters_of(self.function, self.name),
            **_wrapper_fields(self.function),
        )

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> FunctionHandler:
        """Return the handler of a method, bound to the instance that it was taken from."""
        if instance is None or not self._parameters.is_method:
            return self
        bound = copy.copy(self)  # only the function differs
        function = types.MethodType(self.function, instance)
        vars(bound).update(function=function, _parameters=self._parameters.bound(), __wrapped__=function)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with its own parameters."""
        return self.function(*args, **kwargs)

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Call the function and yield its reply as events, the complete message last.

        Raises:
            HandlerError: the function returned or yielded something that is not a reply.
            IncompleteResponse: the reply ends inside the arguments of a tool call.
            ConfigError: the function is a method without an instance.
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
            f"{made.function.name!r} is a handler already. dataclasses.replace(handler, ...) makes a copy."
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


def _wrapper_fields(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the attributes that `functools.wraps` would set on a wrapper of the function."""
    fields = {"__wrapped__": function, "__doc__": unbound(function).__doc__, "__name__": name_of(function)}
    for key in ("__module__", "__qualname__"):
        fields[key] = getattr(unbound(function), key, fields["__name__"])
    return fields


# -- the result of a call --


async def _pieces(given: Any) -> AsyncGenerator[Any]:
    """Yield the pieces of a reply from the result of a call."""
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
        # closing the iterator of openai's stream does not close the stream
        if cast(object, given) is not iterator:
            await _close(cast(Any, given))


async def _close(source: Any) -> None:
    if isinstance(source, AsyncGenerator):
        await source.aclose()  # the generator handles a cancellation itself
        return
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    if close is None:
        return
    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
        closing = close()
        if isawaitable(closing):
            await closing


# -- making handlers --


@hint_keywords(HANDLER_KEYWORDS)
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
    """Return a handler whose replies come from an async function or async generator.

    The function may return or yield: text; a message dict; a chat-completions reply or its chunks, as dicts
    or as objects of the openai and litellm packages; a dict of ``content``, ``tool_calls``, ``finish_reason``
    and ``usage``; or routelock's own events. It may return an async iterator of these. Text and chunks are
    assembled into the complete message.

    Its arguments are chosen by annotation or name: the `Request` (``request``, or any one name), the
    `RunContext` (``context``), and ``messages``, ``tools`` and ``settings`` of the request. Parameters with a
    default get values from the input of a handoff, if that is a mapping with such a key. In a run all but the
    context are copies, which the function may edit.

    Args:
        function: an ``async def``, with or without ``yield``; a partial, a method, a callable object or a
            wrapper of one; or a sync function that is annotated to return something async.
        name: the name of the handler; by default the function's name.
        family: see `routelock.handlers.family_of`; by default the name.
        priority: the handler with the lowest priority is the agent's default.
        scope: which runs may use it, see `routelock.scopes`.
        prompt: the purpose of the handler, for the model. The model never sees the docstring.
        expose: whether the model is offered ``transfer_to_<name>`` without a handoff in ``Agent.handoffs``.

    Raises:
        ConfigError: the function is not async, so a call would block every other run; one of its parameters
            has no source; or an option has the wrong type.
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


@hint_keywords(HANDLER_KEYWORDS)
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
    """Make a handler from a function or a method: ``@handler`` or ``@handler(priority=10)``.

    The arguments are those of `function_handler`.
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


@dataclass(frozen=True, slots=True)
class CopyingHandler:
    """A handler that gets a copy of each request, so that it cannot change the run."""

    inner: Handler

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.inner.name

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the handler."""
        return self.inner.stream(copy_of(request))
