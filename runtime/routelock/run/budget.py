"""Usage and limits of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

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


@dataclass(slots=True, eq=False)
class Budget:
    """Usage of a run, and its limits; a run and its sub-runs are checked together."""

    limits: Limits | None
    max_turns: int | None
    outer: Budget | None = None
    """Budget of the outer run, for a sub-run."""
    inner: dict[str, Budget] = field(default_factory=lambda: {})
    """Budgets of the active sub-runs, by call id."""
    sub_run_turns: int = 0
    """Turns of the sub-runs that have ended."""
    turns_counted: int = 0
    """Turns of a resumed sub-run that its outer run has counted already."""
    usage: Usage = NO_USAGE
    usage_by_agent: dict[str, Usage] = field(default_factory=lambda: {})
    tool_calls: int = 0
    """Tools that were run, those of ended sub-runs included."""
    in_flight: bool = False
    """True while an attempt of a model call is in flight, False between attempts."""

    def count(self, usage: Usage, agent: str) -> None:
        """Add usage to the run and to an agent."""
        total, before = self.usage + usage, self.usage_by_agent.get(agent, NO_USAGE)
        # many runs have one agent, whose usage is that of the run, so the sum is made once
        self.usage_by_agent[agent] = total if before is self.usage else before + usage
        self.usage = total

    def unknown(self, usage: Usage) -> str | None:
        """Return why the limit of the cost or of the tokens has no effect after a call, or None."""
        if (limits := self.limits) is None:
            return None
        if limits.cost is not None and self.usage.cost is None and self.usage.requests:
            return NO_PRICE
        if limits.tokens is not None and usage.estimated and usage.requests and not usage.total_tokens:
            return NO_TOKENS
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
        if self.limits is None:
            return
        outermost = self
        while outermost.outer is not None:
            outermost = outermost.outer
        if why := self.limits.used_up(*outermost.consumed(), calls):
            wanted = f"{calls} more, of which none was made" if calls else "another model call"
            raise BudgetExceeded(
                f"The budget of the run is used up: {why}, and agent {agent!r} wanted {wanted}. "
                "Raise RunConfig(limits=...), or use the partial result in error.result."
            )

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
