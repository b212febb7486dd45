"""Tools from functions: the schema comes from the annotations, the description from the docstring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Concatenate, Protocol, TypeGuard, cast, overload

from typing_extensions import ParamSpec, TypeIs, TypeVar

from routelock._hints import hint_keywords
from routelock._peer_names import FUNCTION_TOOL_KEYWORDS, TOOL_KEYWORDS
from routelock._tool_names import frozen_list
from routelock.context import ToolContext
from routelock.errors import ConfigError
from routelock.guardrails import ToolGuardrail
from routelock.scopes import Scope
from routelock.tools.approvals import NeedsApproval
from routelock.tools.invoke import PythonCall
from routelock.tools.signature import is_async, signature_of
from routelock.tools.tool import IsEnabled, OnError, Tool
from routelock.tools.vendor_tool import vendor_tool

__all__ = ["ToolMaker", "function_tool", "is_function", "is_tool", "tool", "with_functions"]


Context = TypeVar("Context", default=Any)

Parameters = ParamSpec("Parameters", default=...)


class ToolMaker(Protocol):
    """Makes a tool from a function: what ``@tool(...)`` with arguments returns."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[Context], Parameters], Any], /
    ) -> Tool[Context]: ...
    @overload
    def __call__(self, function: Callable[..., Any], /) -> Tool[object]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[Context], Parameters], Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    on_error: OnError = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    input_guardrails: Sequence[ToolGuardrail] = (),
    output_guardrails: Sequence[ToolGuardrail] = (),
    deferred: bool | None = None,
) -> Tool[Context]: ...


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    on_error: OnError = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    input_guardrails: Sequence[ToolGuardrail] = (),
    output_guardrails: Sequence[ToolGuardrail] = (),
    deferred: bool | None = None,
) -> Tool[object]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    on_error: OnError = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    input_guardrails: Sequence[ToolGuardrail] = (),
    output_guardrails: Sequence[ToolGuardrail] = (),
    deferred: bool | None = None,
) -> ToolMaker: ...


@hint_keywords(TOOL_KEYWORDS)
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    strict: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    on_error: OnError = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    input_guardrails: Sequence[ToolGuardrail] = (),
    output_guardrails: Sequence[ToolGuardrail] = (),
    deferred: bool | None = None,
) -> Tool[Any] | ToolMaker:
    """Make a tool from a function: ``@tool``, ``@tool(timeout=5)`` or ``tool(function)``.

    The schema comes from the annotations, the descriptions from the docstring (Google, NumPy or
    Sphinx style). A parameter annotated `RunContext` or `ToolContext` gets the run's context and is not in
    the schema. A sync function runs in a worker thread.

    Args:
        function: sync or async: a function, a method, a partial or a callable object.
        name: the name of the tool; by default the function's name.
        description: the description for the model; by default that of the docstring.
        strict: whether to use the strict form of the schema, if it has one.
        timeout: the time limit of a call in seconds; None is no limit.
        is_enabled: a bool, or a function of the context and the agent, called in each turn and before a call.
        scope: which runs may use the tool, see `routelock.scopes`.
        on_error: ``"report"`` reports an error to the model, ``"raise"`` stops the run. A function of the
            context and the error makes the text for the model; if it raises, the run stops.
        max_result: the most characters of a result that the model is shown; None is no limit.
        needs_approval: whether a call needs approval: a bool, or a function of the context and the arguments.
        input_guardrails: functions of the context, the tool and the arguments, called before each call, see
            `routelock.guardrails`.
        output_guardrails: functions of the context, the tool and the text that the model is about to be
            shown.
        deferred: whether the tool is offered only after the model has found it, see
            `routelock.tools.ToolSearch`; None leaves that to the agent or the run.

    Raises:
        ConfigError: the function cannot be a tool; the message names the parameter and the reason.
    """

    def make(function: Callable[..., Any]) -> Tool[Any]:
        call = PythonCall(function, signature_of(function, strict=strict), is_async(function))
        signature = call.signature
        return Tool(
            name=signature.name if name is None else name,
            description=signature.description if description is None else description,
            params_json_schema=signature.schema,
            on_invoke_tool=call,
            strict=signature.strict,
            timeout=timeout,
            is_enabled=is_enabled,
            scope=scope,
            on_error=on_error,
            max_result=max_result,
            needs_approval=needs_approval,
            input_guardrails=input_guardrails,
            output_guardrails=output_guardrails,
            deferred=deferred,
        )

    return make if function is None else make(_checked(function, f"tool(name={function!r:.80})"))


