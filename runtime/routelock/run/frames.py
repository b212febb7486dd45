"""The stack of frames of a run: the active agent, and the callers that wait for its answer.

A caller that stands by is a special one: its call has a result already, and it goes on only if the agent
above it is too slow (``Handoff.run_timeout`` without ``return_to_caller``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from routelock._text import clip
from routelock.agents.agent import Agent
from routelock.agents.offer import OfferedTools
from routelock.errors import (
    ConfigError,
    HandoffTimeout,
    JournalError,
    LimitExceeded,
    LoopDetected,
    ModelBehaviorError,
    RoutelockError,
    SessionError,
)
from routelock.handlers.port import Handler
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, RunItem, ToolCall
from routelock.history.notes import Audience
from routelock.history.view import View
from routelock.run.emit import AnswerReturned, emit_now
from routelock.run.events import HandoffReturned
from routelock.tools.failures import reason_for_model

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = [
    "Frame",
    "Wait",
    "answer_item",
    "asking_caller",
    "drop_standby",
    "drop_standbys",
    "earliest_deadline",
    "failure_of",
    "is_for_caller",
    "return_answer",
    "time_left",
]


_ENDING_ERRORS = (LimitExceeded, ConfigError, SessionError, JournalError)
"""Errors that end the run even if a caller waits."""

_LONGEST_FAILURE = 700  # characters: the text stays in the history, and each later call pays for it


@dataclass(slots=True, eq=False, kw_only=True)
class Wait:
    """How a caller waits for the output of the agent above it, see ``Handoff.return_to_caller``."""

    call: ToolCall
    """The caller's call, whose result will be the output."""
    seconds: float | None = None
    """How long the caller waits, see ``Handoff.run_timeout``; None for no limit."""
    until: float = math.inf
    """The deadline, on the event loop's clock."""
    payload: Any = None
    """Payload of the handoff that made the caller active."""
    memory_level: int = 0
    """How many memory scopes there were when the caller was active, see ``Handoff.share``."""
    is_standby: bool = False
    """Whether the call has a result already, and the caller goes on only if the target is too
    slow; otherwise the target's output is final."""


@dataclass(slots=True, eq=False, kw_only=True)
class Frame:
    """An agent, the handler that answers for it, and its view of the history."""

    agent: Agent[Any]
    handler: Handler
    default_handler: str
    """Name of the agent's default handler."""
    view: View
    handler_override: bool = False
    """Whether a handoff replaced the agent's default handler."""
    turns: int = 0
    """Model calls since the agent took over; a forced tool choice holds for the first."""
    handoff_id: str | None = None
    """Id of the handoff that made the agent active."""
    handoff_input: Any = None
    """Parsed arguments of that handoff."""
    source_prompt: str | None = None
    """Prompt section with the source's instructions, if the handoff passes them on."""
    payload_note: str | None = None
    """Prompt section about the handoff payload; None until it is written."""
    wait: Wait | None = None
    """How a caller waits; None for the active frame."""
    offered: OfferedTools | None = None
    """Cached tools and handoffs that the agent may call, if they cannot change with the same handler. Tools
    that the agent has found by a search are not among them."""
    with_found: tuple[OfferedTools, Sequence[str], OfferedTools] | None = None
    """Cached: the offer above, what the agent has found, and the offer with it."""
    audience: Audience | None = None
    """Cached reader of the history, see `Run.audience`."""

    @property
    def is_standby(self) -> bool:
        """Whether this caller goes on only if the agent above it is too slow."""
        return self.wait is not None and self.wait.is_standby

    @property
    def waits_for(self) -> ToolCall:
        """The call whose result is the output of the agent above."""
        assert self.wait is not None
        return self.wait.call

    @property
    def deadline(self) -> float:
        """When the wait is over, on the event loop's clock; infinity for no limit."""
        return math.inf if self.wait is None else self.wait.until

    def stop_waiting(self) -> Wait:
        """Make the frame an active one again; return how it waited."""
        wait, self.wait = self.wait, None
        assert wait is not None
        return wait


def asking_caller(callers: Sequence[Frame]) -> Frame | None:
    """Return the innermost caller that waits for an answer and does not stand by, or None."""
    return next((frame for frame in reversed(callers) if not frame.is_standby), None)


