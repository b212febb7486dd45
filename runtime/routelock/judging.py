"""Whether a run goes on after a turn, once all its calls are answered."""

from __future__ import annotations

from routelock._json import detached
from routelock.answers import Answered, asked_for, failed_handoff
from routelock.errors import LoopDetected, MaxHandoffsExceeded, ModelBehaviorError
from routelock.run import Run
from routelock.transfers import Transfer
from routelock.waiting import all_waiting

__all__ = ["judge"]

_MISTAKES = ("unknown_tool", "bad_arguments", "handoff")
_REPEATS = (
    "You are going round: {what} gave the same results again, and the last {turns} turns brought nothing "
    "new. Use what you have, try something else, or answer the user."
)


def judge(run: Run, turn: Answered) -> None:
    """End the run if the turn calls for it. Everything that happened is in the transcript by now.

    Args:
        run: the run.
        turn: what came of the calls of a reply.

    Raises:
        ModelBehaviorError: nothing but mistakes for too many turns.
        HandoffError: as ``raise_on`` says.
        LimitExceeded: too many transfers, or going round without progress.
    """
    planned, transfer = turn.planned, turn.transfer
    if planned.waiting or run.kept or run.interruptions:
        run.interruptions = all_waiting(run, planned)
    if turn.raised is not None:
        raise turn.raised
    if planned.external or planned.waiting or run.kept:
        run.pending = tuple(detached(call) for call in planned.external)
        run.stop_reason = "requires_action"
        return
    if transfer is not None and transfer.error is not None:
        _judge_failed_transfer(run, transfer)
    handed_over = transfer is not None and transfer.target is not None
    run.mistakes = run.mistakes + 1 if turn.only_mistakes and not handed_over else 0
    if run.mistakes >= run.config.max_mistakes:
        raise ModelBehaviorError(
            f"Agent {run.agent.name!r} made nothing but mistakes in {run.mistakes} turns in a row. The last: "
            f"{_last_mistake(run)}"
        )
    if (planned.tools or planned.declined or planned.unavailable) and run.config.detect_loops:
        _judge_repetition(run)


def _last_mistake(run: Run) -> str:
    """Return what the model is to blame for in this turn: hooks and limits are among the errors, too."""
    mistakes = [each.message for each in run.errors if each.turn == run.turn and each.kind in _MISTAKES]
    return mistakes[-1] if mistakes else "several transfers at once"


def _judge_failed_transfer(run: Run, transfer: Transfer) -> None:
    if transfer.refusal == "arguments" and "bad_arguments" in run.config.raise_on:
        raise asked_for(run, transfer.answer)
    if "failed_handoff" in run.config.raise_on:
        raise failed_handoff(run, transfer)
    again = f"Agent {run.agent.name!r} asked again after it was told: {transfer.answer}."
    if transfer.refusal == "limit":
        run.over_limit += 1
        if run.over_limit > 1:
            raise MaxHandoffsExceeded(again)
    elif transfer.refusal == "loop":
        run.progress.refused += 1
        if run.progress.refused > 1:
            raise LoopDetected(again)


def _judge_repetition(run: Run) -> None:
    seen = run.progress
    if seen.is_stuck:
        raise LoopDetected(
            f"Agent {run.agent.name!r} was told that it goes round, and went on: {seen.idle} turns in a row "
            f"with the same results as before ({seen.what}). The partial result is in error.result; set "
            "RunConfig(detect_loops=False) if that is what it is for."
        )
    if seen.needs_nudge:
        text = _REPEATS.format(what=seen.what, turns=seen.idle)
        run.problem("loop", text)
        run.add("nudge", {"role": "user", "content": text})
