"""The stack of a run: the active agent, and the agents that wait for its answer."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from routelock._text import clip
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
from routelock.handlers.port import Handler, ToolSpec, tool_name
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, RunItem, ToolCall
from routelock.history.notes import Audience
from routelock.history.unfinished_turn import left_over
from routelock.history.view import View
from routelock.run.emit import AnswerReturned, emit_now
from routelock.run.events import HandoffFailed, HandoffReturned
from routelock.run.routing import OfferedTools
from routelock.tools.invoke import reason_of
from routelock.tools.tool import Tool

if TYPE_CHECKING:
    from routelock.run.run import Run

__all__ = [
    "Frame",
    "Wait",
    "answer_item",
    "asking_caller",
    "dismiss",
    "earliest_deadline",
    "fail_frame",
    "failure_of",
    "is_told",
    "return_answer",
    "stop_all_standing_by",
    "time_left",
]


_OF_THE_RUN = (LimitExceeded, ConfigError, SessionError, JournalError)

_LONGEST_FAILURE = 700  # characters: it stays in the history and is paid for again


@dataclass(slots=True, eq=False, kw_only=True)
class Wait:
    """How an agent waits for the output of the one above it, see ``Handoff.return_to_caller``."""

    call: ToolCall
    """The call that the output answers."""
    seconds: float | None = None
    """How long it waits, see ``Handoff.run_timeout``; None for ever."""
    until: float = math.inf
    """When that is over, on the event loop's clock."""
    payload: Any = None
    """What rode along with the handoff that made it active."""
    memory_level: int = 0
    """How many memory scopes are its own, see ``Handoff.share``."""
    stands_by: bool = False
    """Whether its call is answered, and it goes on only if the target is too slow: otherwise the target's
    output is final."""


@dataclass(slots=True, eq=False, kw_only=True)
class Frame:
    """An agent with the handler that answers for it, and what it is shown."""

    agent: Agent[Any]
    handler: Handler
    default_handler: str
    """Name of the handler with which the agent began."""
    view: View
    handler_override: bool = False
    """Whether a handoff put another handler in the place of the agent's default."""
    turns: int = 0
    """Model calls since the agent took over; a forced tool choice holds for the first."""
    handoff_id: str | None = None
    """Id of the handoff that made it active."""
    handoff_input: Any = None
    """What that handoff passed along."""
    source_prompt: str | None = None
    """The section of the prompt with the source's instructions, if the handoff passes them on."""
    payload_note: str | None = None
    """The section of the prompt about the payload that rides along, once it was written."""
    wait: Wait | None = None
    """None for the active one."""
    offered: OfferedTools | None = None
    """What it may call, if that does not change as long as the same handler answers."""
    audience: Audience | None = None
    """Who is shown the history, once it was asked for."""

    @property
    def active_name(self) -> str:
        """Name of the agent, or of the handler that it was handed over to."""
        return self.handler.name if self.handler_override else self.agent.name

    @property
    def stands_by(self) -> bool:
        """Whether it waits for no answer, and goes on only if the one above it is too slow."""
        return self.wait is not None and self.wait.stands_by

    @property
    def waits_for(self) -> ToolCall:
        """The call that is answered by the one above it."""
        assert self.wait is not None
        return self.wait.call

    @property
    def deadline(self) -> float:
        """Until when it waits, on the event loop's clock; infinity for ever."""
        return math.inf if self.wait is None else self.wait.until

    def stop_waiting(self) -> Wait:
        """Go on; return how it waited."""
        wait, self.wait = self.wait, None
        assert wait is not None
        return wait

    def can_call(self, external_tools: Sequence[Tool | ToolSpec]) -> Collection[str]:
        """Return the names of its tools and handoffs, and of the caller's tools."""
        names = {tool.name for tool in self.agent.all_tools}
        for edge in self.agent.edges:
            if edge.to_handler is None or edge.to_handler.name != self.handler.name:
                names.add(edge.tool_name)
        return names.union(map(tool_name, external_tools))


def asking_caller(callers: Sequence[Frame]) -> Frame | None:
    """Return the innermost agent that waits for an answer and does not only stand by, or None."""
    return next((frame for frame in reversed(callers) if not frame.stands_by), None)


def earliest_deadline(callers: Sequence[Frame]) -> float:
    """Return the earliest deadline among waiting callers, on the event loop's clock; infinity for none."""
    return min((frame.deadline for frame in callers), default=math.inf)


