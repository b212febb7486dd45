"""What a run may consume, all of it in one place."""

from __future__ import annotations

from dataclasses import fields, replace

from routelock._records import dataclass
from routelock.usage import Usage

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may consume; None is no limit. See ``RunConfig.limits``, and ``on_limit`` for how it ends.

    Where an option says the same, such as ``max_turns``, the smaller one holds: so whoever makes a run can
    be stricter than an app's limits, and not laxer. ``max_turns`` and ``max_handoffs`` as they are by default
    say nothing here.

    A limit is looked at before a model call or a tool is begun, and what has begun comes to its end: tokens
    and money may go over by what the last call took. Runs of agents as tools count as part of the run.
    """

    turns: int | None = None
    """Model calls that got a reply, over all agents; ``max_turns`` says the same."""
    handoffs: int | None = None
    """Transfers; ``RunConfig.max_handoffs`` says the same. An agent that is asked as a tool may make as
    many."""
    requests: int | None = None
    """Model calls with those that failed and were made again."""
    tool_calls: int | None = None
    """Tools that are run, agents as tools included; transfers are none."""
    tokens: int | None = None
    """Input and output tokens together, estimated where a model's server does not count them; if a handler of
    the app's does not say, the result has a warning."""
    cost: float | None = None
    """US dollars, as far as prices are known, see `Usage.cost`; if one is not, the result has a warning."""
    seconds: float | None = None
    """From beginning to end; ``RunConfig.timeout`` says the same."""

    def problems(self) -> list[str]:
        """Return what cannot be meant."""
        return [
            f"limits.{each.name} must be a number above 0, or None for no limit, not {value!r:.80}"
            for each in fields(self)
            if (value := getattr(self, each.name)) is not None and not _is_number(each.name, value)
        ]

    def used_up(self, usage: Usage, made: int = 0, calls: int = 0) -> str:
        """Say which limit does not allow another model call, or so many more tool calls; "" if all do."""
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

    def within(self) -> Limits:
        """Return what holds for a run within another one too: its turns and its time are given to it."""
        return replace(self, turns=None, handoffs=None, seconds=None)


def _is_number(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int) or name in ("cost", "seconds")
    return whole and value >= 0 if name in ("handoffs", "tool_calls") else whole and value > 0
