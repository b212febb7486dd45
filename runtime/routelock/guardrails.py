"""Checks on what goes into a run, an agent or a tool and on what comes out, as plain functions.

An agent's own guardrails run when that agent is active: input ones when it takes over, output ones
on its final output. They are not inherited over a handoff. The ones in `RunConfig` hold for the run.
Those of a tool hold for each of its calls, whichever agent makes it.

Guardrails that look at one thing are asked at the same time. The first that trips cancels those that have not
answered; of several that tripped, the first as declared is the error. One that is not async has answered
before the next is called. Each is given a copy of its own: what it edits, nobody else sees.
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
    """Of a tool's guardrail: what the model is told in place of a result. The run goes on."""


Guardrail = Callable[[RunContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, agent, value) -> GuardrailResult``, sync or async. For an input guardrail the value is a
list of copies of the messages that the agent's model is shown next, without its system prompt;
`routelock.history.last_user_text` finds what the user asked. For an output guardrail: the final output."""

ToolGuardrail = Callable[[ToolContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, tool, value) -> GuardrailResult``, alike. Before a call the value is its arguments by name,
after validation; after it the text that the model is to see."""


async def check_input(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any, *, whose: str
) -> None:
    """Ask input guardrails at the same time.

    Args:
        guardrails: in the order in which they are declared.
        context: the present moment.
        agent: whose input it is.
        value: what they judge.
        whose: says in errors whose guardrails they are, such as ``"agent 'A'"``.

    Raises:
        InputGuardrailTripped: one of them said stop.
        CallbackError: one of them raised.
    """
    what = f"An input guardrail of {whose}"
    await ask_all(
        [_question(each, what, context, agent, detached(value), InputGuardrailTripped) for each in guardrails]
    )


def output_questions(
    guardrails: Sequence[Guardrail], context: RunContext[Any], agent: Any, value: Any, *, whose: str
) -> list[Question[None]]:
    """Return what output guardrails are asked; arguments are those of `check_input`.

    To ask it raises `OutputGuardrailTripped` if one of them says stop.
    """
    what = f"An output guardrail of {whose}"
    return [
        _question(each, what, context, agent, own_copy(value), OutputGuardrailTripped) for each in guardrails
    ]


async def screened(
    guardrails: Sequence[ToolGuardrail], context: ToolContext[Any], tool: Any, value: Any
) -> str | None:
    """Ask guardrails of a tool, and return what the first that objects wants the model to be told.

    They are asked at the same time; the first that objects, with an answer or a stop, cancels the others.

    Raises:
        ToolGuardrailTripped: it said stop.
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
    except _Objection as objection:
        return objection.answer
    return None


class _Objection(RoutelockError):
    """What a tool's guardrail wants the model to be told in place of a result."""

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
    return Question(whose, ask, partial(_judge, guardrail, context, error))


def _judge(guardrail: object, context: RunContext[Any], error: type[GuardrailTripped], found: object) -> None:
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
        raise _Objection(found.answer)
