"""How a tool's callable is called: arguments read, threads used, results and failures put into words."""

from __future__ import annotations

import functools
import inspect
import json
import types
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio.to_thread

from routelock._callables import name_of, resolve, unbound
from routelock._json import sendable
from routelock._redaction import redact_text
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolTimeout
from routelock.tools.schema import clip, describe_error
from routelock.tools.signature import Signature

__all__ = [
    "JsonCall",
    "NoTextError",
    "PythonCall",
    "failure_text",
    "is_async",
    "reason_of",
    "refusal_text",
    "to_text",
]


_LONGEST_REPORT = 800
"""Characters of a report to the model: it stays in the history, and is paid for again and again."""

_LONGEST_READ = 100_000
"""Characters of an exception's text in which secrets are looked for."""

_Arguments = tuple[str, Mapping[str, Any]]
"""JSON text and what it says."""


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling ``function`` gives a coroutine; a partial or callable object may be async too.

    Raises:
        ConfigError: it is not callable, or a generator: a tool has one result.
    """
    if not callable(function):
        raise ConfigError(f"{function!r:.80} is a {type(function).__name__}; a tool is made from a function.")
    inner = unbound(function)
    if not inspect.isroutine(inner) and not inspect.isclass(inner):
        inner = type(inner).__call__
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{name_of(function)!r} is a generator; a tool gives one result: return a list.")
    return inspect.iscoroutinefunction(inner)


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Call it in a worker thread, which sees our context variables; await what it returns if need be.

    A cancelled call is not waited for: a thread cannot be stopped, and a run that is cancelled
    must not hang until it ends by itself.
    """

    def boxed() -> tuple[Any]:
        return (call(),)  # trio refuses a bare awaitable

    (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True)
    return await resolve(value)


def _with_arguments(context: ToolContext[Any], values: Mapping[str, Any]) -> ToolContext[Any]:
    # a test of the user's may well pass a plain RunContext
    return replace(context, arguments=values) if isinstance(cast(object, context), ToolContext) else context