@overload
def function_tool(
    function: Callable[Concatenate[ToolContext[Context], Parameters], Any],
    /,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    strict_mode: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    failure_error_function: OnError | None = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    tool_input_guardrails: Sequence[ToolGuardrail] | None = None,
    tool_output_guardrails: Sequence[ToolGuardrail] | None = None,
    defer_loading: bool | None = None,
) -> Tool[Context]: ...


@overload
def function_tool(
    function: Callable[..., Any],
    /,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    strict_mode: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    failure_error_function: OnError | None = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    tool_input_guardrails: Sequence[ToolGuardrail] | None = None,
    tool_output_guardrails: Sequence[ToolGuardrail] | None = None,
    defer_loading: bool | None = None,
) -> Tool[object]: ...


@overload
def function_tool(
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    strict_mode: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    failure_error_function: OnError | None = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    tool_input_guardrails: Sequence[ToolGuardrail] | None = None,
    tool_output_guardrails: Sequence[ToolGuardrail] | None = None,
    defer_loading: bool | None = None,
) -> ToolMaker: ...


@hint_keywords(FUNCTION_TOOL_KEYWORDS)
def function_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name_override: str | None = None,
    description_override: str | None = None,
    strict_mode: bool = True,
    timeout: float | None = None,
    is_enabled: IsEnabled = True,
    scope: Scope = "all",
    failure_error_function: OnError | None = "report",
    max_result: int | None = 100_000,
    needs_approval: NeedsApproval = False,
    tool_input_guardrails: Sequence[ToolGuardrail] | None = None,
    tool_output_guardrails: Sequence[ToolGuardrail] | None = None,
    defer_loading: bool | None = None,
) -> Tool[Any] | ToolMaker:
    """Make a tool from a function, as `tool` does, with the argument names of openai-agents.

    Args:
        function: see `tool`.
        name_override: ``name`` of `tool`.
        description_override: ``description`` of `tool`.
        strict_mode: ``strict`` of `tool`.
        timeout: see `tool`.
        is_enabled: see `tool`.
        scope: see `tool`.
        failure_error_function: ``on_error`` of `tool`; None stops the run on an error, as in openai-agents.
        max_result: see `tool`.
        needs_approval: see `tool`.
        tool_input_guardrails: ``input_guardrails`` of `tool`.
        tool_output_guardrails: ``output_guardrails`` of `tool`.
        defer_loading: ``deferred`` of `tool`.

    Raises:
        ConfigError: the function cannot be a tool; the message names the parameter and the reason.
    """
    make = tool(
        name=name_override,
        description=description_override,
        strict=strict_mode,
        timeout=timeout,
        is_enabled=is_enabled,
        scope=scope,
        on_error="raise" if failure_error_function is None else failure_error_function,
        max_result=max_result,
        needs_approval=needs_approval,
        input_guardrails=tool_input_guardrails or (),
        output_guardrails=tool_output_guardrails or (),
        deferred=defer_loading,
    )
    if function is None:
        return make
    return make(_checked(function, f"function_tool(name_override={function!r:.80})"))


def _checked(function: Callable[..., Any], named: str) -> Callable[..., Any]:
    """Return the function of a decorator.

    Raises:
        ConfigError: it is the name of the tool, which some libraries take here.
    """
    if isinstance(cast(object, function), str):
        raise ConfigError(f"The first argument is the function, not a name: write @{named} above it.")
    return function


def is_function(value: object) -> TypeGuard[Callable[..., Any]]:
    """Whether a value is a function, a method or a partial; other callables may serve another purpose."""
    return isinstance(value, FunctionType | MethodType | BuiltinFunctionType | partial)


def is_tool(value: object) -> TypeIs[Tool[Any]]:
    """Whether a value is a tool."""
    return isinstance(value, Tool)


def with_functions(tools: Sequence[Any]) -> Sequence[Any]:
    """Return the tools with each plain function made a tool, and each dict a `VendorTool`.

    Any other value stays as it is.
    """
    if all(map(is_tool, tools)):
        return tools
    return frozen_list(map(_as_tool, tools))


def _as_tool(given: Any) -> Any:
    if not is_function(given):
        return vendor_tool(given) or given
    try:
        return tool(given)
    except ConfigError:  # the agent reports it with its other problems
        return given
