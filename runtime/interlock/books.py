"""What a run has consumed, and what went wrong in it without ending it.

Part of `interlock.run.Run`, where all that changes during a run is together.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from interlock.agents import Agent
from interlock.context import RunContext
from interlock.errors import BudgetExceeded
from interlock.fresh import NEW_DICT
from interlock.hops import Hops
from interlock.records import dataclass
from interlock.results import Problem
from interlock.usage import NO_USAGE, Usage

__all__ = ["Books"]


@dataclass(slots=True, kw_only=True)
class Books(Hops):
    """The books of one run while it goes on."""

    agent: Agent[Any]
    """Who is active."""
    turn: int = field(default=0, init=False)
    moment: RunContext[Any] | None = field(default=None, init=False)
    """The context of the present moment, once it was asked for."""
    usage: Usage = field(default=NO_USAGE, init=False)
    usage_by_agent: dict[str, Usage] = field(default_factory=NEW_DICT, init=False)
    tool_calls: int = field(default=0, init=False)
    """Tools that were run, those of runs within included."""
    errors: tuple[Problem, ...] = field(default=(), init=False)
    repairs: tuple[str, ...] = field(default=(), init=False)
    warnings: tuple[str, ...] = field(default=(), init=False)

    def check_budget(self, calls: int = 0) -> None:
        """See whether there may be another model call, or so many tool calls.

        Raises:
            BudgetExceeded: the limits do not allow it.
        """
        if (limits := self.config.limits) is None:
            return
        wanted = f"{calls} more, of which none was made" if calls else "another model call"
        if why := limits.used_up(self.usage, self.tool_calls, calls):
            raise BudgetExceeded(
                f"The budget of the run is used up: {why}, and agent {self.agent.name!r} wanted {wanted}. "
                "Raise RunConfig(limits=...), or take what there is from error.result."
            )

    def count(self, usage: Usage, agent: str | None = None) -> None:
        """Add what was consumed to the run and to an agent: the active one, if none is named."""
        name = self.agent.name if agent is None else agent
        total, before = self.usage + usage, self.usage_by_agent.get(name, NO_USAGE)
        self.usage_by_agent[name] = total if before is self.usage else before + usage
        self.usage, self.moment = total, None
        if self.open_handoff is not None:
            self.spent[self.open_handoff] += usage

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
