"""What one run consumed, in turns, tokens, money and tool calls, and the limits that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from routelock.agents.agent import Agent
from routelock.context import RunContext
from routelock.errors import (
    BudgetExceeded,
    MaxTurnsExceeded,
)
from routelock.handlers.events import MessageDone
from routelock.handlers.port import Request
from routelock.run.config import Limits
from routelock.run.handoff_records import Hops
from routelock.run.result import (
    Problem,
    Shown,
)
from routelock.usage import NO_USAGE, Usage

__all__ = ["Books"]


_NO_PRICE = (
    "nobody knows what the run costs, because the price of a model call is not known: its limit of the cost "
    "does not hold from there on. Limits(tokens=...) does, where tokens are counted or estimated"
)

_UNDER_WAY = Usage(requests=1, cost=0.0)


@dataclass(slots=True, kw_only=True)
class Books(Hops):
    """The books of one run while it goes on."""

    agent: Agent[Any]
    """Who is active."""
    max_turns: int | None
    turn: int = field(default=0, init=False)
    turns_within: int = field(default=0, init=False)
    """How many turns the runs within this one had that have ended."""
    moment: RunContext[Any] | None = field(default=None, init=False)
    """The context of the present moment, once it was asked for."""
    usage: Usage = field(default=NO_USAGE, init=False)
    usage_by_agent: dict[str, Usage] = field(default_factory=dict[str, Usage], init=False)
    tool_calls: int = field(default=0, init=False)
    """Tools that were run, those of runs within included."""
    errors: tuple[Problem, ...] = field(default=(), init=False)
    repairs: tuple[str, ...] = field(default=(), init=False)
    warnings: tuple[str, ...] = field(default=(), init=False)

    open_call: tuple[Request, Shown] | None = field(default=None, init=False)
    """The model call that was begun and has no complete reply yet."""
    attempted: bool = field(default=False, init=False)
    """Whether it is being made, and has not failed and waits for its next attempt."""
    arrived: MessageDone | None = field(default=None, init=False)
    """The complete reply of a model call that has not come to its end."""
    partial: list[str] = field(default_factory=list[str], init=False)
    """The text of a reply that is still arriving; not empty as soon as anything was shown."""
    outer: Books | None = field(default=None, init=False)
    """The run that this one is within, as long as that one asks."""
    within: dict[str, Any] = field(default_factory=dict[str, Any], init=False)
    """The `Run`s of the agent tools that are being called, by call id and in call order."""

    def consumed(self) -> tuple[Usage, int]:
        """Return what was consumed and how many tools were run, here and within, with calls under way."""
        usage, calls = self.usage, self.tool_calls
        if self.open_call is not None and self.attempted:
            usage += _UNDER_WAY
        for inner in self.within.values():
            more, made = inner.consumed()
            usage, calls = usage + more, calls + made
        return usage, calls

    def check_budget(self, calls: int = 0) -> None:
        """See whether there may be another model call, or so many tool calls.

        All runs that are within one another have one budget.

        Raises:
            BudgetExceeded: the limits do not allow it.
        """
        if (limits := self.config.limits) is None:
            return
        wanted = f"{calls} more, of which none was made" if calls else "another model call"
        outermost: Books = self
        while outermost.outer is not None:
            outermost = outermost.outer
        if why := limits.used_up(*outermost.consumed(), calls):
            raise BudgetExceeded(
                f"The budget of the run is used up: {why}, and agent {self.agent.name!r} wanted {wanted}. "
                "Raise RunConfig(limits=...), or take what there is from error.result."
            )

    def check_turns(self) -> None:
        """See whether there may be another turn.

        Raises:
            MaxTurnsExceeded: that would be one too many.
        """
        if self.max_turns is not None and self.turn + self.turns_within >= self.max_turns:
            raise MaxTurnsExceeded(
                f"Max turns ({self.max_turns}) exceeded: agent {self.agent.name!r} wanted another model "
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
        limits = self.config.limits
        wins = limits is not None and getattr(limits, name) == limit
        return f"RunConfig(limits=Limits({name}=...))" if wins else option

    def count(self, usage: Usage, agent: str | None = None) -> None:
        """Add what was consumed to the run and to an agent: the active one, if none is named."""
        name = self.agent.name if agent is None else agent
        total, before = self.usage + usage, self.usage_by_agent.get(name, NO_USAGE)
        # what one agent consumed since a transfer is often what it consumed at all, so it is added up once
        so_far = self.usage_by_agent[name] = total if before is self.usage else before + usage
        self.usage, self.moment = total, None
        if self.open_handoff is not None:
            spent = self.spent[self.open_handoff]
            self.spent[self.open_handoff] = so_far if spent is before else spent + usage
        if self.config.limits is not None:
            self._check_counted(self.config.limits, name, usage, total)

    def _check_counted(self, limits: Limits, agent: str, usage: Usage, total: Usage) -> None:
        """Warn once where a limit of the cost or of the tokens cannot hold."""
        if limits.cost is not None and total.cost is None and total.requests:
            self._warn_once(_NO_PRICE)
        if limits.tokens is not None and usage.estimated and usage.requests and not usage.total_tokens:
            self._warn_once(
                f"agent {agent!r}: the tokens of a model call are not known, because neither its handler nor "
                "a server counted them: for Limits(tokens=...) it took none"
            )

    def _warn_once(self, text: str) -> None:
        if text not in self.warnings:
            self.warn(text)

    def problem(
        self,
        kind: Any,
        message: str,
        *,
        call_id: str | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Note something that went wrong without ending the run."""
        name, turn = self.agent.name, self.turn
        found = Problem(kind=kind, agent=name, turn=turn, message=message, call_id=call_id, error=error)
        self.errors += (found,)

    def warn(self, text: str) -> None:
        """Note something that whoever reads the result should know."""
        self.warnings += (text,)
