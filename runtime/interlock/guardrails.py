"""Checks on what goes into a run, an agent or a tool and on what comes out, as plain functions.

An agent's own guardrails run when that agent is active: input ones when it takes over, output ones
on its final output. They are not inherited over a handoff. The ones in `RunConfig` hold for the run
(feature row 2-20). Those of a tool hold for each of its calls, whichever agent makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from interlock.callables import MaybeAwaitable, name_of, resolve, users_code
from interlock.context import RunContext, ToolContext
from interlock.errors import (
    GuardrailTripped,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    ToolGuardrailTripped,
)
from interlock.records import dataclass

__all__ = ["Guardrail", "GuardrailResult", "ToolGuardrail", "check_input", "check_output", "screened"]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """What a guardrail found; ``tripwire_triggered`` stops the run."""

    tripwire_triggered: bool
    output_info: Any = None
    answer: str | None = None
    """Of a tool's guardrail: what the model is told in place of a result. The run goes on."""


Guardrail = Callable[[RunContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, agent, value) -> GuardrailResult``, sync or async. For an input guardrail the value is
the list of messages the agent is about to see, for an output guardrail the final output."""

ToolGuardrail = Callable[[ToolContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, tool, value) -> GuardrailResult``, alike. Before a call the value is its arguments by name,
after validation; after it the text that the model is to see."""


async def check_input(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any
) -> None:
    """Run input guardrails in order.

    Raises:
        InputGuardrailTripped: one of them said stop.
    """
    for guardrail in guardrails:
        await _check(guardrail, context, agent, value, InputGuardrailTripped)


async def check_output(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any
) -> None:
    """Run output guardrails in order.

    Raises:
        OutputGuardrailTripped: one of them said stop.
    """
    for guardrail in guardrails:
        await _check(guardrail, context, agent, value, OutputGuardrailTripped)


async def screened(
    guardrails: Sequence[ToolGuardrail], context: ToolContext[Any], tool: Any, value: Any
) -> str | None:
    """Run guardrails of a tool in order, and return what the first that objects wants the model to be told.

    Raises:
        ToolGuardrailTripped: one of them said stop.
        CallbackError: one of them raised.
    """
    for guardrail in guardrails:
        with users_code(f"A guardrail of tool {tool.name!r}"):
            found = await _check(guardrail, context, tool, value, ToolGuardrailTripped)
        if found.answer is not None:
            return found.answer
    return None


async def _check(
    guardrail: Callable[..., MaybeAwaitable[GuardrailResult]],
    context: RunContext[Any],
    owner: Any,
    value: Any,
    error: type[GuardrailTripped],
) -> GuardrailResult:
    found = cast("object", await resolve(guardrail(context, owner, value)))
    if not isinstance(found, GuardrailResult):
        raise TypeError(f"guardrail {name_of(guardrail)!r} must return a GuardrailResult, not {found!r:.80}")
    if found.answer is not None and error is not ToolGuardrailTripped:
        raise TypeError(f"guardrail {name_of(guardrail)!r} gave an answer; only those of tools can")
    if not isinstance(cast("object", found.answer), str | None):
        raise TypeError(f"guardrail {name_of(guardrail)!r} must answer with text, not {found.answer!r:.80}")
    if found.tripwire_triggered:
        name = name_of(guardrail)
        raise error(
            f"Guardrail {name!r} stopped agent {context.agent!r} in turn {context.turn}: "
            f"{found.output_info!r}",
            guardrail=name,
            info=found.output_info,
        )
    return found