@dataclass(frozen=True, slots=True)
class PythonCall:
    """Calls a function with the arguments that its signature reads."""

    function: Callable[..., Any]
    signature: Signature
    is_async: bool

    def bind(self, instance: object) -> PythonCall:
        """Return the same call as a method of ``instance``."""
        function = types.MethodType(self.function, instance)
        return PythonCall(function, replace(self.signature, is_method=False), self.is_async)

    def read(self, text: str) -> dict[str, Any]:
        """Return the validated arguments.

        Raises:
            ModelBehaviorError: the text does not fit; the message is for the model.
            ConfigError: this is a method that has no instance yet.
        """
        if self.signature.is_method:
            raise ConfigError(
                f"{self.signature.name!r} is a method: take the tool from an instance of its class."
            )
        return self.signature.read(text)

    async def call(self, context: ToolContext[Any], values: dict[str, Any]) -> Any:
        """Call the function with what `read` returned."""
        signature = self.signature
        if signature.context is not None:
            context = _with_arguments(context, values)
        elif self.is_async and not signature.positional and signature.rest is None:
            return await self.function(**values)
        arguments, named = signature.arrange(values, context)
        if self.is_async:
            return await self.function(*arguments, **named)
        return await _in_thread(functools.partial(self.function, *arguments, **named))

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Read and call, with no policy about errors."""
        return await self.call(context, self.read(arguments))


@dataclass(frozen=True, slots=True)
class JsonCall:
    """Calls a function that takes the arguments as JSON text, once it is sure of being an object."""

    function: Callable[[ToolContext[Any], str], Any]
    schema: Mapping[str, Any]
    is_async: bool

    def read(self, text: str) -> _Arguments:
        """Return the text and what it says. The rest of the schema is the function's to check.

        Raises:
            ModelBehaviorError: not JSON, not an object, or a required key is missing.
        """
        from pydantic_core import from_json  # noqa: PLC0415 - see `routelock.tools.schema`

        sent = "{}" if not text or text.strip() in ("", "null") else text
        try:
            values: object = from_json(sent)
        except (ValueError, TypeError) as error:  # a TypeError for half a surrogate pair
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
        text, found = values
        context = _with_arguments(context, found)
        if self.is_async:
            return await self.function(context, text)
        return await _in_thread(functools.partial(self.function, context, text))


# -- words --


class NoTextError(Exception):
    """A result that cannot be shown to a model."""


def to_text(value: object, most: int | None = None) -> str:
    """Return a tool's result as text: text as it is, None as nothing, anything else as JSON.

    An object without a JSON form of its own is shown as its ``str``, if its class gives it one.

    Args:
        value: what the tool returned.
        most: so many characters of it, and a notice that tells how much is missing; None is all.

    Raises:
        NoTextError: it has neither, refers to itself, or is bytes that are not UTF-8 text.
    """
    text = _whole_text(value)
    if most is None or len(text) <= most:
        return text
    end = _boundary(text, most)
    return (
        f"{text[:end]}\n[Cut off here: {len(text) - end} of {len(text)} characters are not shown. "
        "Ask for a smaller part if there is a way.]"
    )


def _boundary(text: str, most: int) -> int:
    """Return where to cut, at most some places earlier, so that no letter loses what belongs to it."""
    for end in range(most, max(0, most - 20), -1):
        after = text[end]
        joined = "\u200d" in (after, text[end - 1])  # emoji are joined with it
        toned = "\U0001f3fb" <= after <= "\U0001f3ff"  # a colour of skin
        if not joined and not toned and not unicodedata.category(after).startswith("M"):
            return end
    return most


def _whole_text(value: object) -> str:
    if isinstance(value, str):
        return sendable(str.__str__(value))  # the value of a string enum, not its name
    if value is None:
        return ""
    from pydantic_core import PydanticSerializationError, to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    odd: list[object] = []

    def own_text(each: object) -> str:
        odd.append(each)
        return str(each)

    try:
        if isinstance(value, bytes):
            return value.decode()
        text = to_json(value, inf_nan_mode="strings", fallback=own_text).decode()
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        return _without_halves(value, error)
    for each in odd:
        if not _speaks(type(each)):
            raise NoTextError(f"a value of type {type(each).__name__} has no JSON form")
    return str(value) if odd and odd[0] is value else text


def _without_halves(value: object, error: ValueError) -> str:
    """Return JSON data with U+FFFD for each half of a surrogate pair.

    A list of the files in a folder has some, if one of the names is not UTF-8.

    Raises:
        NoTextError: it is something else that failed.
    """
    from pydantic_core import to_json  # noqa: PLC0415 - see `routelock.tools.schema`

    try:
        data = sendable(json.loads(json.dumps(value)))
        return to_json(data, inf_nan_mode="strings").decode()
    except (TypeError, ValueError, RecursionError):
        raise NoTextError(str(error)) from error


def _speaks(kind: Any) -> bool:
    """Whether a class says something about its objects. "<object at 0x7f...>" helps nobody."""
    says_nothing = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return not says_nothing and kind.__module__ != "builtins"


def refusal_text(name: str, error: ModelBehaviorError) -> str:
    """Tell the model that its arguments did not fit."""
    return clip(f"Tool {name!r} was not run.\n{error}", _LONGEST_REPORT)


def failure_text(name: str, error: Exception) -> str:
    """Tell the model that a call went wrong, and whether the tool ran."""
    if isinstance(error, ToolTimeout):
        return str(error)
    if isinstance(error, NoTextError):
        return clip(f"Tool {name!r} ran, but its result cannot be shown: {error}.", _LONGEST_REPORT)
    return clip(f"Tool {name!r} failed: {reason_of(error)}", _LONGEST_REPORT)


def reason_of(error: BaseException) -> str:
    """Return an exception in one phrase, as a model may be told it; of a group, the exceptions in it.

    Secrets are redacted: models are a vendor's, and repeat what they are told to whoever asks.
    """
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(map(reason_of, inner[:3])) + (
            f"; and {len(inner) - 3} more" if len(inner) > 3 else ""
        )
    try:
        text = clip(redact_text(str(error)[:_LONGEST_READ]), 500)
    except Exception as second:  # a class of the user's whose __str__ is broken
        text = f"its message raised {type(second).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
