"""What a handler's function is called with, and whether it may be one; worked out once per function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, cast

from routelock._callables import is_method, name_of, types_in, unbound
from routelock._records import dataclass
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError
from routelock.port import Request

__all__ = ["Parameters", "check_async", "parameters_of"]

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
