"""Calls of a tool: the arguments are read and checked, the function runs, and the outcome is made."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio.to_thread

from routelock._callables import is_spurious_cancel
from routelock._concurrency import call_in_time
from routelock.context import ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolError, ToolTimeout
from routelock.guardrails import GuardrailRecord
from routelock.tools.failures import failed, refusal_text
from routelock.tools.outcome import ToolOutcome, outcome_of, to_text
from routelock.tools.schema import describe_error, misfit
from routelock.tools.screening import screen_arguments, screen_outcome

if TYPE_CHECKING:
    import pydantic

    from routelock.tools.tool import Tool

__all__ = [
    "PythonCall",
    "Signature",
    "ToolCallable",
    "invoke",
    "run_in_thread",
    "with_arguments",
]


async def invoke(
    tool: Tool, context: ToolContext[Any], arguments: str, records: list[GuardrailRecord] | None = None
) -> ToolOutcome:
    """Make one call of a tool and return its outcome; see `Tool.invoke`."""
    records = [] if records is None else records
    try:
        values = tool.invoker.read(arguments)
    except ModelBehaviorError as error:
        return ToolOutcome(refusal_text(tool.name, error), error="arguments", exception=error)
    except ConfigError:
        raise
    except Exception as error:  # raised by a validator of the app
        return await screen_outcome(tool, context, await failed(tool, context, error), records)
    if not (tool.input_guardrails or tool.output_guardrails):
        return await _run(tool, context, values)
    answer = await screen_arguments(tool, context, values, records)
    if answer is not None:
        return ToolOutcome(to_text(answer), error="guardrail")
    outcome = await _run(tool, context, values)
    return await screen_outcome(tool, context, outcome, records)


async def _run(tool: Tool, context: ToolContext[Any], values: Any) -> ToolOutcome:
    try:
        if tool.timeout is None:
            value = await tool.invoker.call(context, values)
        else:
            call = partial(tool.invoker.call, context, values)
            value = await call_in_time(call, tool.timeout, partial(_timed_out, tool))
        return outcome_of(value, tool.max_result)
    except Exception as error:
        return await failed(tool, context, error)
    except BaseException as error:
        if not is_spurious_cancel(error):
            raise
        wrapped = ToolError("it raised a cancellation although nothing cancelled it")
        wrapped.__cause__ = error
        return await failed(tool, context, wrapped)


def _timed_out(tool: Tool) -> ToolTimeout:
    return ToolTimeout(f"Tool {tool.name!r} timed out after {tool.timeout:g}s.")


async def run_in_thread(call: Callable[[], Any]) -> Any:
    """Call a function that is not async in a worker thread with the same context variables.

    A cancelled call in a thread goes on by itself, because a thread cannot be stopped; the run does not wait
    for it.
    """

    def boxed() -> tuple[Any]:
        return (call(),)  # trio refuses an awaitable that is not in a tuple

    (value,) = await anyio.to_thread.run_sync(boxed, abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


def with_arguments(context: ToolContext[Any], values: Mapping[str, Any]) -> ToolContext[Any]:
    """Return the context of a call with its validated arguments."""
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
        """Make the call with the arguments that `read` returned."""
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
        """Call the function with the arguments that `read` returned."""
        if self.signature.context is not None:
            context = with_arguments(context, values)
        arguments, named = self.signature.arrange(values, context)
        if self.is_async:
            return await self.function(*arguments, **named)
        return await run_in_thread(partial(self.function, *arguments, **named))

    async def __call__(self, context: ToolContext[Any], arguments: str) -> Any:
        """Parse the arguments and call the function; errors are raised as they are."""
        return await self.call(context, self.read(arguments))
