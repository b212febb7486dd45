"""Guardrails: functions that check the input and output of runs, agents and tools.

An agent's guardrails run while that agent is active: input guardrails when it takes over, output guardrails
on its final output. A handoff does not pass them on. Guardrails in `RunConfig` hold for the whole run, those
of a tool for each of its calls, by any agent.

Guardrails of the same value run concurrently. The first that trips cancels those that are still running; of
several that tripped, the first in the order of declaration is the error. A sync guardrail returns before the
next one is called. Each gets its own copy of the value, so edits are not seen elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, cast

from routelock._callables import MaybeAwaitable, name_of
from routelock._concurrency import Question, ask_all
from routelock._copies import detached, own_copy
from routelock._json import recordable
from routelock._sendable import sendable
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
    "GuardrailKind",
    "GuardrailRecord",
    "GuardrailResult",
    "ToolGuardrail",
    "check_input",
    "check_output",
    "records_as_json",
    "records_from_json",
    "screened",
]


@dataclass(frozen=True, slots=True)
class GuardrailResult:
    """The result of a guardrail; ``tripwire_triggered`` stops the run."""

    tripwire_triggered: bool
    output_info: Any = None
    """Data about the check for the app, such as a score or a reason. No model sees it."""
    answer: str | None = None
    """A text for the model, and the run goes on. From a guardrail of a tool the model gets it instead of the
    result. From an output guardrail the model gets it as what is wrong, and answers again, as after an output
    that does not fit the ``output_type`` (see ``RunConfig.max_mistakes``)."""


Guardrail = Callable[[RunContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, agent, value) -> GuardrailResult``, sync or async. For an input guardrail the value is a
list of copies of the messages for the agent's next model call, without its system prompt;
`routelock.history.last_user_text` finds the user's text. For an output guardrail: the final output."""

ToolGuardrail = Callable[[ToolContext[Any], Any, Any], MaybeAwaitable[GuardrailResult]]
"""``(context, tool, value) -> GuardrailResult``, sync or async. Before a call the value is its validated
arguments by name; after the call it is the text for the model."""


GuardrailKind = Literal["input", "output", "tool_input", "tool_output"]
"""The kind of value that a guardrail checks: the input or output of an agent or a run, or the arguments or
result of a tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailRecord:
    """The result of one guardrail in a run, whether it let the value pass or not."""

    name: str
    """Name of the function, or of the class of a callable object."""
    kind: GuardrailKind
    agent: str
    """Name of the agent that was active."""
    turn: int
    """The turn in which the guardrail was called; 0 for the input of the run."""
    of_run: bool = False
    """Whether it is a guardrail of `RunConfig`; if not, it is one of the agent or of the tool."""
    tool: str | None = None
    """Name of the tool, for a tool's guardrail."""
    call_id: str | None = None
    """Id of the call, for a tool's guardrail."""
    tripwire_triggered: bool = False
    answer: str | None = None
    """Text that the guardrail gave the model: in place of a tool's result, or about a wrong output."""
    output_info: Any = None
    """``GuardrailResult.output_info``. After a run was resumed or replayed it is JSON data: a value without a
    JSON form is text then."""

    @property
    def passed(self) -> bool:
        """Whether the guardrail let the value pass: it neither tripped nor gave an answer."""
        return not self.tripwire_triggered and self.answer is None


def records_as_json(records: Iterable[GuardrailRecord]) -> list[dict[str, Any]]:
    """Return records as JSON data, without the fields that have their default."""
    return [_as_json(record) for record in records]


def _as_json(record: GuardrailRecord) -> dict[str, Any]:
    data = {each.name: getattr(record, each.name) for each in fields(record)}
    data["output_info"] = recordable(record.output_info)
    return {each.name: data[each.name] for each in fields(record) if data[each.name] is not each.default}


def records_from_json(data: Iterable[Mapping[str, Any]]) -> list[GuardrailRecord]:
    """Return the records that `records_as_json` wrote."""
    return [GuardrailRecord(**each) for each in data]


async def check_input(
    guardrails: Sequence[Guardrail],
    context: RunContext[Any],
    agent: Any,
    value: Any,
    records: list[GuardrailRecord],
    *,
    of_run: bool = False,
) -> None:
    """Run input guardrails concurrently.

    Args:
        guardrails: in the order of declaration.
        context: the current state of the run.
        agent: the agent that gets the input.
        value: the input.
        records: gets what each guardrail found, in the order of declaration.
        of_run: whether they are guardrails of the run, and not of the agent.

    Raises:
        InputGuardrailTripped: a guardrail tripped.
        CallbackError: a guardrail raised.
    """
    record = _record(context, "input", of_run=of_run)
    what = f"An input guardrail of {_owner(agent, of_run=of_run)}"
    await _ask([_Check(each, what, context, agent, detached(value), record) for each in guardrails], records)