def earliest_deadline(callers: Sequence[Frame]) -> float:
    """Return the earliest deadline among waiting callers (event loop's clock); else infinity."""
    return min((frame.deadline for frame in callers), default=math.inf)


def time_left(callers: Sequence[Frame], active: str) -> tuple[float, HandoffTimeout]:
    """Return the seconds that the active agent has left, and the error to raise after them.

    Raises:
        HandoffTimeout: the deadline of a caller has passed.
    """
    now = anyio.current_time()
    if over := next((frame for frame in callers if frame.deadline <= now), None):
        raise _late(over, active, asked=False)
    first = min(callers, key=lambda frame: frame.deadline)
    return first.deadline - now, _late(first, active, asked=True)


def _late(caller: Frame, active: str, *, asked: bool) -> HandoffTimeout:
    seconds = math.inf if caller.wait is None else caller.wait.seconds or math.inf
    late = HandoffTimeout(f"{active!r} timed out: there was no answer within {seconds:g} s")
    late.call_id, late.asked = caller.waits_for["id"], asked
    return late


def is_for_caller(callers: Sequence[Frame], error: Exception, raise_on: Collection[str]) -> bool:
    """Whether an error is reported to a waiting caller, which goes on; if not, it ends the run.

    Limits, mistakes that ``RunConfig.raise_on`` names, configuration errors, errors of a session or a journal
    and failed assertions of a test always end the run. An error with a result ended another run, which a
    handler had started, so it counts as a failure of the target.

    Args:
        callers: the waiting frames.
        error: the error of the target.
        raise_on: ``RunConfig.raise_on``; with ``"failed_handoff"`` every failure ends the run.
    """
    if "failed_handoff" in raise_on or isinstance(error, AssertionError):
        return False
    if isinstance(error, HandoffTimeout) and any(one.waits_for["id"] == error.call_id for one in callers):
        return True
    if asking_caller(callers) is None:
        return False
    if not isinstance(error, RoutelockError) or error.result is not None or isinstance(error, LoopDetected):
        return True
    ends_run = isinstance(error, ModelBehaviorError) and error.ends_run
    return not ends_run and not isinstance(error, _ENDING_ERRORS)


def failure_of(error: BaseException) -> str:
    """Return in one phrase why an agent failed, for the model of its caller."""
    return clip(reason_for_model(error), _LONGEST_FAILURE)


def return_answer(run: Run, output: str) -> None:
    """Answer the innermost caller's call with the output of the active agent; the caller goes on."""
    source = run.active_name
    run.close_handoff(HandoffStatus.COMPLETED)
    while run.callers[-1].is_standby:
        _remove_standby(run, len(run.callers) - 1)
    call = run.pop_frame()
    run.add_message("handoff", answer_item(run, call, output, place=0).message)
    function = call["function"]
    run.progress.tool_results([(function["name"], function.get("arguments") or "", output)])
    if run.is_observed:
        emit_now(run, AnswerReturned(source, run.active_name))
    answered = HandoffReturned(source=source, target=run.active_name, call_id=call["id"], output=output)
    run.handoffs.events.append(answered)


def _remove_standby(run: Run, place: int) -> None:
    """Remove a frame that stands by: its own work is complete."""
    frame = run.callers.pop(place)
    run.handoffs.close(frame.handoff_id, run.config.clock(), HandoffStatus.COMPLETED)


def drop_standbys(run: Run) -> None:
    """Remove all frames that stand by, because the run has its final output."""
    while run.callers:
        _remove_standby(run, len(run.callers) - 1)


def drop_standby(run: Run, target: Agent[Any] | Handler) -> None:
    """Remove a target's frame that stands by, and those above: it becomes active again."""
    first: int | None = None
    for place in range(len(run.callers) - 1, -1, -1):
        if not run.callers[place].is_standby:
            break
        if run.callers[place].agent is target:
            first = place
    while first is not None and len(run.callers) > first:
        _remove_standby(run, len(run.callers) - 1)


def answer_item(run: Run, call: ToolCall, text: str, *, place: int) -> RunItem:
    """Return the result of a handoff's call as an item.

    Args:
        run: the run.
        call: the call.
        text: its result.
        place: id of the item, its index in the transcript.
    """
    message: Message = {"role": "tool", "tool_call_id": call["id"], "content": text}
    return RunItem(id=place, kind="handoff", message=message, agent=run.frame.agent.name)
