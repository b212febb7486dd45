"""The guardrails of a tool: they check the arguments and the outcome of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from routelock.context import ToolContext
from routelock.guardrails import GuardrailRecord, screened
from routelock.tools.outcome import ToolOutcome, to_text

if TYPE_CHECKING:
    from routelock.tools.tool import Tool

__all__ = ["screen_arguments", "screen_outcome"]


async def screen_arguments(
    tool: Tool, context: ToolContext[Any], values: Any, records: list[GuardrailRecord]
) -> str | None:
    """Run the input guardrails on the arguments of a call, and return the text that answers it, if any.

    Raises:
        ToolGuardrailTripped: a guardrail tripped.
        CallbackError: a guardrail raised.
    """
    if not tool.input_guardrails:
        return None
    parsed: Any = cast("tuple[str, Any]", values)[1] if isinstance(values, tuple) else values
    return await screened(tool.input_guardrails, context, tool, parsed, records, "tool_input")


async def screen_outcome(
    tool: Tool, context: ToolContext[Any], outcome: ToolOutcome, records: list[GuardrailRecord]
) -> ToolOutcome:
    """Run the output guardrails on the outcome of a call, and return the outcome or its replacement.

    Raises:
        ToolGuardrailTripped: a guardrail tripped.
        CallbackError: a guardrail raised.
    """
    # a handoff or a question is no result to check
    if not tool.output_guardrails or outcome.handoff is not None or outcome.question is not None:
        return outcome
    shown = outcome.output
    answer = await screened(tool.output_guardrails, context, tool, shown, records, "tool_output")
    if answer is None:
        return outcome
    return ToolOutcome(to_text(answer), error="guardrail", usage=outcome.usage)
