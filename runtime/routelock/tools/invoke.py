"""Calls of a tool's function: parsing its arguments, running it, and the texts of results and failures."""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from routelock._callables import name_of, unbound
from routelock._json import sendable
from routelock._redaction import redact_text
from routelock._text import clip, clip_place
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolTimeout
from routelock.tools.schema import describe_error, misfit

if TYPE_CHECKING:
    import pydantic

__all__ = [
    "JsonCall",
    "NoTextError",
    "PythonCall",
    "Signature",
    "ToolCallable",
    "failure_text",
    "is_async",
    "reason_of",
    "refusal_text",
    "run_in_thread",
    "to_text",
]


_LONGEST_REPORT = 800
"""Most characters of an error report to the model: it stays in the history and costs tokens in each turn."""

_REDACTED_LENGTH = 100_000
"""How many characters of an exception's text are searched for secrets; the rest is dropped."""

_Arguments = tuple[str, Mapping[str, Any]]
"""Arguments as JSON text, and parsed."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` returns a coroutine; a partial or a callable object may be async too.

    Raises:
        ConfigError: it is not callable, or it is a generator, which has more than one result.
    """
    if not callable(function):
        raise ConfigError(f"{function!r:.80} is a {type(function).__name__}; pass a function to make a tool.")
    inner = unbound(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(
            f"{name_of(function)!r} is a generator, but a tool returns one result: return a list."
        )
    return inspect.iscoroutinefunction(inner)


async def run_in_thread(call: Callable[[], Any]) -> Any:
    """Call a function that is not async in a worker thread with the same context variables.

    A cancelled call in a thread goes on by itself, because a thread cannot be stopped; the run does not wait
    for it.
    """

    def boxed() -> tuple[Any]:
        return (call(),)  # trio refuses an awaitable that is not in a tuple

    (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


def _with_arguments(context: ToolContext[Any], values: Mapping[str, Any]) -> ToolContext[Any]:
    # a test of the app may pass a plain RunContext
    return replace(context, arguments=values) if isinstance(cast(object, context), ToolContext) else context


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A tool's function: the schema for the model, and the parser of the arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    strict: bool
    context: str | None
    """The parameter for the run's context; it is not in the schema."""
    is_method: bool
    """Whether the function is a method that is not bound to an instance."""
    positional: tuple[tuple[str, Any], ...]
    """Names and defaults of the parameters that must be passed by position."""
    rest: str | None
    """The name of the ``*args`` parameter."""
    optional: frozenset[str]
    """The optional arguments, by their names in the schema."""
    validate: Callable[[str], dict[str, Any]]

    def read(self, text: str) -> dict[str, Any]:
        """Return the validated arguments by name. Empty text and ``null`` mean no arguments.

        Raises:
            ModelBehaviorError: the text is not JSON or does not match the schema; the message is for the
                model.
        """
        try:
            return self.validate(text or "{}")
        except misfit() as error:
            shortened = self._without_nulls(text, error)
            if shortened is None:
                raise ModelBehaviorError(describe_error(error, text, schema=self.schema)) from error
        return self.read(shortened)

    def _without_nulls(self, text: str, error: pydantic.ValidationError) -> str | None:
        """Return the arguments without the nulls that mean a default; None if there are no such nulls.

        The strict form makes a model send every argument, with null for an argument that it would leave out.
        A null that the argument's type allows is an ordinary value and stays.
        """
        from pydantic_core import from_json, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

        if text.strip() in ("", "null"):
            return "{}"
        if error.error_count() > 100:  # errors() is slow, and each argument has at most one
            return None
        errors = error.errors(include_url=False, include_context=False)
        refused = {each["loc"][0] for each in errors if each["loc"] and each["input"] is None}
        if not refused & self.optional:
            return None
        sent: dict[str, Any] = from_json(text)
        left_out = {key for key in self.optional & refused if sent.get(key, ...) is None}
        kept = {key: each for key, each in sent.items() if key not in left_out}
        return to_json(kept).decode() if left_out else None

    def arrange(self, values: Mapping[str, Any], context: object) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments and keyword arguments for the call."""
        named = dict(values)
        if self.context is not None:
            named[self.context] = context
        arguments = [named.pop(name, default) for name, default in self.positional]
        if self.rest is not None:
            arguments += named.pop(self.rest, ())
        return arguments, named


class ToolCallable:
    """Base of the callables of tools: they parse the arguments of a call, and then make it."""

    __slots__ = ()

    def read(self, text: str) -> Any:
        """Return the arguments that `call` takes.

        Raises:
            ModelBehaviorError: the text does not match the schema; the message is for the model.
        """
        raise NotImplementedError

    async def call(self, context: ToolContext[Any], values: Any) -> Any:
        """Make the call with what `read` returned."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class PythonCall(ToolCallable):
    """A call of a Python function with the arguments that its signature parses."""

    function: Callable[..., Any]
    signature: Signature
    is_async: bool

    def bind(self, instance: object) -> PythonCall:
        """Return the call of the same method of ``instance``."""
        function = types.MethodType(self.function, instance)
        return PythonCall(function, replace(self.signature, is_method=False), self.is_async)

    def read(self, text: str) -> dict[str, Any]:
        """Return the validated arguments.

        Raises:
            ModelBehaviorError: the text does not match the schema; the message is for the model.
            ConfigError: the function is a method without an instance.
        """
        if self.signature.is_method:
            raise ConfigError(
                f"{self.signature.name!r} is a method: take the tool from an instance of its class."
            )
        return self.signature.read(text)

    async def call(self, context: ToolContext[Any], values: dict[str, Any]) -> Any:
        """Call the function with what `read` returned."""
        if self.signature.context is not None:
            context = _with_arguments(context, values)
        arguments, named = self.signature.arrange(values, context)
        if self.is_async:
            return await self.function(*arguments, **named)
        return await run_in_thread(functools.partial(self.function, *arguments, **named))

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Parse the arguments and call the function; errors are raised as they are."""
        return await self.call(context, self.read(arguments))


@dataclass(frozen=True, slots=True)
class JsonCall(ToolCallable):
    """A call of a function that takes the arguments as JSON text, which is checked to be an object first."""

    function: Callable[[ToolContext[Any], str], Any]
    schema: Mapping[str, Any]
    is_async: bool

    def read(self, text: str) -> _Arguments:
        """Return the arguments as text and parsed. The function itself checks the rest of the schema.

        Raises:
            ModelBehaviorError: the text is not JSON or not an object, or a required key is missing.
        """
        from pydantic_core import from_json  # noqa: PLC0415 - see `routelock.tools.schema`

        sent = "{}" if not text or text.strip() in ("", "null") else text
        try:
            values: object = from_json(sent)
        except (ValueError, TypeError) as error:  # TypeError: half a surrogate pair
            raise self._refusal(f"Invalid JSON: {error}", text) from error
        if not isinstance(values, dict):
            raise self._refusal("The arguments must be a JSON object", text)
        found = cast("dict[str, Any]", values)
        if missing := [name for name in self.schema.get("required") or () if name not in found]:
            raise self._refusal(f"Required and missing: {', '.join(missing)}", text)
        return sent, found

    def _refusal(self, problem: str, text: str) -> ModelBehaviorError:
        return ModelBehaviorError(describe_error(ValueError(problem), text, schema=self.schema))

    async def call(self, context: ToolContext[Any], values: _Arguments) -> Any:
        """Call the function with what `read` returned."""
        text, parsed = values
        context = _with_arguments(context, parsed)
        if self.is_async:
            return await self.function(context, text)
        return await run_in_thread(functools.partial(self.function, context, text))


# -- texts for the model --


class NoTextError(Exception):
    """A tool's result has no text form, so it cannot be shown to a model."""


def to_text(value: object, most: int | None = None) -> str:
    """Return a tool's result as text: text as it is, None as empty text, anything else as JSON.

    An object without a JSON form is shown as its ``str``, if its class defines one.

    Args:
        value: the result of the tool.
        most: the limit in characters; a longer text is cut, and a notice says how much is missing. None is no
            limit.

    Raises:
        NoTextError: the value has no text form, refers to itself, or is bytes that are not UTF-8.
    """
    text = _whole_text(value)
    if most is None or len(text) <= most:
        return text
    end = clip_place(text, most)
    return (
        f"{text[:end]}\n[Cut off here: {len(text) - end} of {len(text)} characters are not shown. "
        "Ask for a smaller part if there is a way.]"
    )


def _whole_text(value: object) -> str:
    if isinstance(value, str):
        text = str.__str__(value)  # of a string enum the value, not the name
        return text if text.isascii() else sendable(text)
    if value is None:
        return ""
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    fallbacks: list[object] = []

    def as_own_text(each: object) -> str:
        fallbacks.append(each)
        return str(each)

    try:
        if isinstance(value, bytes):
            return value.decode()
        text = to_json(value, inf_nan_mode="strings", fallback=as_own_text).decode()
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        return _with_replaced_surrogates(value, error)
    for each in fallbacks:
        if not _has_text_form(type(each)):
            raise NoTextError(f"a value of type {type(each).__name__} has no JSON form")
    return str(value) if fallbacks and fallbacks[0] is value else text


def _with_replaced_surrogates(value: object, error: ValueError) -> str:
    """Return a value as JSON with U+FFFD for each half of a surrogate pair.

    The names of files that are not UTF-8 contain such halves.

    Raises:
        NoTextError: serialising failed for another reason.
    """
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        data = sendable(json.loads(json.dumps(value)))
        return to_json(data, inf_nan_mode="strings").decode()
    except (TypeError, ValueError, RecursionError):
        raise NoTextError(str(error)) from error


def _has_text_form(kind: Any) -> bool:
    """Whether the class defines a text for its objects; Python's "<object at 0x7f...>" is of no use."""
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return not is_default and kind.__module__ != "builtins"


def refusal_text(name: str, error: ModelBehaviorError) -> str:
    """Return the report to the model about arguments that do not match the schema."""
    return clip(f"Tool {name!r} was not run.\n{error}", _LONGEST_REPORT)


def failure_text(name: str, error: Exception) -> str:
    """Return the report to the model about a failed call; it says whether the tool ran."""
    if isinstance(error, ToolTimeout):
        return str(error)
    if isinstance(error, NoTextError):
        return clip(f"Tool {name!r} ran, but its result cannot be shown: {error}.", _LONGEST_REPORT)
    return clip(f"Tool {name!r} failed: {reason_of(error)}", _LONGEST_REPORT)


def reason_of(error: BaseException) -> str:
    """Return an exception as one phrase for a model; of a group, the first three of its exceptions.

    Secrets are redacted, because the text leaves the process and the model may repeat it to a user.
    """
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(map(reason_of, inner[:3])) + (
            f"; and {len(inner) - 3} more" if len(inner) > 3 else ""
        )
    try:
        text = clip(redact_text(str(error)[:_REDACTED_LENGTH]), 500)
    except Exception as second:  # the __str__ of the app's class failed
        text = f"its message raised {type(second).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
