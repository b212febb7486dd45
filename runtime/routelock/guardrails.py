"""Guardrails: functions that check the input and output of runs, agents and tools.

An agent's guardrails run while that agent is active: input guardrails when it takes over, output guardrails
on its final output. A handoff does not pass them on. Guardrails in `RunConfig` hold for the whole run, those
of a tool for each of its calls, by any agent.

Guardrails of the same value run concurrently. The first that trips cancels those that are still running; of
several that tripped, the first in the order of declaration is the error. One that is not async has answered
before the next is called. Each gets its own copy of the value, so edits are not seen elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from routelock._callables import MaybeAwaitable, name_of
from routelock._concurrency import Question, ask_all
from routelock._json import detached, own_copy
from routelock.context import RunContext, ToolContext
from routelock.errors import (
    GuardrailTripped,
    InputGuardrailTripped,
    OutputGuardrailTripped,
    RoutelockError,
    ToolGuardrailTripped,
)

__all__ = [
    "Guardrail",
    "GuardrailResult",
    "ToolGuardrail",
    "check_input",
    "output_questions",
    "screened",
]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """What a guardrail found; ``tripwire_triggered`` stops the run."""

    tripwire_triggered: bool
    output_info: Any = None
    answer: str | None = None
    """Of a tool's guardrail: the text that the model gets instead of a result. The run goes on."""


Guardrail = Callable[[RunContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, agent, value) -> GuardrailResult``, sync or async. For an input guardrail the value is a
list of copies of the messages for the agent's next model call, without its system prompt;
`routelock.history.last_user_text` finds the user's text. For an output guardrail: the final output."""

ToolGuardrail = Callable[[ToolContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, tool, value) -> GuardrailResult``, sync or async. Before a call the value is its validated
arguments by name; after the call it is the text for the model."""


async def check_input(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any, *, whose: str
) -> None:
    """Run input guardrails concurrently.

    Args:
        guardrails: in the order of declaration.
        context: the current state of the run.
        agent: the agent that gets the input.
        value: the input.
        whose: names the owner of the guardrails in errors, such as ``"agent 'A'"``.

    Raises:
        InputGuardrailTripped: one of them tripped.
        CallbackError: one of them raised.
    """
    what = f"An input guardrail of {whose}"
    await ask_all(
        [_question(each, what, context, agent, detached(value), InputGuardrailTripped) for each in guardrails]
    )


def output_questions(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any, *, whose: str
) -> list[Question[None]]:
    """Return the calls of output guardrails for `ask_all`; arguments are those of `check_input`.

    `ask_all` raises `OutputGuardrailTripped` if one of them trips.
    """
    what = f"An output guardrail of {whose}"
    return [
        _question(each, what, context, agent, own_copy(value), OutputGuardrailTripped) for each in guardrails
    ]


async def screened(
    guardrails: Sequence[ToolGuardrail], context: ToolContext[Any], tool: Any, value: Any
) -> str | None:
    """Run the guardrails of a tool concurrently, and return the text that replaces the result, if any.

    The first guardrail that trips, or gives such a text, cancels the others.

    Raises:
        ToolGuardrailTripped: it tripped.
        CallbackError: one of them raised.
    """
    what = f"A guardrail of tool {tool.name!r}"
    try:
        await ask_all(
            [
                _question(each, what, context, tool, own_copy(value), ToolGuardrailTripped)
                for each in guardrails
            ]
        )
    except _ReplacedResult as replaced:
        return replaced.answer
    return None


class _ReplacedResult(RoutelockError):
    """A tool's guardrail gave a text that the model gets instead of the result."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


def _question(
    guardrail: Callable[..., MaybeAwaitable[GuardrailResult]],
    whose: str,
    context: RunContext[Any],
    owner: Any,
    value: Any,
    error: type[GuardrailTripped],
) -> Question[None]:
    ask = partial(guardrail, context, owner, value)
    return Question(whose, ask, partial(_check_result, guardrail, context, error))


def _check_result(
    guardrail: object, context: RunContext[Any], error: type[GuardrailTripped], found: object
) -> None:
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
    if found.answer is not None:
        raise _ReplacedResult(found.answer)
