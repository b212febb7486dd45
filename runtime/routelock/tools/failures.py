"""Calls of tools that failed: their outcome, and the report to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from routelock._callables import is_error, resolve
from routelock._redaction import redact_text
from routelock._text import clip
from routelock.context import ToolContext
from routelock.errors import (
    GuardrailTripped,
    HandlerError,
    InputGuardrailTripped,
    ModelBehaviorError,
    ToolError,
    ToolTimeout,
)
from routelock.tools.outcome import NoTextError, ToolErrorKind, ToolOutcome, to_text

if TYPE_CHECKING:
    from routelock.tools.tool import Tool

__all__ = ["failed", "failure_text", "reason_for_model", "reason_of", "refusal_text", "text_for_app"]


_LONGEST_REPORT = 800
"""Most characters of an error report to the model: it stays in the history and costs tokens in each turn."""

_REDACTED_LENGTH = 100_000
"""How many characters of an exception's text are searched for secrets; the rest is dropped."""


async def failed(
    tool: Tool, context: ToolContext[Any], error: Exception, *, of_agent: bool = False
) -> ToolOutcome:
    """Return the outcome of a call that failed with ``error``, or raise, as ``on_error`` demands.

    Args:
        tool: the tool.
        context: the context of the call.
        error: why it failed.
        of_agent: whether an agent failed that was called as a tool, see `failure_text`.

    Raises:
        ToolError: ``on_error`` is ``"raise"``, or its function raised; a `ToolTimeout` stays one.
    """
    text, kind = failure_text(tool.name, error, of_agent=of_agent), _kind(error)
    if tool.on_error == "raise":
        if kind == "timeout":
            raise error
        raise ToolError(failure_text(tool.name, error)) from error
    if tool.on_error != "report":
        try:
            text = to_text(await resolve(tool.on_error(context, error)), tool.max_result)
        except BaseException as second:
            if not is_error(second):
                raise
            if second is error:  # on_error raised the tool's own error again
                raise ToolError(failure_text(tool.name, error)) from error
            raise ToolError(f"on_error of tool {tool.name!r} raised {reason_of(second)}") from second
    return ToolOutcome(text, error=kind, exception=error)


def _kind(error: Exception) -> ToolErrorKind:
    if isinstance(error, ToolTimeout):
        return "timeout"
    return "output" if isinstance(error, NoTextError) else "raised"


def refusal_text(name: str, error: ModelBehaviorError) -> str:
    """Return the report to the model about arguments that do not match the schema."""
    return clip(f"Tool {name!r} was not run.\n{error}", _LONGEST_REPORT)


def failure_text(name: str, error: Exception, *, of_agent: bool = False) -> str:
    """Return the report to the model about a failed call; it says whether the tool ran.

    What a function of the app raises is shown as it is: an engine that replays the call has only this text.
    What ended the run of an agent is shown as `reason_for_model` says.
    """
    if isinstance(error, ToolTimeout):
        return _redacted(error)
    if isinstance(error, NoTextError):
        why = _redacted(error)
        return clip(f"Tool {name!r} ran, but its result cannot be shown: {why}.", _LONGEST_REPORT)
    why = reason_for_model(error) if of_agent else reason_of(error)
    return clip(f"Tool {name!r} failed: {why}", _LONGEST_REPORT)


def text_for_app(text: str, error: BaseException | None) -> str:
    """Return the report about a failed call as the app sees it: with all of the error's own text."""
    return text if error is None else text.replace(reason_for_model(error), reason_of(error), 1)


def reason_for_model(error: BaseException) -> str:
    """Return an exception as one phrase for a model: advice for a developer is replaced or left out."""
    from routelock.tools.error_advice import advice_of  # noqa: PLC0415 - for runs in which something fails

    if advice := advice_of(error):
        return f"{type(error).__name__}: {advice}"
    cause = error.__cause__
    if not isinstance(error, ToolError) or cause is None:
        return reason_of(error)
    return reason_of(error).replace(reason_of(cause), reason_for_model(cause), 1)  # see `failed`


def reason_of(error: BaseException) -> str:
    """Return an exception as one phrase; of a group, the first three of its exceptions.

    Secrets are redacted, because the text leaves the process and the model may repeat it to a user. The
    report of an output or tool guardrail is left out, because it may quote what the guardrail stopped. That
    of an input guardrail is about the input, which the caller knows. Of a handler that raised,
    it is what the handler raised, which is the same if an executor recorded the failure.
    """
    if isinstance(error, GuardrailTripped) and not isinstance(error, InputGuardrailTripped):
        return f"{type(error).__name__}: guardrail {error.guardrail!r} stopped it"
    if isinstance(error, HandlerError) and error.raised:
        return error.raised
    if isinstance(error, BaseExceptionGroup):
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return "; ".join(map(reason_of, inner[:3])) + (
            f"; and {len(inner) - 3} more" if len(inner) > 3 else ""
        )
    text = _redacted(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _redacted(error: BaseException) -> str:
    """Return the text of an exception without what looks like a secret."""
    try:
        return clip(redact_text(str(error)[:_REDACTED_LENGTH]), 500)
    except Exception as second:  # the __str__ of the app's class failed
        return f"its message raised {type(second).__name__}"
