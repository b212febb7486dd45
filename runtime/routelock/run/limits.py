"""The usage of a run, and the limits that end it early."""

from __future__ import annotations

from routelock.errors import BudgetExceeded, MaxTurnsExceeded
from routelock.run.config import Limits
from routelock.usage import NO_USAGE, Usage

__all__ = ["Budget"]


_IN_FLIGHT = Usage(requests=1, cost=0.0)

NO_PRICE = (
    "the cost of the run is unknown, because the price of a model call is not known. Limits(cost=...) has no "
    "effect from here on; Limits(tokens=...) works where tokens are counted or estimated"
)

NO_TOKENS = (
    "agent {agent!r}: neither the handler nor the server counted the tokens of a model call, so it counts as "
    "none for Limits(tokens=...)"
)


class Budget:
    """Usage of a run, and its limits; a run and its sub-runs are checked together."""

    __slots__ = (
        "before",
        "in_flight",
        "inner",
        "limits",
        "max_turns",
        "outer",
        "own_limits",
        "sub_run_turns",
        "tool_calls",
        "turns_counted",
        "usage",
        "usage_by_agent",
    )

    def __init__(self, limits: Limits | None, max_turns: int | None) -> None:
        self.limits: Limits | None = limits
        self.max_turns: int | None = max_turns
        self.outer: Budget | None = None
        """Budget of the outer run, for a sub-run."""
        self.own_limits: Limits | None = None
        """Limits of a sub-run and its own sub-runs alone, see ``Agent.as_tool(run_config=...)``."""
        self.before: tuple[Usage, int] = NO_USAGE, 0
        """Usage and tool calls of a resumed sub-run that its outer run has counted already."""
        self.inner: dict[str, Budget] = {}
        """Budgets of the active sub-runs, by call id."""
        self.sub_run_turns: int = 0
        """Turns of the sub-runs that have ended."""
        self.turns_counted: int = 0
        """Turns of a resumed sub-run that its outer run has counted already."""
        self.usage: Usage = NO_USAGE
        self.usage_by_agent: dict[str, Usage] = {}
        self.tool_calls: int = 0
        """Tools that were run, those of ended sub-runs included."""
        self.in_flight: bool = False
        """True while an attempt of a model call is in flight, False between attempts."""

    def begin_attempt(self) -> None:
        """Note that an attempt of a model call is in flight, see `routelock.handlers.retry`."""
        self.in_flight = True

    def warning_of(self, usage: Usage, agent: str) -> str | None:
        """Return why a limit has no effect after a call of this usage, or None."""
        if (limits := self.limits) is None:
            return None
        if limits.cost is not None and self.usage.cost is None and self.usage.requests:
            return NO_PRICE
        if limits.tokens is not None and usage.estimated and usage.requests and not usage.total_tokens:
            return NO_TOKENS.format(agent=agent)
        return None

    def consumed(self) -> tuple[Usage, int]:
        """Return usage and number of tool calls, with active sub-runs and calls in flight."""
        usage, calls = self.usage, self.tool_calls
        if self.in_flight:
            usage += _IN_FLIGHT
        for inner in self.inner.values():
            more, made = inner.consumed()
            usage, calls = usage + more, calls + made
        return usage, calls

    def check(self, agent: str, calls: int = 0) -> None:
        """Check that the limits allow another model call, or a number of tool calls.

        Args:
            agent: name of the agent that wants to make them.
            calls: number of tool calls; 0 for a model call.

        Raises:
            BudgetExceeded: the limits do not allow it.
        """
        outermost = self
        while outermost.outer is not None:
            outermost._check_own(agent, calls)
            outermost = outermost.outer
        if self.limits is None:
            return
        if why := self.limits.used_up(*outermost.consumed(), calls):
            raise BudgetExceeded(
                f"The budget of the run is used up: {why}, and agent {agent!r} wanted {_wanted(calls)}. "
                "Raise RunConfig(limits=...), or use the partial result in error.result."
            )

    def _check_own(self, agent: str, calls: int) -> None:
        """Check the limits of a sub-run alone, as `check` does."""
        if self.own_limits is None:
            return
        usage, made = self.all_consumed()
        if why := self.own_limits.used_up(usage, made, calls):
            raise BudgetExceeded(
                f"The budget of the agent's call is used up: {why}, and agent {agent!r} wanted "
                f"{_wanted(calls)}. Raise the limits in the run_config of its as_tool()."
            )

    def all_consumed(self) -> tuple[Usage, int]:
        """Return usage and number of tool calls, also those from before a sub-run was resumed."""
        (usage, calls), (usage_before, calls_before) = self.consumed(), self.before
        return usage + usage_before, calls + calls_before

    def check_turns(self, agent: str, turn: int) -> None:
        """Check that there may be another turn after this one.

        Raises:
            MaxTurnsExceeded: the run has made ``max_turns`` turns.
        """
        if self.max_turns is not None and turn + self.sub_run_turns >= self.max_turns:
            raise MaxTurnsExceeded(
                f"Max turns ({self.max_turns}) exceeded: agent {agent!r} wanted another model call. Raise "
                f"{self._turns_set_by(self.max_turns)}, or use the partial result in error.result."
            )

    def _turns_set_by(self, turns: int) -> str:
        if self.outer is None:
            return self.set_by("turns", turns, "max_turns")
        if (around := self.outer.max_turns) is None:
            return "max_turns of its as_tool()"
        return (
            f"max_turns of its as_tool() or of the run around it, whose {around} are shared by the agents "
            "that are called as tools"
        )

    def set_by(self, name: str, limit: float, option: str) -> str:
        """Return the setting that a limit of the run comes from, for error messages.

        Args:
            name: field of `Limits`.
            limit: value of the limit.
            option: the option that means the same.
        """
        wins = self.limits is not None and getattr(self.limits, name) == limit
        return f"RunConfig(limits=Limits({name}=...))" if wins else option


def _wanted(calls: int) -> str:
    return f"{calls} more, of which none was made" if calls else "another model call"
