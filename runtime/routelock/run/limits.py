"""What ends a run early: `Budget` is its usage and limits, `Progress` finds a run that repeats itself."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from routelock.errors import BudgetExceeded, MaxTurnsExceeded
from routelock.run.config import Limits
from routelock.usage import NO_USAGE, Usage

if TYPE_CHECKING:
    from hashlib import blake2b

__all__ = ["Budget", "Progress"]


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

    def count(self, usage: Usage, agent: str) -> str | None:
        """Add usage to the run and to an agent; return why a limit has no effect from now on, or None."""
        total, before = self.usage + usage, self.usage_by_agent.get(agent, NO_USAGE)
        # many runs have one agent, whose usage is that of the run, so the sum is made once
        self.usage_by_agent[agent] = total if before is self.usage else before + usage
        self.usage = total
        if (limits := self.limits) is None:
            return None
        if limits.cost is not None and total.cost is None and total.requests:
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


_NUDGE_AT = 3
"""The model is told when it makes a call with the same result for the third time: to look again once is
sensible. In a cycle of n calls that is turn 2n + 1."""

_TURNS_AFTER_NUDGE = 3
"""Turns without progress after a nudge, before the run ends: time to look at the old results once more. A
single call ends the run when it is made for the sixth time. A cycle of three calls ends it in turn 10, just
before the default `max_turns`, whose error would say less."""

_MOST_NAMES = 5

_read_sorted = json.JSONDecoder(object_pairs_hook=lambda pairs: sorted(dict(pairs).items())).decode

_Result = tuple[str, str, str]
"""The name, arguments and output of a call."""


class Progress:
    """Calls and handoffs that a run has made, as a few numbers for each different one.

    A turn is progress if one of its calls was never made before, or has another result than the last time. So
    polling is progress, and so is to set and unset a value. Repeated calls are counted one by one: that finds
    cycles of any length, because an agent in a cycle makes the same calls again and again.

    With ``n`` different calls, a run ends at most ``2n + 4`` turns after its last progress. If it is in a
    cycle of ``n`` turns from the start, it ends in turn ``2n + 4``. Memory does not grow with the texts.
    """

    __slots__ = (
        "answers",
        "edges",
        "empty_replies",
        "idle",
        "mistakes",
        "names",
        "nudged_at",
        "over_limit",
        "refused",
        "times",
    )

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        """Last result of each call, and each handoff that passed data with no result. Both are digests, which
        are the same in every process."""
        self.times: dict[str, int] = {}
        """How often each call was made since the last progress."""
        self.edges: set[tuple[str, str]] = set()
        """Source and target of the handoffs since the last progress."""
        self.refused: int = 0
        """Handoffs that were refused as repeated since the last progress."""
        self.idle: int = 0
        """Turns in a row without progress."""
        self.names: dict[str, None] = {}
        """Names of the tools called in these turns, in order."""
        self.nudged_at: int | None = None
        """The value of ``idle`` when the model was told that it repeats itself, which happens once."""
        self.mistakes: int = 0
        """Turns in a row with nothing but mistakes."""
        self.empty_replies: int = 0
        """Empty replies in a row."""
        self.over_limit: int = 0
        """Handoffs that were refused because of ``max_handoffs``; progress does not reset it."""

    def tool_results(self, results: Collection[_Result], requests: Collection[_Result] = ()) -> None:
        """Note the calls that were answered in one turn.

        Args:
            results: name, arguments and output of each call.
            requests: the same for calls that only requested a handoff: they can repeat, but a new one is no
                progress.
        """
        found, requested = _by_call(results), _by_call(requests)
        made = {*found, *requested}
        new = [call for call, answer in found.items() if self.answers.get(call) != answer]
        if new:
            self._note_progress(made, new)
        elif made:
            self._note_repetition(made, [name for name, _, _ in (*results, *requests)])
        self.answers |= found

    def _note_progress(self, made: Iterable[str], new: Iterable[str]) -> None:
        if self.idle:
            self._reset_counts()
        self.times |= {**dict.fromkeys(made, 0), **dict.fromkeys(new, 1)}
        self.edges.clear()
        self.refused = 0

    def _note_repetition(self, made: Collection[str], names: Iterable[str]) -> None:
        self.idle += 1
        self.names |= dict.fromkeys(names)
        for call in made:
            self.times[call] = self.times.get(call, 0) + 1
        if self.nudged_at is None and all(self.times[call] >= _NUDGE_AT for call in made):
            self.nudged_at = self.idle

    def _reset_counts(self) -> None:
        self.times.clear()
        self.names.clear()
        self.idle, self.nudged_at = 0, None

    def is_repeated(self, source: str, target: str, given: str = "") -> bool:
        """Whether this handoff was already made since the last progress.

        Args:
            source: name of the agent that hands over.
            target: name of the agent or handler that it hands over to.
            given: the data that is passed along, as JSON. Data that was never passed along is progress.
        """
        known = not given or _handoff_digest(source, target, given) in self.answers
        return known and (source, target) in self.edges

    def handed_over(self, source: str, target: str, given: str = "") -> None:
        """Note a handoff that was made. The source's repetitions do not count for the target."""
        if given and (digest := _handoff_digest(source, target, given)) not in self.answers:
            self.answers[digest] = ""
            self.edges.clear()
            self.refused = 0
        self.edges.add((source, target))
        self._reset_counts()

    def target_failed(self, name: str, arguments: str, error: str) -> None:
        """Note a failed target; its repetitions do not count for the caller that waited.

        Args:
            name: name of the tool that the caller called.
            arguments: arguments of that call.
            error: name of the error's class.
        """
        self.tool_results([(name, arguments, error)])
        self.refused = 0
        self._reset_counts()

    @property
    def needs_nudge(self) -> bool:
        """Whether the model is to be told after this turn that it repeats itself."""
        return self.nudged_at is not None and self.nudged_at == self.idle

    @property
    def is_stuck(self) -> bool:
        """Whether the run has made no progress for too many turns after the model was told."""
        return self.nudged_at is not None and self.idle - self.nudged_at >= _TURNS_AFTER_NUDGE

    @property
    def repeated_tools(self) -> str:
        """Names of the tools that repeat, as text for a person or a model."""
        names = [*self.names]
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        return ", ".join([*names[:_MOST_NAMES], *more])


def _by_call(made: Collection[_Result]) -> dict[str, str]:
    """Return digests of the different calls and their results, in any order and number."""
    answers: dict[str, set[str]] = {}
    for name, arguments, output in made:
        answers.setdefault(_digest(f"{name}\0{_normalized(arguments)}"), set()).add(_digest(output))
    return {call: "".join(sorted(several)) for call, several in answers.items()}


def _handoff_digest(source: str, target: str, given: str) -> str:
    return _digest(f"{source}\0{target}\0{_normalized(given)}")


@functools.cache
def _blake2b() -> Callable[..., blake2b]:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which runs without tools do not need

    return hashlib.blake2b


def _digest(text: str) -> str:
    return _blake2b()(text.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def _normalized(arguments: str) -> str:
    """Return JSON in a form without spaces and order of keys; text that is not JSON stays as it is."""
    try:
        return repr(_read_sorted(arguments))
    except (ValueError, RecursionError):
        return arguments
