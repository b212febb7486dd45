"""The class `Tool`: a function that a model may call, and the outcome of a call.

`routelock.tool` and `routelock.function_tool` make a tool from a function; `Tool` itself takes a JSON schema
and a callable. Everything that a call needs is computed when the tool is made.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, is_error, is_spurious_cancel, resolve
from routelock._concurrency import call_in_time
from routelock._json import detached, sendable
from routelock._tool_names import odd_tool_name
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolError, ToolTimeout
from routelock.guardrails import GuardrailRecord, ToolGuardrail, screened
from routelock.handoff_request import HandoffRequest
from routelock.history.content import chat_part, media_of
from routelock.scopes import Scope, checked_scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import (
    JsonCall,
    NoTextError,
    PythonCall,
    ToolCallable,
    failure_text,
    is_async,
    reason_of,
    refusal_text,
    to_text,
)
from routelock.tools.schema import strict_schema
from routelock.usage import Usage, is_usage

__all__ = [
    "FunctionTool",
    "IsEnabled",
    "OnError",
    "Tool",
    "ToolErrorKind",
    "ToolOutcome",
    "ToolResult",
    "outcome_of",
]


ToolErrorKind = Literal["arguments", "raised", "timeout", "output", "guardrail", "not_run", "cancelled"]
"""Why a call has no result. ``"arguments"``: they do not match the schema, so the tool did not run.
``"raised"`` and ``"timeout"``: the tool failed. ``"output"``: it ran, and its result has no text form.
``"guardrail"``: a guardrail of the tool objected, before or after the call. ``"not_run"`` and
``"cancelled"``: another call of the same reply ended the run, before this call began or before it ended."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of one call. Its ``output`` is the text of the tool result, also for a failed call."""

    output: str
    error: ToolErrorKind | None = None
    """None if the call succeeded."""
    usage: Usage | None = None
    handoff: HandoffRequest | None = None
    """The handoff request that the function returned, if any; ``output`` is the result after the handoff."""
    media: Sequence[Mapping[str, Any]] = ()
    """Images, sound and files that belong to the ``output``, as parts of a chat message."""
    exception: BaseException | None = field(default=None, compare=False)
    """The exception of a failed call; it exists only in the process that made the call."""
    value: Any = field(default=None, compare=False)
    """The value that the function returned; it exists only in the process that made the call."""

    def envelope(self) -> dict[str, Any]:
        """Return the outcome as JSON data: ``{"ok": {...}}`` or ``{"err": {...}}``."""
        if self.error is not None:
            failed = {"type": self.error, "message": self.output, "retryable": False}
            return {"err": failed | ({"usage": asdict(self.usage)} if self.usage else {})}
        made: dict[str, Any] = {"output": self.output, "usage": asdict(self.usage) if self.usage else None}
        if self.media:
            made["media"] = list(self.media)
        if self.handoff is not None:
            made["handoff"] = self.handoff.envelope()
        return {"ok": made}

    @classmethod
    def from_envelope(cls, envelope: Mapping[str, Any]) -> ToolOutcome:
        """Return the outcome of an `envelope`, without ``exception`` and ``value``."""
        if "err" in envelope:
            failed: Mapping[str, Any] = envelope["err"]
            usage = Usage(**failed["usage"]) if failed.get("usage") else None
            return cls(failed["message"], error=failed["type"], usage=usage)
        made: Mapping[str, Any] = envelope["ok"]
        asked: Mapping[str, Any] | None = made.get("handoff")
        return cls(
            made["output"],
            usage=Usage(**made["usage"]) if made["usage"] else None,
            handoff=HandoffRequest.from_envelope(asked) if asked else None,
            media=made.get("media", ()),
        )


_NOT_KNOWN = "It is not known whether it had an effect. Check that first if it matters."

NOT_RUN = ToolOutcome(
    "This call was not made, because another call of the same reply ended the run first.", error="not_run"
)

CUT_OFF = ToolOutcome(
    f"This call was cancelled, because another call of the same reply ended the run. {_NOT_KNOWN}",
    error="cancelled",
)

LOST = ToolOutcome(
    f"Another call of the same reply ended the run before this one was recorded. {_NOT_KNOWN}",
    error="cancelled",
)
"""The outcomes of calls whose run was ended by another call of the same reply."""

OnError = Literal["report", "raise"] | Callable[[ToolContext[Any], Exception], MaybeAwaitable[str]]
"""What happens when a tool fails: ``"report"`` reports the error to the model, ``"raise"`` stops the run, and
a function makes the text for the model."""

