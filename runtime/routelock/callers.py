"""Agents that wait for the answer of the one they handed over to."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import anyio

from routelock._records import dataclass
from routelock.agents.agent import Agent
from routelock.errors import (
    ConfigError,
    GuardrailTripped,
    HandoffTimeout,
    InputGuardrailTripped,
    JournalError,
    LimitExceeded,
    LoopDetected,
    ModelBehaviorError,
    RoutelockError,
    SessionError,
)
from routelock.handlers.port import Handler
from routelock.history.messages import ToolCall
from routelock.history.view import View
from routelock.tools.invoke import reason_of
from routelock.tools.schema import clip

__all__ = ["Caller", "failure_of", "is_told", "patience", "too_late", "waiting_one"]

_OF_THE_RUN = (LimitExceeded, ConfigError, SessionError, JournalError)
_LONGEST_FAILURE = 700  # characters: it stays in the history and is paid for again


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who waits for the answer of whoever speaks, see ``Handoff.return_to_caller``."""

    agent: Agent[Any]
    handler: Handler
    default_handler: str
    stands_in: bool
    agent_turns: int
    handoff_input: Any
    source_prompt: str | None
    view: View
    call: ToolCall
    seconds: float | None = None
    """How long it waits, see ``Handoff.run_timeout``; None for ever."""
    until: float = math.inf
    """When that is over, on the event loop's clock."""
    open_handoff: str | None
    """The transfer that put it in charge."""
    payload: Any
    """What rode along with that one."""
    payload_note: str | None
    narrowings: int
    """How narrow its memory is, see ``Handoff.share``."""
    stands_by: bool = False
    """Whether its call is answered, and it goes on only if the target is too slow: otherwise the target's
    output is final."""


def waiting_one(callers: Sequence[Caller]) -> Caller | None:
    """Return the innermost agent that waits for an answer and does not only stand by, or None."""
    return next((caller for caller in reversed(callers) if not caller.stands_by), None)


def patience(callers: Sequence[Caller]) -> float:
    """Return until when all who wait do so, on the event loop's clock; infinity for ever."""
    return min((caller.until for caller in callers), default=math.inf)


def too_late(callers: Sequence[Caller], speaker: str) -> tuple[float, HandoffTimeout]:
    """Return how many seconds are left to whoever speaks, and what to raise then.

    Raises:
        HandoffTimeout: none are.
    """
    now = anyio.current_time()
    if over := next((caller for caller in callers if caller.until <= now), None):
        raise _late(over, speaker, asked=False)
    first = min(callers, key=lambda caller: caller.until)
    return first.until - now, _late(first, speaker, asked=True)


def _late(caller: Caller, speaker: str, *, asked: bool) -> HandoffTimeout:
    seconds = caller.seconds or math.inf
    late = HandoffTimeout(f"{speaker!r} timed out: there was no answer within {seconds:g} s")
    late.call_id, late.asked = caller.call["id"], asked
    return late


def is_told(callers: Sequence[Caller], error: Exception, raise_on: Collection[str]) -> bool:
    """Whether the agent that waits is told of an error, and goes on; if not, the error ends the run.

    What ends the run in any case: its limits, what ``RunConfig.raise_on`` names, wrong wiring, a session that
    cannot be kept, and a test's own complaint. An error with a result has ended another run, in a handler.

    Args:
        callers: the agents that wait.
        error: what the target raised.
        raise_on: that of the run; with ``"failed_handoff"`` no failure is told.
    """
    if "failed_handoff" in raise_on or isinstance(error, AssertionError):
        return False
    if isinstance(error, HandoffTimeout) and any(one.call["id"] == error.call_id for one in callers):
        return True
    if waiting_one(callers) is None:
        return False
    if not isinstance(error, RoutelockError) or error.result is not None or isinstance(error, LoopDetected):
        return True
    asked_for = isinstance(error, ModelBehaviorError) and error.asked_for
    return not asked_for and not isinstance(error, _OF_THE_RUN)


def failure_of(error: BaseException) -> str:
    """Return in one phrase why an agent failed, for a model. What a guardrail stopped is not quoted.

    What an input guardrail reports is: its words are about what came in, which the caller knows.
    """
    if isinstance(error, GuardrailTripped) and not isinstance(error, InputGuardrailTripped):
        return f"{type(error).__name__}: guardrail {error.guardrail!r} stopped it"
    return clip(reason_of(error), _LONGEST_FAILURE)
