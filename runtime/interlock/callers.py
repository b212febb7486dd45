"""Agents that wait for the answer of the one they handed over to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import anyio

from interlock.agents import Agent
from interlock.errors import HandoffTimeout
from interlock.history import View
from interlock.messages import ToolCall
from interlock.port import Handler
from interlock.records import dataclass

__all__ = ["Caller", "patience", "too_late"]


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