def time_left(callers: Sequence[Frame], active: str) -> tuple[float, HandoffTimeout]:
    """Return how many seconds the active agent has left, and what to raise then.

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


def is_told(callers: Sequence[Frame], error: Exception, raise_on: Collection[str]) -> bool:
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
    if isinstance(error, HandoffTimeout) and any(one.waits_for["id"] == error.call_id for one in callers):
        return True
    if asking_caller(callers) is None:
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


_ABANDONED = "It was not carried out: the agent had failed before."


def return_answer(run: Run, output: str) -> HandoffReturned:
    """Answer the innermost caller's call with the output of the active agent, and let the caller go on."""
    source = run.active_name
    run.close_handoff(HandoffStatus.COMPLETED)
    while run.callers[-1].stands_by:
        _stop_standing_by(run, len(run.callers) - 1)
    call = run.pop_frame()
    run.add("handoff", answer_item(run, call, output, place=0).message)
    function = call["function"]
    run.progress.tool_results([(function["name"], function.get("arguments") or "", output)])
    emit_now(run, AnswerReturned(source, run.active_name))
    return HandoffReturned(source=source, target=run.active_name, call_id=call["id"], output=output)


def fail_frame(run: Run, error: Exception) -> HandoffFailed:
    """Let a caller go on without the answer of the active agent, which failed or was too slow.

    The error answers the caller's call. What the target had left to do is not done any more.
    """
    if isinstance(error, HandoffTimeout) and not error.asked:
        run.unbegin_call(error)
    if not _model_was_asked(run):
        run.turn -= 1
    run.keep_partial(error)
    _abandon_calls(run)
    source = run.active_name
    goes_on, told, why = _who_goes_on(run, error)
    call, only_stood_by = goes_on.waits_for, goes_on.stands_by
    while True:
        run.close_handoff(HandoffStatus.FAILED, why)
        stood_by = run.callers[-1].stands_by
        answered = run.pop_frame()
        if not stood_by:  # an agent that waits in between is answered, too
            run.add("handoff", answer_item(run, answered, told, place=0).message)
        if run.frame is goes_on:
            break
    if only_stood_by:  # its call has an answer
        run.add("nudge", {"role": "user", "content": f"{told}. Answer the user yourself."})
    function = call["function"]
    run.progress.failed(function["name"], function.get("arguments") or "", type(error).__name__)
    run.problem("handoff", told, call_id=call["id"], error=error)
    return HandoffFailed(source=run.active_name, target=source, call_id=call["id"], reason=told)


def _who_goes_on(run: Run, error: Exception) -> tuple[Frame, str, str]:
    """Return the agent that goes on without an answer, what it is told, and why that is."""
    if isinstance(error, HandoffTimeout):
        late = next((each for each in run.callers if each.waits_for["id"] == error.call_id), None)
        if late is not None:
            return late, str(error), str(error)
    asking = asking_caller(run.callers)
    assert asking is not None
    why = failure_of(error)
    return asking, f"{run.active_name!r} failed: {why}", why


def _stop_standing_by(run: Run, place: int) -> None:
    """Let an agent that stands by be done: the answer is another one's."""
    frame = run.callers.pop(place)
    run.handoffs.close([frame.handoff_id], run.config.clock(), HandoffStatus.COMPLETED)
    run.handoffs.release(frame.handoff_id)


def stop_all_standing_by(run: Run) -> None:
    """Let all agents that stand by be done: there is a final output."""
    while run.callers:
        _stop_standing_by(run, len(run.callers) - 1)


def dismiss(run: Run, target: Agent[Any] | Handler) -> None:
    """Let an agent that stands by, and is handed over to again, not stand by any more."""
    first: int | None = None
    for place in range(len(run.callers) - 1, -1, -1):
        if not run.callers[place].stands_by:
            break
        if run.callers[place].agent is target:
            first = place
    while first is not None and len(run.callers) > first:
        _stop_standing_by(run, len(run.callers) - 1)


def _model_was_asked(run: Run) -> bool:
    """Whether the present turn has a model call; one that failed before it does not count as a turn."""
    calls = run.report.calls
    if run.model_call.request is not None or (calls and calls[-1].turn == run.turn):
        return True
    return any(item.kind == "model" for item in run.transcript.items[run.first_of_turn :])


def _abandon_calls(run: Run) -> None:
    """Answer the calls that an agent leaves behind, which will not be carried out or approved any more."""
    waiting = {frame.waits_for["id"] for frame in run.callers}
    for call in left_over(run.transcript.items, run.first_of_turn, run.turn, waiting).calls:
        run.add("tool", answer_item(run, call, _ABANDONED, place=0).message)
    run.calls.interruptions = ()
    run.sub_runs.waiting.clear()
    run.sub_runs.to_resume.clear()


def answer_item(run: Run, call: ToolCall, text: str, *, place: int) -> RunItem:
    """Return the answer to the call of a handoff, as an item at a place of the transcript."""
    message: Message = {"role": "tool", "tool_call_id": call["id"], "content": text}
    return RunItem(id=place, kind="handoff", message=message, agent=run.frame.agent.name)
