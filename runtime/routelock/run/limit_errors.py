"""The errors of a run that reaches a limit, and the warning about a limit without effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from routelock.errors import BudgetExceeded, MaxTurnsExceeded
from routelock.run.limits import Limits
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.run.run import Budget

__all__ = ["budget_exceeded", "limit_warning", "own_budget_exceeded", "set_by", "turns_exceeded"]


_NO_PRICE = (
    "the cost of the run is unknown, because the price of a model call is not known. Limits(cost=...) has no "
    "effect from here on; Limits(tokens=...) works where tokens are counted or estimated"
)

_NO_TOKENS = (
    "agent {agent!r}: neither the handler nor the server counted the tokens of a model call, so it counts as "
    "none for Limits(tokens=...)"
)


def limit_warning(limits: Limits, total: Usage, usage: Usage, agent: str) -> str | None:
    """Return why a limit has no effect after a model call, or None.

    Args:
        limits: the limits of the run.
        total: usage of the run, with the call.
        usage: usage of the call.
        agent: name of the agent that made it.
    """
    if limits.cost is not None and total.cost is None and total.requests:
        return _NO_PRICE
    if limits.tokens is not None and usage.estimated and usage.requests and not usage.total_tokens:
        return _NO_TOKENS.format(agent=agent)
    return None


def budget_exceeded(why: str, agent: str, calls: int) -> BudgetExceeded:
    """Return the error of a run whose limits do not allow another model call, or ``calls`` tool calls."""
    return BudgetExceeded(
        f"The budget of the run is used up: {why}, and agent {agent!r} wanted {_wanted(calls)}. "
        "Raise RunConfig(limits=...), or use the partial result in error.result."
    )


def own_budget_exceeded(why: str, agent: str, calls: int) -> BudgetExceeded:
    """Return the error of a sub-run whose own limits do not allow this, see ``as_tool(run_config=...)``."""
    return BudgetExceeded(
        f"The budget of the agent's call is used up: {why}, and agent {agent!r} wanted "
        f"{_wanted(calls)}. Raise the limits in the run_config of its as_tool()."
    )


def _wanted(calls: int) -> str:
    if not calls:
        return "another model call"
    return "another tool call" if calls == 1 else f"{calls} more tool calls, of which none was made"


def turns_exceeded(budget: Budget, most: int, agent: str) -> MaxTurnsExceeded:
    """Return the error of a run that has made all of its turns.

    Args:
        budget: the budget of the run.
        most: the number of turns that it allows.
        agent: name of the agent that wanted another one.
    """
    return MaxTurnsExceeded(
        f"Max turns ({most}) exceeded: agent {agent!r} wanted another model call. Raise "
        f"{_turns_set_by(budget, most)}, or use the partial result in error.result."
    )


def _turns_set_by(budget: Budget, turns: int) -> str:
    if budget.outer is None:
        return set_by(budget.limits, "turns", turns, "max_turns")
    if (around := budget.outer.max_turns) is None:
        return "max_turns of its as_tool()"
    return (
        f"max_turns of its as_tool() or of the run around it, whose {around} are shared by the agents "
        "that are called as tools"
    )


def set_by(limits: Limits | None, name: str, limit: float, option: str) -> str:
    """Return the setting that a limit of a run comes from, for error messages.

    Args:
        limits: the limits of the run.
        name: field of `Limits`.
        limit: value of the limit.
        option: the option that means the same.
    """
    wins = limits is not None and getattr(limits, name) == limit
    return f"RunConfig(limits=Limits({name}=...))" if wins else option
