"""Checks on what goes into a run or an agent and on what comes out, as plain functions.

An agent's own guardrails run when that agent is active: input ones when it takes over, output ones
on its final output. They are not inherited over a handoff. The ones in `RunConfig` hold for the run
(feature row 2-20).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from interlock.callables import MaybeAwaitable, name_of, resolve
from interlock.context import RunContext
from interlock.errors import GuardrailTripped, InputGuardrailTripped, OutputGuardrailTripped

__all__ = ["Guardrail", "GuardrailResult", "check_input", "check_output"]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """What a guardrail found; ``tripwire_triggered`` stops the run."""

    tripwire_triggered: bool
    output_info: Any = None


Guardrail = Callable[[RunContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, agent, value) -> GuardrailResult``, sync or async. For an input guardrail the value is
the list of messages the agent is about to see, for an output guardrail the final output."""


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


async def _check(
    guardrail: Guardrail,
    context: RunContext[Any],
    agent: Any,
    value: Any,
    error: type[GuardrailTripped],
) -> None:
    found = cast("object", await resolve(guardrail(context, agent, value)))
    if not isinstance(found, GuardrailResult):
        raise TypeError(f"guardrail {name_of(guardrail)!r} must return a GuardrailResult, not {found!r:.80}")
    if found.tripwire_triggered:
        name = name_of(guardrail)
        raise error(
            f"Guardrail {name!r} stopped agent {context.agent!r} in turn {context.turn}: "
            f"{found.output_info!r}",
            guardrail=name,
            info=found.output_info,
        )
