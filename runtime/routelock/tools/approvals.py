"""Calls that wait for somebody's word: which do, and what was said of them.

A tool or a handoff with ``needs_approval`` is not carried out until somebody has approved the very call: its
agent, its name and its arguments to the letter. What was said is kept by the run and its `RunState`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from routelock._callables import MaybeAwaitable
from routelock._json import sendable
from routelock.context import ToolContext
from routelock.errors import ConfigError

__all__ = [
    "Approvals",
    "Decision",
    "Interruption",
    "NeedsApproval",
    "declined_text",
    "rejection",
    "still_waiting",
]


NeedsApproval = bool | Callable[[ToolContext[Any], dict[str, Any]], MaybeAwaitable[bool]]
"""Whether somebody has to approve a call before it is carried out: a bool, or a function of the context and
the arguments, sync or async, asked for each call."""

_DECLINED = "This call was not approved, so it was not made."


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """A call that waits for approval; those of a run are ``result.interruptions``."""

    agent: str
    """Whose model made the call."""
    name: str
    """The name of the tool, such as ``transfer_to_refunds`` for a handoff."""
    arguments: str
    """JSON text as the model wrote it."""
    call_id: str
    path: tuple[str, ...] = ()
    """Ids of the calls of agents as tools within which it was made, the outermost first."""
    run_id: str = ""
    """The run in which it waits; of a call within agents as tools, the outermost one."""

    @property
    def fingerprint(self) -> str:
        """A digest of what is approved: nothing else is done on the strength of it, and nothing elsewhere."""
        import hashlib  # noqa: PLC0415 - loads OpenSSL, for the few runs that wait for somebody

        what = [self.run_id, *self.path, self.call_id, self.agent, self.name, self.arguments]
        return hashlib.sha256(json.dumps(what).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody said of a call, or of all calls of a tool."""

    approved: bool
    message: str = ""
    """Why not, for the model."""
    fingerprint: str = ""
    """That of the call; empty for all calls of a tool."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """All that was said in a run and in those within it."""

    by_call: Mapping[tuple[str, ...], Decision] = field(default_factory=dict[tuple[str, ...], Decision])
    """By the path and the id of the call."""
    by_tool: Mapping[tuple[str, str], Decision] = field(default_factory=dict[tuple[str, str], Decision])
    """By agent and name, for the rest of the run."""
    asked: frozenset[tuple[str, ...]] = frozenset()
    """Calls that waited when the run stopped, by the path and the id."""

    def of(self, one: Interruption, *, spent: bool = False) -> Decision | None:
        """Return what was said of this very call, else of its tool; None if nobody has said anything.

        Args:
            one: the call.
            spent: whether it was begun already: what was said of it is used up then.
        """
        made = None if spent else self.by_call.get((*one.path, one.call_id))
        if made is not None and made.fingerprint == one.fingerprint:
            return made
        return self.by_tool.get((one.agent, one.name))


NO_APPROVALS = Approvals()


def rejection(message: object) -> Decision:
    """Return a no, with the reason for the model.

    Raises:
        ConfigError: the reason is no text, so nobody could read the state with it.
    """
    if not isinstance(message, str):
        raise ConfigError(f"The message of reject(one, message=...) must be text, not {message!r:.80}.")
    return Decision(False, sendable(message))


def still_waiting(
    waiting: Iterable[Interruption], depth: int, settled: Collection[str | None]
) -> tuple[Interruption, ...]:
    """Return those of which neither the call itself is settled, nor the one within which it was made.

    Args:
        waiting: calls in a run and in those within it.
        depth: how many runs that one is within.
        settled: ids of its calls that were answered or begun.
    """
    return tuple(one for one in waiting if (*one.path, one.call_id)[depth] not in settled)


def declined_text(decision: Decision) -> str:
    """Return the answer to a call that was declined, for the model."""
    return f"This call was not approved: {decision.message}" if decision.message else _DECLINED
