"""What one run has consumed, in turns, tokens, money and tool calls, and the limits that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from routelock.errors import BudgetExceeded, MaxTurnsExceeded
from routelock.run.config import Limits
from routelock.usage import NO_USAGE, Usage

__all__ = ["Budget"]


_IN_FLIGHT = Usage(requests=1, cost=0.0)

NO_PRICE = (
    "the cost of the run is unknown, because the price of a model call is not known: its limit of the cost "
    "does not hold from there on. Limits(tokens=...) does, where tokens are counted or estimated"
)

NO_TOKENS = (
    "agent {agent!r}: the tokens of a model call are not known, because neither its handler nor "
    "a server counted them: for Limits(tokens=...) it took none"
)


@dataclass(slots=True, eq=False)
class Budget:
    """What a run has consumed, and what it may. A run and the runs within it have one budget together."""

    limits: Limits | None
    max_turns: int | None
    outer: Budget | None = None
    """That of the run that this one is within."""
    inner: dict[str, Budget] = field(default_factory=lambda: {})
    """Those of the agents that are being called as tools, by call id."""
    turns_within: int = 0
    """Turns of the runs within this one that have ended."""
    turns_counted: int = 0
    """Of a resumed run within another one: how many of its turns that one has counted already."""
    usage: Usage = NO_USAGE
    usage_by_agent: dict[str, Usage] = field(default_factory=lambda: {})
    tool_calls: int = 0
    """Tools that were run, in the runs within this one too."""
    in_flight: bool = False
    """True while an attempt of a model call is in flight, False between attempts."""

    def count(self, usage: Usage, agent: str) -> None:
        """Add what was consumed to the run and to an agent."""
        total, before = self.usage + usage, self.usage_by_agent.get(agent, NO_USAGE)
        # what one agent consumed is often all that was consumed, so it is added up once
        self.usage_by_agent[agent] = total if before is self.usage else before + usage
        self.usage = total

    def unknown(self, usage: Usage) -> str | None:
        """Return why a limit of the cost or of the tokens cannot hold after a call, if so."""
        if (limits := self.limits) is None:
            return None
        if limits.cost is not None and self.usage.cost is None and self.usage.requests:
            return NO_PRICE
        if limits.tokens is not None and usage.estimated and usage.requests and not usage.total_tokens:
            return NO_TOKENS
        return None

    def consumed(self) -> tuple[Usage, int]:
        """Return what was consumed and how many tools were run, here and within, with calls in flight."""
        usage, calls = self.usage, self.tool_calls
        if self.in_flight:
            usage += _IN_FLIGHT
        for inner in self.inner.values():
            more, made = inner.consumed()
            usage, calls = usage + more, calls + made
        return usage, calls

    def check(self, agent: str, calls: int = 0) -> None:
        """See whether there may be another model call, or so many tool calls.

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
                "Raise RunConfig(limits=...), or take what there is from error.result."
            )

    def check_turns(self, agent: str, turn: int) -> None:
        """See whether there may be another turn after this one.

        Raises:
            MaxTurnsExceeded: that would be one too many.
        """
        if self.max_turns is not None and turn + self.turns_within >= self.max_turns:
            raise MaxTurnsExceeded(
                f"Max turns ({self.max_turns}) exceeded: agent {agent!r} wanted another model "
                f"call. Raise {self._turns_set_by(self.max_turns)}, or take what there is from error.result."
            )

    def _turns_set_by(self, turns: int) -> str:
        if self.outer is None:
            return self.set_by("turns", turns, "max_turns")
        if (around := self.outer.max_turns) is None:
            return "max_turns of its as_tool()"
        return (
            f"max_turns of its as_tool() or of the run around it, whose {around} are shared by the agents "
            "that are asked"
        )

    def set_by(self, name: str, limit: float, option: str) -> str:
        """Return what has set a limit of the run: its limits, or the option that says the same."""
        wins = self.limits is not None and getattr(self.limits, name) == limit
        return f"RunConfig(limits=Limits({name}=...))" if wins else option
