"""Decisions of clients that can only say yes or no."""

from __future__ import annotations

from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption

__all__ = ["with_verdict"]


_NOT_ANSWERED = "The question needs an answer, and this client could only agree."


def with_verdict(state: RunState, one: Interruption, *, approved: bool, message: str) -> RunState:
    """Return the state with a client's yes or no on a call; a yes alone does not answer every question.

    Args:
        state: the state in which the call waits.
        one: the call.
        approved: whether the client agrees.
        message: its reason if not.
    """
    if approved and not one.needs_answer:
        return state.approve(one)
    return state.reject(one, message=_NOT_ANSWERED if approved else message)