async def check_output(
    of_agent: Sequence[Guardrail],
    of_run: Sequence[Guardrail],
    context: RunContext[Any],
    agent: Any,
    value: Any,
    records: list[GuardrailRecord],
) -> str | None:
    """Run the output guardrails of an agent and of the run concurrently; for the arguments see `check_input`.

    Returns:
        what is wrong with the output if the model is to answer again; None if it passed.

    Raises:
        OutputGuardrailTripped: a guardrail tripped.
        CallbackError: a guardrail raised.
    """
    checks: list[_Check] = []
    for guardrails, is_of_run in ((of_agent, False), (of_run, True)):
        record = _record(context, "output", of_run=is_of_run)
        what = f"An output guardrail of {_owner(agent, of_run=is_of_run)}"
        checks += [_Check(each, what, context, agent, own_copy(value), record) for each in guardrails]
    return await _answer(checks, records)


async def screened(
    guardrails: Sequence[ToolGuardrail],
    context: ToolContext[Any],
    tool: Any,
    value: Any,
    records: list[GuardrailRecord],
    kind: Literal["tool_input", "tool_output"],
) -> str | None:
    """Run the guardrails of a tool concurrently, and return the text that replaces the result, if any.

    The first guardrail that trips, or gives such a text, cancels the others. For the arguments see
    `check_input`.

    Raises:
        ToolGuardrailTripped: a guardrail tripped.
        CallbackError: a guardrail raised.
    """
    if not guardrails:
        return None
    record = replace(_record(context, kind), tool=tool.name, call_id=context.tool_call_id or None)
    what = f"A guardrail of tool {tool.name!r}"
    checks = [_Check(each, what, context, tool, own_copy(value), record) for each in guardrails]
    return await _answer(checks, records)


def _record(context: RunContext[Any], kind: GuardrailKind, *, of_run: bool = False) -> GuardrailRecord:
    """Return the record of a guardrail that has not been called yet."""
    return GuardrailRecord(name="", kind=kind, agent=context.agent, turn=context.turn, of_run=of_run)


def _owner(agent: Any, *, of_run: bool) -> str:
    return "the run" if of_run else f"agent {agent.name!r}"


async def _ask(checks: Sequence[_Check], records: list[GuardrailRecord]) -> None:
    """Make checks concurrently, and record those that returned a result, even if one of them raises."""
    try:
        await ask_all([check.question for check in checks])
    finally:
        records += [check.found for check in checks if check.found is not None]


async def _answer(checks: Sequence[_Check], records: list[GuardrailRecord]) -> str | None:
    """Make checks as `_ask` does, and return the text for the model that one of them gave, if any."""
    try:
        await _ask(checks, records)
    except _TextForModel as given:
        return given.answer
    return None


class _TextForModel(RoutelockError):
    """A guardrail gave a text for the model: the value does not pass, and the run goes on."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.answer = answer


_TRIPPED: Mapping[GuardrailKind, type[GuardrailTripped]] = {
    "input": InputGuardrailTripped,
    "output": OutputGuardrailTripped,
    "tool_input": ToolGuardrailTripped,
    "tool_output": ToolGuardrailTripped,
}


class _Check:
    """One guardrail and the value that it checks."""

    __slots__ = ("_guardrail", "_record", "found", "question")

    def __init__(
        self,
        guardrail: Callable[..., MaybeAwaitable[GuardrailResult]],
        whose: str,
        context: RunContext[Any],
        owner: Any,
        value: Any,
        record: GuardrailRecord,
    ) -> None:
        self._guardrail = guardrail
        self._record = record
        self.found: GuardrailRecord | None = None
        """The record of the guardrail, once it has answered."""
        self.question: Question[None] = Question(whose, partial(guardrail, context, owner, value), self._read)

    def _read(self, found: object) -> None:
        """Record the result of the guardrail, and raise if it does not let the value pass."""
        name, kind = name_of(self._guardrail), self._record.kind
        if not isinstance(found, GuardrailResult):
            raise TypeError(
                f"guardrail {name!r} must return a GuardrailResult, such as GuardrailResult(False) to let "
                f"the value pass, not {found!r:.80}"
            )
        if found.answer is not None and kind == "input":
            raise TypeError(f"guardrail {name!r} gave an answer, and an input guardrail may not give one")
        if not isinstance(cast("object", found.answer), str | None):
            raise TypeError(f"guardrail {name!r} must answer with text, not {found.answer!r:.80}")
        self.found = replace(
            self._record,
            name=name,
            tripwire_triggered=bool(found.tripwire_triggered),
            answer=None if found.answer is None else sendable(found.answer),
            output_info=found.output_info,
        )
        if found.tripwire_triggered:
            agent, turn = self._record.agent, self._record.turn
            raise _TRIPPED[kind](
                f"Guardrail {name!r} stopped agent {agent!r} in turn {turn}: {found.output_info!r}",
                guardrail=name,
                info=found.output_info,
            )
        if found.answer is not None:
            raise _TextForModel(found.answer)
