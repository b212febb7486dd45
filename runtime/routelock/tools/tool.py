"""Tools: functions that a model may call, and what a call comes to, whatever happens.

A tool is made once, with everything that its calls need worked out: `routelock.tool` and
`routelock.function_tool` make one from a function, `Tool` itself takes a JSON schema and a callable.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, cast

from routelock._callables import MaybeAwaitable, is_error, is_spurious_cancel, resolve
from routelock._concurrency import call_in_time
from routelock._json import detached, sendable
from routelock._tool_names import odd_tool_name
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError, ModelBehaviorError, ToolError, ToolTimeout
from routelock.guardrails import ToolGuardrail, screened
from routelock.handoff_request import HandoffRequest
from routelock.history.content import chat_part, media_of
from routelock.scopes import Scope, checked_scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import (
    JsonCall,
    NoTextError,
    PythonCall,
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
"""Why a call has no proper result: the model's arguments did not fit and nothing ran; the tool
raised; it took too long; it ran and what it returned cannot be shown as text; a guardrail of the tool
objected, before or after; or another call of the same reply ended the run, before this one was begun or
before it was done."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """How one call ended. There is always an ``output``: the text that answers the call."""

    output: str
    error: ToolErrorKind | None = None
    """None when the tool did what it was asked."""
    usage: Usage | None = None
    handoff: HandoffRequest | None = None
    """What the function returned, if that asks for a handoff; ``output`` is the answer once it is made."""
    media: Sequence[Mapping[str, Any]] = ()
    """Parts of a chat message that belong to the ``output``: images, sound, files."""
    exception: BaseException | None = field(default=None, compare=False)
    """What was raised; only in the process where it happened."""
    value: Any = field(default=None, compare=False)
    """What the function returned; only in the process where it happened."""

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
        """Return the outcome that `envelope` was made from, without the Python objects."""
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


_NOT_KNOWN = "Whether it had an effect is not known. Find out first, if that matters."

NOT_RUN = ToolOutcome(
    "This call was not made, because another call of the same reply ended the run before.", error="not_run"
)

CUT_OFF = ToolOutcome(
    f"This call was cancelled, because another call of the same reply ended the run. {_NOT_KNOWN}",
    error="cancelled",
)

LOST = ToolOutcome(
    f"Another call of the same reply ended the run before this one was recorded. {_NOT_KNOWN}",
    error="cancelled",
)
"""The outcomes of calls beside one that ended the run."""

OnError = Literal["report", "raise"] | Callable[[ToolContext[Any], Exception], MaybeAwaitable[str]]
"""What a failing tool does: answer the model and go on, stop the run, or answer with this text."""

IsEnabled = bool | Callable[[RunContext[Any], Any], MaybeAwaitable[bool]]
"""Whether a tool is offered: asked with the context and the agent in every turn, and before each call."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns when it has more to say than its content."""

    content: Any
    """Shown to the model: text as it is, anything else as JSON. Or a `HandoffRequest`."""
    usage: Usage | None = None
    """What the tool itself consumed, by calling a model for instance; added to the run's usage."""
    media: Sequence[Mapping[str, Any]] = ()
    """Images, sound and files that belong to the content, as parts of a chat message, such as
    ``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool:
    """Something that a model may call.

    Make one from a function with `tool` or `function_tool`. Make one directly where the schema comes
    from elsewhere: ``on_invoke_tool`` is then given the context and the arguments as JSON text, which
    is an object with all required keys, and may be sync or async.

    Raises:
        ConfigError: the name is one that providers refuse, or another field cannot work.
    """

    name: str
    """1 to 64 letters, digits, underscores and dashes."""
    description: str = ""
    """What the tool does, for the model."""
    params_json_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The arguments, as the JSON schema of an object; empty means none."""
    on_invoke_tool: Callable[[ToolContext[Any], str], Any] = field(repr=False)
    strict: bool = True
    """Whether ``params_json_schema`` is in the strict form. Asking for it gives it where there is one
    (see `strict_schema`); where there is none this becomes False and the schema stays as it is."""
    timeout: float | None = None
    """Seconds; None is for ever. A thread cannot be stopped: see docs/tools.md."""
    is_enabled: IsEnabled = True
    scope: Scope = "all"
    """Who may use the tool, see `routelock.scopes`. Others are not offered it and cannot call it."""
    on_error: OnError = "report"
    """For the tool's own failures. Arguments that do not fit are always reported to the model."""
    max_result: int | None = 100_000
    """So many characters of a result are shown to the model, which is told what was cut; None is all."""
    needs_approval: NeedsApproval = False
    """Whether somebody has to approve a call first: the run ends with it, see docs/approvals.md."""
    input_guardrails: Sequence[ToolGuardrail] = ()
    """Look at the arguments of each call before it is made, see `routelock.guardrails`."""
    output_guardrails: Sequence[ToolGuardrail] = ()
    """Look at what the model is to be shown of each call."""
    spec: Mapping[str, Any] = field(init=False, repr=False)
    """The tool as chat completions spells it; made once and shared, so do not change it."""
    wants_context: bool = field(init=False, repr=False)
    """Whether anything of it looks at the context of a call; if not, none needs to be made."""
    _read: Callable[[str], Any] = field(init=False, repr=False)
    _call: Callable[[ToolContext[Any], Any], Awaitable[Any]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "scope", checked_scope(self.scope, f"Tool {self.name!r}"))
        strict = strict_schema(self.params_json_schema) if self.strict else None
        _set(self, "strict", strict is not None)
        schema = self.params_json_schema if strict is None else strict
        _set(self, "params_json_schema", sendable(schema))  # whoever listed it, an MCP server, say
        _set(self, "spec", sendable(_spec(self)))
        how: Any = self.on_invoke_tool
        if not isinstance(how, PythonCall):
            how = JsonCall(how, self.params_json_schema, is_async(how))
        _use(self, how)

    @property
    def function(self) -> Any:
        """The function that the tool was made from, to be called in tests; None if there is none."""
        return self.on_invoke_tool.function if isinstance(self.on_invoke_tool, PythonCall) else None

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Tool:
        """Bind a tool that was made in the body of a class to the instance it is taken from."""
        how = self.on_invoke_tool
        if instance is None or not isinstance(how, PythonCall) or not how.signature.is_method:
            return self
        bound = copy.copy(self)  # all but the call stays as it was worked out
        how = how.bind(instance)
        _set(bound, "on_invoke_tool", how)
        _use(bound, how)
        return bound

    async def enabled(self, context: RunContext[Any], agent: Any) -> bool:
        """Return whether the tool is to be offered to ``agent`` now."""
        if isinstance(self.is_enabled, bool):
            return self.is_enabled
        return bool(await resolve(self.is_enabled(context, agent)))

    def fits(self, arguments: str) -> bool:
        """Whether the arguments, JSON text as the model wrote it, are such that the tool would be called."""
        try:
            self._read(arguments)
        except Exception:
            return False
        return True

    async def invoke(self, context: ToolContext[Any], arguments: str) -> ToolOutcome:
        """Answer one call.

        Args:
            context: handed to the function if it asks for it, with the validated arguments in it.
            arguments: JSON text as the model wrote it.

        Raises:
            ToolError: the tool failed and ``on_error`` is ``"raise"``, or the ``on_error`` function
                raised. `ToolTimeout` if it took too long. The cause is chained.
            ToolGuardrailTripped: a guardrail of the tool said stop.
            CallbackError: one of them raised.
            ConfigError: the tool is a method and was not taken from an instance.
        """
        try:
            values = self._read(arguments)
        except ModelBehaviorError as error:
            return ToolOutcome(refusal_text(self.name, error), error="arguments", exception=error)
        except ConfigError:
            raise
        except Exception as error:  # out of a validator of the user's
            return await self.failed(context, error)
        parsed: Any = cast("tuple[str, Any]", values)[1] if isinstance(values, tuple) else values
        answer = await screened(self.input_guardrails, context, self, parsed)
        if answer is not None:
            return ToolOutcome(to_text(answer), error="guardrail")
        outcome = await self._run(context, values)
        if outcome.handoff is not None:  # there is no result to check
            return outcome
        answer = await screened(self.output_guardrails, context, self, outcome.output)
        if answer is None:
            return outcome
        return ToolOutcome(to_text(answer), error="guardrail", usage=outcome.usage)

    async def _run(self, context: ToolContext[Any], values: Any) -> ToolOutcome:
        try:
            value = await call_in_time(partial(self._call, context, values), self.timeout, self._timed_out)
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
        """Return the outcome of a call that ended with ``error``, as ``on_error`` says, or raise.

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
                if second is error:  # it was not for the model, and says itself what happened
                    raise ToolError(text) from error
                raise ToolError(f"on_error of tool {self.name!r} raised {reason_of(second)}") from second
        return ToolOutcome(text, error=kind, exception=error)


FunctionTool = Tool
"""The name by which users of openai-agents know `Tool`."""


def _set(target: Tool, name: str, value: object) -> None:
    """Fill in a field of a frozen tool while it is being made."""
    object.__setattr__(target, name, value)


def _use(target: Tool, how: PythonCall | JsonCall) -> None:
    guarded = target.input_guardrails or target.output_guardrails or callable(target.on_error)
    blind = isinstance(how, PythonCall) and how.signature.context is None and not guarded
    _set(target, "wants_context", not blind)
    _set(target, "_read", how.read)
    _set(target, "_call", how.call)


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
        (not odd, f"its name has {odd}; providers take 1 to 64 of a-z, A-Z, 0-9, _ and -"),
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
        (kind == "object", f"params_json_schema must describe an object with the arguments, not {kind!r}"),
    )
    wrong = [message for holds, message in rules if not holds]
    if wrong:
        raise ConfigError(f"Tool {made.name!r}: {'; '.join(wrong)}.")


def outcome_of(value: Any, most: int | None) -> ToolOutcome:
    """Return what comes of a call that returned ``value``, of which a model is shown so many characters.

    Raises:
        NoTextError: it cannot be shown to a model.
    """
    content: object = value.content if isinstance(value, ToolResult) else value
    usage = value.usage if isinstance(value, ToolResult) else None
    if usage is not None and not is_usage(usage):
        raise NoTextError(f"usage must be a routelock.Usage of numbers, not {usage!r:.80}")
    if isinstance(content, HandoffRequest):
        return ToolOutcome(output=content.answer, usage=usage, value=value, handoff=content)
    if _hides_a_request(content):
        raise NoTextError("a HandoffRequest hands over only when it is returned by itself")
    media = _media(value.media) if isinstance(value, ToolResult) and value.media else ()
    return ToolOutcome(output=to_text(content, most), usage=usage, value=value, media=media)


def _media(given: Sequence[Mapping[str, Any]]) -> Sequence[dict[str, Any]]:
    parts = [detached(dict(chat_part(part))) for part in given]  # the tool may keep what it gave
    if len(media_of(parts)) < len(parts):
        raise NoTextError("media holds something that is no image, sound or file of a chat message")
    return parts


def _hides_a_request(content: object) -> bool:
    if isinstance(content, str) or not isinstance(content, list | tuple):
        return False
    return any(isinstance(each, HandoffRequest) for each in cast("Sequence[object]", content))


def _kind(error: Exception) -> ToolErrorKind:
    if isinstance(error, ToolTimeout):
        return "timeout"
    return "output" if isinstance(error, NoTextError) else "raised"
