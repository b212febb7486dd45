"""Limits of a run, and the mistakes that may end one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from routelock._hints import hint_keywords
from routelock._peer_names import LIMIT_KEYWORDS
from routelock.usage import Usage

__all__ = ["Limits", "Mistake"]


Mistake = Literal["unknown_tool", "bad_arguments", "failed_handoff"]
"""Mistakes that can end a run, see ``RunConfig.raise_on``."""


@hint_keywords(LIMIT_KEYWORDS)
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run; None means no limit. ``RunConfig.on_limit`` says what a limit does.

    Some limits have an option of the same meaning, such as ``max_turns``. The smaller of the two holds, so
    the code that starts a run can tighten an app's limits and cannot loosen them. The defaults of
    ``max_turns`` and ``max_handoffs`` do not count.

    The run checks its limits before it begins a model call or a tool. It never interrupts one for a limit
    (except ``seconds``), so tokens and cost may exceed their limit by the last call. The runs of agents that
    are called as tools count as part of the run.
    """

    turns: int | None = None
    """Model calls that got a reply, over all agents. Same as ``max_turns``."""
    handoffs: int | None = None
    """Handoffs that are carried out. Same as ``RunConfig.max_handoffs``. An agent that is called as a tool
    may make the same number of its own."""
    requests: int | None = None
    """Model calls, failed attempts included."""
    tool_calls: int | None = None
    """Tools that are run, agents as tools included. Handoffs do not count."""
    tokens: int | None = None
    """Input and output tokens together, estimated where the model's server does not count them. The result
    has a warning if one of the app's own handlers reports no tokens."""
    cost: float | None = None
    """US dollars, see `Usage.cost`. The result has a warning if a price is not known."""
    seconds: float | None = None
    """Duration of the whole run. Same as ``RunConfig.timeout``."""

    def problems(self) -> list[str]:
        """Return what is wrong with these limits; empty if nothing is."""
        return [
            f"limits.{each.name} must be a number above 0, or None for no limit, not {value!r:.80}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and not _is_number(each.name, value)
        ]

    def used_up(self, usage: Usage, made: int = 0, calls: int = 0) -> str:
        """Return which limit is reached, as text; "" if none is.

        Args:
            usage: consumed so far.
            made: tool calls made so far.
            calls: tool calls that are about to be made; 0 to ask for another model call.
        """
        if calls:
            over = self.tool_calls is not None and made + calls > self.tool_calls
            return f"{made} of {self.tool_calls} tool calls are made" if over else ""
        if self.requests is not None and usage.requests >= self.requests:
            return f"{usage.requests} of {self.requests} requests are made"
        if self.tokens is not None and usage.total_tokens >= self.tokens:
            return f"{usage.total_tokens:,} of {self.tokens:,} tokens are used"
        if self.cost is not None and usage.cost is not None and usage.cost >= self.cost:
            return f"{usage.cost:.4f} of {self.cost:.4f} US dollars are spent"
        return ""

    def for_sub_run(self) -> Limits:
        """Return the limits for a sub-run, whose turns, handoffs and seconds are set by its outer run."""
        return replace(self, turns=None, handoffs=None, seconds=None)


def _is_number(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int) or name in ("cost", "seconds")
    return whole and value >= 0 if name in ("handoffs", "tool_calls") else whole and value > 0
