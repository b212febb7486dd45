"""Approvals: calls that wait for a decision, and the decisions.

A call of a tool or handoff with ``needs_approval`` is not carried out until it is approved. A decision holds
for one call: its agent, its name and its exact arguments. The run and its `RunState` keep the decisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from routelock._callables import MaybeAwaitable
from routelock._sendable import sendable
from routelock.context import ToolContext
from routelock.errors import ConfigError
from routelock.tools.questions import ToolAnswer, ToolQuestion, as_data

__all__ = [
    "Approvals",
    "Decision",
    "Interruption",
    "NeedsApproval",
    "declined_text",
    "rejection",
    "rejection_reason",
    "still_waiting",
]


NeedsApproval = bool | Callable[[ToolContext[Any], dict[str, Any]], MaybeAwaitable[bool]]
"""Whether a call needs approval before it is carried out: a bool, or a sync or async function of the context
and the arguments, which is called for each call."""

_DECLINED = "This call was not approved, so it was not made."

_DECLINED_BECAUSE = "This call was not approved: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A call that waits for approval; those of a run are ``result.interruptions``."""

    agent: str
    """The agent whose model made the call."""
    name: str
    """The name of the tool; for a handoff a name such as ``transfer_to_refunds``."""
    arguments: str
    """The arguments as JSON text, exactly as the model wrote it."""
    call_id: str
    path: tuple[str, ...] = ()
    """The ids of the calls of agents as tools around this call, the outermost first."""
    run_id: str = ""
    """The run in which the call waits; within agents as tools, the outermost run."""
    question: ToolQuestion | None = None
    """The question of the tool in the middle of the call; None if the call only needs an approval."""
    number: int = 0
    """Which question of the call this is, from 1; 0 without a question."""

    @property
    def needs_answer(self) -> bool:
        """Whether an approval alone is not enough, because the question has a field that needs a value."""
        return self.question is not None and bool(self.question.required)

    @property
    def fingerprint(self) -> str:
        """A digest of the call; a decision applies only to a call with the same digest."""
        import hashlib  # noqa: PLC0415 - loads OpenSSL, for the few runs that wait for a decision

        parts: list[Any] = [self.run_id, *self.path, self.call_id, self.agent, self.name, self.arguments]
        if self.question is not None:
            parts += [self.number, as_data(self.question)]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one call, or about all calls of a tool."""

    approved: bool
    message: str = ""
    """The reason for a rejection, for the model."""
    fingerprint: str = ""
    """The fingerprint of the call; empty if the decision is about all calls of a tool."""
    answer: ToolAnswer | None = None
    """The answer to the question of the tool, if it asked one."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """All decisions of a run and of its sub-runs."""

    by_call: Mapping[tuple[str, ...], Decision] = field(default_factory=lambda: {})
    """Decisions about single calls, by the path and the id of the call."""
    by_tool: Mapping[tuple[str, str], Decision] = field(default_factory=lambda: {})
    """Decisions about tools for the rest of the run, by agent and tool name."""
    asked: frozenset[tuple[str, ...]] = frozenset()
    """The calls that were waiting when the run stopped, by the path and the id."""

    def of(self, one: Interruption, *, spent: bool = False) -> Decision | None:
        """Return the decision about a call, else the decision about its tool, else None.

        Args:
            one: the call.
            spent: whether the call has begun already. Then the decision about it is used up.
        """
        made = None if spent else self.by_call.get((*one.path, one.call_id))
        if made is not None and made.fingerprint == one.fingerprint:
            return made
        # a decision about a tool answers no question
        return self.by_tool.get((one.agent, one.name)) if one.question is None else None


NO_APPROVALS = Approvals()


def rejection(message: object) -> Decision:
    """Return the decision that rejects a call, with the reason for the model.

    Raises:
        ConfigError: the reason is not text, so the run's state could not be stored.
    """
    if not isinstance(message, str):
        raise ConfigError(f"The message of reject(one, message=...) must be text, not {message!r:.80}.")
    return Decision(False, sendable(message))


def still_waiting(
    waiting: Iterable[Interruption], depth: int, settled: Collection[str | None]
) -> tuple[Interruption, ...]:
    """Return the waiting calls of which neither the call itself nor the call around it is settled.

    Args:
        waiting: waiting calls of a run and of its sub-runs.
        depth: how many runs are around that run.
        settled: ids of the run's calls that have a result or have begun.
    """
    return tuple(one for one in waiting if (*one.path, one.call_id)[depth] not in settled)


def declined_text(decision: Decision) -> str:
    """Return the result of a rejected call, for the model."""
    return f"{_DECLINED_BECAUSE}{decision.message}" if decision.message else _DECLINED


def rejection_reason(output: str) -> str | None:
    """Return the reason in the result of a rejected call, or None if the call was made."""
    if output == _DECLINED:
        return ""
    return output.removeprefix(_DECLINED_BECAUSE) if output.startswith(_DECLINED_BECAUSE) else None
