"""Agents of a run that wait for an answer while another one speaks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from routelock.agents.agent import Agent
from routelock.context import PAYLOAD_KEY
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
from routelock.handoff_request import HandoffStatus
from routelock.history.messages import Message, RunItem, ToolCall
from routelock.history.unfinished_turn import left_over
from routelock.history.view import View
from routelock.run.emit import AnswerReturned, emit_now
from routelock.run.events import HandoffFailed, HandoffReturned
from routelock.tools.invoke import reason_of
from routelock.tools.schema import clip

if TYPE_CHECKING:
    from routelock.run.run import Run
    from routelock.run.transfer_request import Transfer

__all__ = [
    "Caller",
    "answer_item",
    "come_back",
    "failure_of",
    "give_up",
    "is_told",
    "note_caller",
    "patience",
    "stop_all_standing_by",
    "too_late",
    "waiting_one",
]


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


_ABANDONED = "It was not carried out: the agent had failed before."


def note_caller(run: Run, transfer: Transfer) -> None:
    """Let the source wait, or stand by, if the handoff says so, before the target takes over."""
    assert transfer.target is not None
    if run.callers:
        _dismiss(run, transfer.target)
    if transfer.waits:
        run.callers += (_waiting(run, transfer),)


def come_back(run: Run, output: str) -> HandoffReturned:
    """Answer the innermost caller's call with what was asked for, and let the caller go on."""
    source = run.in_charge
    run.close_record(HandoffStatus.COMPLETED)
    while run.callers[-1].stands_by:
        run.places.come_back()
        _stop_standing_by(run)
    run.places.come_back()
    call = _resume(run)
    run.add("handoff", answer_item(run, call, output, place=0).message)
    function = call["function"]
    run.progress.tool_results([(function["name"], function.get("arguments") or "", output)])
    emit_now(run, AnswerReturned(source, run.in_charge))
    return HandoffReturned(source=source, target=run.in_charge, call_id=call["id"], output=output)


def give_up(run: Run, error: Exception) -> HandoffFailed:
    """Let the caller go on without the answer of the target, which failed or was too slow.

    The error answers the caller's call. What the target had left to do is not done any more.
    """
    if isinstance(error, HandoffTimeout) and not error.asked:
        run.unbegin_call(error)
    if not _model_was_asked(run):
        run.turn -= 1
    run.keep_partial(error)
    _abandon_calls(run)
    source = run.in_charge
    goes_on, told, why = _given_up(run, error)
    for caller in reversed(run.callers[run.callers.index(goes_on) :]):
        run.close_record(HandoffStatus.FAILED, why)
        run.places.come_back()
        call = _resume(run)
        if not caller.stands_by:  # an agent that waits in between is answered, too
            run.add("handoff", answer_item(run, call, told, place=0).message)
    call = goes_on.call
    if goes_on.stands_by:  # its call has an answer
        run.add("nudge", {"role": "user", "content": f"{told}. Answer the user yourself."})
    function = call["function"]
    run.progress.failed(function["name"], function.get("arguments") or "", type(error).__name__)
    run.problem("handoff", told, call_id=call["id"], error=error)
    return HandoffFailed(source=run.in_charge, target=source, call_id=call["id"], reason=told)


def _given_up(run: Run, error: Exception) -> tuple[Caller, str, str]:
    """Return the agent that goes on without an answer, what it is told, and why that is."""
    if isinstance(error, HandoffTimeout):
        late = next((each for each in run.callers if each.call["id"] == error.call_id), None)
        if late is not None:
            return late, str(error), str(error)
    waits = waiting_one(run.callers)
    assert waits is not None
    why = failure_of(error)
    return waits, f"{run.in_charge!r} failed: {why}", why


def _stop_standing_by(run: Run) -> None:
    """Let the innermost agent that stands by be done: the answer is another one's."""
    *others, caller = run.callers
    run.callers = tuple(others)
    run.close_records([caller.open_handoff], HandoffStatus.COMPLETED)


def stop_all_standing_by(run: Run) -> None:
    """Let all who stand by be done: there is a final output."""
    while run.callers:
        _stop_standing_by(run)


def _dismiss(run: Run, target: Agent[Any] | Handler) -> None:
    """Let an agent that stood by and is in charge again not stand by any more."""
    if (place := _stands_by(run, target)) is not None:
        run.places.forget(place, len(run.callers))
        for _ in run.callers[place:]:
            _stop_standing_by(run)


def _stands_by(run: Run, target: Agent[Any] | Handler) -> int | None:
    """Return the first place of an agent among those that stand by for the one that speaks, if it does."""
    found: int | None = None
    for place in range(len(run.callers) - 1, -1, -1):
        if not run.callers[place].stands_by:
            break
        if run.callers[place].agent is target:
            found = place
    return found


def _model_was_asked(run: Run) -> bool:
    """Whether the present turn has a model call; one that failed before it does not count as a turn."""
    if run.open_call is not None or (run.calls and run.calls[-1].turn == run.turn):
        return True
    return any(item.kind == "model" for item in run.items[run.first_of_turn :])


def _abandon_calls(run: Run) -> None:
    """Answer the calls that an agent leaves behind, which will not be carried out or approved any more."""
    waiting = {caller.call["id"] for caller in run.callers}
    for call in left_over(run.items, run.first_of_turn, run.turn, waiting).calls:
        run.add("tool", answer_item(run, call, _ABANDONED, place=0).message)
    run.interruptions = ()
    run.kept.clear()
    run.to_resume.clear()


def _waiting(run: Run, transfer: Transfer) -> Caller:
    """Return the agent in charge as one that waits for the answer to its call, with its present view."""
    seconds = None if transfer.edge.run_timeout == math.inf else transfer.edge.run_timeout
    return Caller(
        agent=run.agent,
        handler=run.handler,
        default_handler=run.default_handler,
        stands_in=run.stands_in,
        agent_turns=run.agent_turns,
        handoff_input=run.handoff_input,
        source_prompt=run.source_prompt,
        view=View(run.view.items),
        call=transfer.call,
        seconds=seconds,
        until=math.inf if seconds is None else anyio.current_time() + seconds,
        open_handoff=run.open_handoff,
        payload=run.shared_memory.get(PAYLOAD_KEY),
        payload_note=run.payload_note,
        narrowings=len(run.narrowings),
        stands_by=not transfer.returns,
    )


def _resume(run: Run) -> ToolCall:
    """Let the innermost caller go on where it was, and return its call."""
    *others, caller = run.callers
    run.callers = tuple(others)
    run.agent, run.handler, run.default_handler = caller.agent, caller.handler, caller.default_handler
    run.stands_in, run.agent_turns = caller.stands_in, caller.agent_turns
    run.handoff_input, run.source_prompt, run.view = caller.handoff_input, caller.source_prompt, caller.view
    run.moment = run.read_by = run.offered = None
    run.mistakes = run.empty_replies = 0  # those of the target are not the caller's
    run.open_handoff, run.payload_note = caller.open_handoff, caller.payload_note
    run.widen(caller.narrowings)
    run.shared_memory.pop(PAYLOAD_KEY, None)
    if caller.payload is not None:
        run.shared_memory[PAYLOAD_KEY] = caller.payload
    return caller.call


def answer_item(run: Run, call: ToolCall, text: str, *, place: int) -> RunItem:
    """Return the answer to the call of a transfer, as an item at a place of the transcript."""
    message: Message = {"role": "tool", "tool_call_id": call["id"], "content": text}
    return RunItem(id=place, kind="handoff", message=message, agent=run.agent.name)
