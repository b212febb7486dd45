"""The class `Tool`: a function that a model may call. `routelock.tools.invoke` makes the calls.

`routelock.tool` and `routelock.function_tool` make a tool from a function; `Tool` itself takes a JSON schema
and a callable. Everything that a call needs is computed when the tool is made.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeVar

from routelock._callables import MaybeAwaitable, resolve
from routelock._hints import hint_keywords
from routelock._peer_names import TOOL_FIELDS
from routelock._sendable import sendable
from routelock._tool_names import odd_tool_name
from routelock.context import RunContext, ToolContext
from routelock.errors import ConfigError
from routelock.guardrails import GuardrailRecord, ToolGuardrail
from routelock.scopes import Scope, checked_scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import PythonCall, ToolCallable, invoke
from routelock.tools.json_call import JsonCall
from routelock.tools.outcome import ToolOutcome
from routelock.tools.schema import strict_schema
from routelock.tools.signature import is_async

__all__ = [
    "FunctionTool",
    "IsEnabled",
    "OnError",
    "Tool",
]


OnError = Literal["report", "raise"] | Callable[[ToolContext[Any], Exception], MaybeAwaitable[str]]
"""The policy for a tool that fails: ``"report"`` reports the error to the model, ``"raise"`` stops the run,
and a function makes the text for the model."""

IsEnabled = bool | Callable[[RunContext[Any], Any], MaybeAwaitable[bool]]
"""Whether a tool is offered: a bool, or a function of the context and the agent, called in each turn and
before each call."""


Context = TypeVar("Context", default=Any, contravariant=True)


@hint_keywords(TOOL_FIELDS)
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tool(Generic[Context]):
    """A function that a model may call, with its schema and its settings.

    ``Context`` is the type that the function expects of the object that a run gets as ``context=``.

    Make one from a function with `tool` or `function_tool`. If you have the schema already, make one
    directly. Its sync or async ``on_invoke_tool`` gets the context, and the arguments as JSON text of an
    object with all required keys.

    Raises:
        ConfigError: providers refuse the name, or another field is invalid.
    """

    name: str
    """1 to 64 letters, digits, underscores and dashes."""
    description: str = ""
    """The description of the tool, for the model."""
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
    """The policy for failures of the tool. Arguments that do not match are always reported to the model."""
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
    origin: str | None = None
    """Where the tool comes from: the name of an MCP server, or of the agent that answers; None for a function
    of the app. Models are not shown it, but a search finds the tool by it."""
    spec: Mapping[str, Any] = field(init=False, repr=False)
    """The tool in chat-completions form. It is shared by all calls: do not change it."""
    wants_context: bool = field(init=False, repr=False)
    """Whether the function, a guardrail or ``on_error`` uses the context of a call."""
    invoker: ToolCallable = field(init=False, repr=False)
    """Reads the arguments of a call, and makes it."""

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "scope", checked_scope(self.scope, f"Tool {self.name!r}"))
        strict = strict_schema(self.params_json_schema) if self.strict else None
        _set(self, "strict", strict is not None)
        schema = self.params_json_schema if strict is None else strict
        _set(self, "params_json_schema", sendable(schema))  # an MCP server may send half a surrogate pair
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
            self.invoker.read(arguments)
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
        return await invoke(self, context, arguments, records)


FunctionTool = Tool
"""The name by which users of openai-agents know `Tool`."""


def _set(target: Tool, name: str, value: object) -> None:
    """Set a field of a frozen tool while the tool is being made."""
    object.__setattr__(target, name, value)


def _set_call(target: Tool, call: ToolCallable) -> None:
    has_callbacks = target.input_guardrails or target.output_guardrails or callable(target.on_error)
    takes_none = isinstance(call, PythonCall) and call.signature.context is None and not has_callbacks
    _set(target, "wants_context", not takes_none)
    _set(target, "invoker", call)


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
        (
            isinstance(cast(object, made.origin), str | None),
            f"origin must be a name or None, not {made.origin!r:.80}",
        ),
        (kind == "object", f"params_json_schema must describe an object with the arguments, not {kind!r}"),
    )
    wrong = [message for holds, message in rules if not holds]
    if wrong:
        raise ConfigError(f"Tool {made.name!r}: {'; '.join(wrong)}.")