IsEnabled = bool | Callable[[RunContext[Any], Any], MaybeAwaitable[bool]]
"""Whether a tool is offered: a bool, or a function of the context and the agent, called in each turn and
before each call."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A result with usage or media, for a tool that returns more than its content."""

    content: Any
    """The content for the model: text as it is, anything else as JSON; or a `HandoffRequest`."""
    usage: Usage | None = None
    """The usage of the tool itself, for example of a model that it called; added to the run's usage."""
    media: Sequence[Mapping[str, Any]] = ()
    """Images, sound and files that belong to the content, as parts of a chat message:
    ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``."""


Context = TypeVar("Context", default=Any, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool(Generic[Context]):
    """A function that a model may call, with its schema and its settings.

    ``Context`` is the type of the object that a run gets as ``context=``, as the function expects it.

    Make one from a function with `tool` or `function_tool`. If you have the schema already, make one
    directly: the sync or async ``on_invoke_tool`` gets the context and the arguments as JSON text, which is
        an object
    with all required keys.

    Raises:
        ConfigError: providers refuse the name, or another field is invalid.
    """

    name: str
    """1 to 64 letters, digits, underscores and dashes."""
    description: str = ""
    """What the tool does, for the model."""
    params_json_schema: Mapping[str, Any] = field(default_factory=lambda: {})
    """The JSON schema of the arguments, which are an object; empty means no arguments."""
    on_invoke_tool: Callable[[ToolContext[Any], str], Any] = field(repr=False)
    strict: bool = True
    """Whether ``params_json_schema`` is in the strict form, see `strict_schema`. If the schema has no strict
    form, this becomes False and the schema stays as it is."""
    timeout: float | None = None
    """The time limit of a call in seconds; None is no limit. A thread cannot be stopped: see
    docs/tool-calls.md."""
    is_enabled: IsEnabled = True
    scope: Scope = "all"
    """Which runs may use the tool, see `routelock.scopes`. Other runs are not offered it and cannot call
    it."""
    on_error: OnError = "report"
    """What happens when the tool fails. Arguments that do not match are always reported to the model."""
    max_result: int | None = 100_000
    """The most characters of a result that the model is shown; a notice says what was cut. None is no
    limit."""
    needs_approval: NeedsApproval = False
    """Whether a call needs approval; the run ends and waits for the decision, see docs/approvals.md."""
    input_guardrails: Sequence[ToolGuardrail] = ()
    """Functions that check the arguments before each call, see `routelock.guardrails`."""
    output_guardrails: Sequence[ToolGuardrail] = ()
    """Functions that check the result of each call before the model is shown it."""
    deferred: bool | None = None
    """Whether the tool is offered only after the model has found it in a search; None leaves that to the
    `routelock.tools.ToolSearch` of the agent or the run."""
    spec: Mapping[str, Any] = field(init=False, repr=False)
    """The tool in chat-completions form. It is shared by all calls: do not change it."""
    wants_context: bool = field(init=False, repr=False)
    """Whether the function, a guardrail or ``on_error`` uses the context of a call."""
    _read: Callable[[str], Any] = field(init=False, repr=False)
    _call: Callable[[ToolContext[Any], Any], Awaitable[Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "scope", checked_scope(self.scope, f"Tool {self.name!r}"))
        strict = strict_schema(self.params_json_schema) if self.strict else None
        _set(self, "strict", strict is not None)
        schema = self.params_json_schema if strict is None else strict
        _set(self, "params_json_schema", sendable(schema))  # an MCP server may have sent it
        _set(self, "spec", sendable(_spec(self)))
        call: Any = self.on_invoke_tool
        if not isinstance(call, ToolCallable):
            call = JsonCall(call, self.params_json_schema, is_async(call))
        _set_call(self, call)

    @property
    def function(self) -> Any:
        """The function that the tool was made from, for tests that call it; None if there is none."""
        return self.on_invoke_tool.function if isinstance(self.on_invoke_tool, PythonCall) else None

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Tool:
        """Return the tool of a method, bound to the instance that it was taken from."""
        call = self.on_invoke_tool
        if instance is None or not isinstance(call, PythonCall) or not call.signature.is_method:
            return self
        bound = copy.copy(self)  # only the call differs
        call = call.bind(instance)
        _set(bound, "on_invoke_tool", call)
        _set_call(bound, call)
        return bound

    async def enabled(self, context: RunContext[Any], agent: Any) -> bool:
        """Return whether to offer the tool to ``agent`` in this turn."""
        if isinstance(self.is_enabled, bool):
            return self.is_enabled
        return bool(await resolve(self.is_enabled(context, agent)))

    def fits(self, arguments: str) -> bool:
        """Whether arguments, as JSON text of a model, are valid; they are read as for a call."""
        try:
            self._read(arguments)
        except Exception:
            return False
        return True

    async def invoke(
        self, context: ToolContext[Any], arguments: str, records: list[GuardrailRecord] | None = None
    ) -> ToolOutcome:
        """Make one call and return its outcome.

        Args:
            context: passed to the function if it takes a context, with the validated arguments in it.
            arguments: JSON text as the model wrote it.
            records: gets what each guardrail of the tool found, also if this raises.

        Raises:
            ToolError: the tool failed and ``on_error`` is ``"raise"``, or the ``on_error`` function raised;
                `ToolTimeout` if the call took too long. The cause is chained.
            ToolGuardrailTripped: a guardrail of the tool stopped the run.
            CallbackError: a guardrail raised.
            ConfigError: the tool is a method without an instance.
        """
        try:
            values = self._read(arguments)
        except ModelBehaviorError as error:
            return ToolOutcome(refusal_text(self.name, error), error="arguments", exception=error)
        except ConfigError:
            raise
        except Exception as error:  # raised by a validator of the app
            return await self.failed(context, error)
        if not (self.input_guardrails or self.output_guardrails):
            return await self._run(context, values)
        records = [] if records is None else records
        answer = await self.screen_arguments(context, values, records)
        if answer is not None:
            return ToolOutcome(to_text(answer), error="guardrail")
        outcome = await self._run(context, values)
        return await self.screen_outcome(context, outcome, records)

    async def screen_arguments(
        self, context: ToolContext[Any], values: Any, records: list[GuardrailRecord]
    ) -> str | None:
        """Run the input guardrails on the arguments of a call, and return the text that answers it, if any.

        Raises:
            ToolGuardrailTripped: a guardrail tripped.
            CallbackError: a guardrail raised.
        """
        if not self.input_guardrails:
            return None
        parsed: Any = cast("tuple[str, Any]", values)[1] if isinstance(values, tuple) else values
        return await screened(self.input_guardrails, context, self, parsed, records, "tool_input")

    async def screen_outcome(
        self, context: ToolContext[Any], outcome: ToolOutcome, records: list[GuardrailRecord]
    ) -> ToolOutcome:
        """Run the output guardrails on the outcome of a call, and return it or what replaces it.

        Raises:
            ToolGuardrailTripped: a guardrail tripped.
            CallbackError: a guardrail raised.
        """
        if not self.output_guardrails or outcome.handoff is not None:  # then there is no result to check
            return outcome
        shown = outcome.output
        answer = await screened(self.output_guardrails, context, self, shown, records, "tool_output")
        if answer is None:
            return outcome
        return ToolOutcome(to_text(answer), error="guardrail", usage=outcome.usage)

    async def _run(self, context: ToolContext[Any], values: Any) -> ToolOutcome:
        try:
            if self.timeout is None:
                value = await self._call(context, values)
            else:
                call = partial(self._call, context, values)
                value = await call_in_time(call, self.timeout, self._timed_out)
            return outcome_of(value, self.max_result)
        except Exception as error:
            return await self.failed(context, error)
        except BaseException as error:
            if not is_spurious_cancel(error):
                raise
            wrapped = ToolError("it was cancelled from within")
            wrapped.__cause__ = error
            return await self.failed(context, wrapped)

    def _timed_out(self) -> ToolTimeout:
        return ToolTimeout(f"Tool {self.name!r} timed out after {self.timeout:g}s.")

    async def failed(self, context: ToolContext[Any], error: Exception) -> ToolOutcome:
        """Return the outcome of a call that failed with ``error``, or raise, as ``on_error`` demands.

        Raises:
            ToolError: as `invoke` does.
        """
        text, kind = failure_text(self.name, error), _kind(error)
        if self.on_error == "raise":
            if kind == "timeout":
                raise error
            raise ToolError(text) from error
        if self.on_error != "report":
            try:
                text = to_text(await resolve(self.on_error(context, error)), self.max_result)
            except BaseException as second:
                if not is_error(second):
                    raise
                if second is error:  # on_error raised the tool's own error again
                    raise ToolError(text) from error
                raise ToolError(f"on_error of tool {self.name!r} raised {reason_of(second)}") from second
        return ToolOutcome(text, error=kind, exception=error)


FunctionTool = Tool
"""The name by which users of openai-agents know `Tool`."""


def _set(target: Tool, name: str, value: object) -> None:
    """Set a field of a frozen tool while the tool is being made."""
    object.__setattr__(target, name, value)


def _set_call(target: Tool, call: ToolCallable) -> None:
    has_callbacks = target.input_guardrails or target.output_guardrails or callable(target.on_error)
    takes_none = isinstance(call, PythonCall) and call.signature.context is None and not has_callbacks
    _set(target, "wants_context", not takes_none)
    _set(target, "_read", call.read)
    _set(target, "_call", call.call)


def _spec(made: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": made.name}
    if made.description:  # some providers refuse an empty one
        function["description"] = made.description
    function["parameters"] = made.params_json_schema
    if made.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _check(made: Tool) -> None:
    kind = made.params_json_schema.get("type", "object")
    odd, enabled = odd_tool_name(made.name), cast(object, made.is_enabled)
    gated = cast(object, made.needs_approval)
    rules = (
        (not odd, f"its name has {odd}; providers accept 1 to 64 of a-z, A-Z, 0-9, _ and -"),
        (made.timeout is None or made.timeout > 0, f"timeout must be seconds or None, not {made.timeout!r}"),
        (
            made.on_error in ("report", "raise") or callable(made.on_error),
            f"on_error must be 'report', 'raise' or a function, not {made.on_error!r}",
        ),
        (
            isinstance(enabled, bool) or callable(enabled),
            f"is_enabled must be a bool or a function, not {enabled!r}",
        ),
        (
            isinstance(gated, bool) or callable(gated),
            f"needs_approval must be a bool or a function, not {gated!r}",
        ),
        (
            made.max_result is None or made.max_result > 0,
            f"max_result must be a number of characters or None, not {made.max_result!r}",
        ),
        (
            all(map(callable, (*made.input_guardrails, *made.output_guardrails))),
            "input_guardrails and output_guardrails are lists of functions",
        ),
        (
            cast(object, made.deferred) in (True, False, None),
            f"deferred must be True, False or None, not {made.deferred!r}",
        ),
        (kind == "object", f"params_json_schema must describe an object with the arguments, not {kind!r}"),
    )
    wrong = [message for holds, message in rules if not holds]
    if wrong:
        raise ConfigError(f"Tool {made.name!r}: {'; '.join(wrong)}.")


def outcome_of(value: Any, most: int | None) -> ToolOutcome:
    """Return the outcome of a call that returned ``value``.

    Args:
        value: the result of the function.
        most: the most characters of it that the model is shown; None is no limit.

    Raises:
        NoTextError: the value has no text form.
    """
    if isinstance(value, str):
        return ToolOutcome(output=to_text(value, most), value=value)
    content: object = value.content if isinstance(value, ToolResult) else value
    usage = value.usage if isinstance(value, ToolResult) else None
    if usage is not None and not is_usage(usage):
        raise NoTextError(f"usage must be a routelock.Usage of numbers, not {usage!r:.80}")
    if isinstance(content, HandoffRequest):
        return ToolOutcome(output=content.answer, usage=usage, value=value, handoff=content)
    if _contains_request(content):
        raise NoTextError("a HandoffRequest must be returned by itself, not in a list")
    if hasattr(type(content), "handoff_description"):  # an agent: its instructions are not for this model
        name = getattr(content, "name", "")
        raise NoTextError(f"an agent is no result: put it into handoffs, or return HandoffRequest({name!r})")
    media = _media(value.media) if isinstance(value, ToolResult) and value.media else ()
    return ToolOutcome(output=to_text(content, most), usage=usage, value=value, media=media)


def _media(given: Sequence[Mapping[str, Any]]) -> Sequence[dict[str, Any]]:
    parts = [detached(dict(chat_part(part))) for part in given]  # the tool may change its own list later
    if len(media_of(parts)) < len(parts):
        raise NoTextError("media has a part that is not an image, sound or file of a chat message")
    return parts


def _contains_request(content: object) -> bool:
    if isinstance(content, str) or not isinstance(content, list | tuple):
        return False
    return any(isinstance(each, HandoffRequest) for each in cast("Sequence[object]", content))


def _kind(error: Exception) -> ToolErrorKind:
    if isinstance(error, ToolTimeout):
        return "timeout"
    return "output" if isinstance(error, NoTextError) else "raised"
