"""Whether a run goes on after a turn, once all its calls are answered."""

from __future__ import annotations

from interlock.errors import (
    HandoffError,
    InterlockError,
    LoopDetected,
    MaxHandoffsExceeded,
    ModelBehaviorError,
)
from interlock.messages import detached
from interlock.routing import Plan
from interlock.run import Run
from interlock.transfers import Transfer
from interlock.waiting import all_waiting

__all__ = ["asked_for", "failed_handoff", "judge"]

_MISTAKES = ("unknown_tool", "bad_arguments", "handoff")
_REPEATS = (
    "You are going round: {what} gave the same results again, and the last {turns} turns brought nothing "
    "new. Use what you have, try something else, or answer the user."
)


def asked_for(run: Run, mistake: str) -> ModelBehaviorError:
    """Return the error that ends a run with a mistake, because ``RunConfig.raise_on`` names it."""
    error = ModelBehaviorError(f"Agent {run.agent.name!r}, turn {run.turn}: {mistake}")
    error.asked_for = True
    return error


def failed_handoff(run: Run, transfer: Transfer) -> HandoffError:
    """Return the error that ends a run with a transfer that was not made, see ``RunConfig.raise_on``."""
    error = HandoffError(f"Agent {run.agent.name!r}, turn {run.turn}: {transfer.answer}")
    error.__cause__ = transfer.exception
    return error


def judge(
    run: Run, planned: Plan, transfer: Transfer | None, *, raised: InterlockError | None, only_mistakes: bool
) -> None:
    """End the run if the turn calls for it. Everything that happened is in the transcript by now.

    Args:
        run: the run.
        planned: what the calls of the turn led to.
        transfer: the one that was tried.
        raised: what a call ended the run with.
        only_mistakes: whether every call was one.

    Raises:
        ModelBehaviorError: nothing but mistakes for too many turns.
        HandoffError: as ``raise_on`` says.
        LimitExceeded: too many transfers, or going round without progress.
    """
    if planned.waiting or run.kept or run.interruptions:
        run.interruptions = all_waiting(run, planned)
    if raised is not None:
        raise raised
    if planned.external or planned.waiting or run.kept:
        run.pending = tuple(detached(call) for call in planned.external)
        run.stop_reason = "requires_action"
        return
    if transfer is not None and transfer.error is not None:
        _judge_failed_transfer(run, transfer)
    handed_over = transfer is not None and transfer.target is not None
    run.mistakes = run.mistakes + 1 if only_mistakes and not handed_over else 0
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
