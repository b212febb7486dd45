"""The progress of a run, which ends if it repeats itself or makes nothing but mistakes."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b

__all__ = ["Progress"]


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


@dataclass(slots=True, eq=False)
class Progress:
    """Calls and handoffs that a run has made, as a few numbers for each different one.

    A turn is progress if one of its calls was never made before, or has another result than the last time. So
    polling is progress, and so is to set and unset a value. Repeated calls are counted one by one: that finds
    cycles of any length, because an agent in a cycle makes the same calls again and again.

    With ``n`` different calls, a run ends at most ``2n + 4`` turns after its last progress. If it is in a
    cycle of ``n`` turns from the start, it ends in turn ``2n + 4``. Memory does not grow with the texts.
    """

    answers: dict[str, str] = field(default_factory=lambda: {})
    """Last result of each call, and each handoff that passed data with no result. Both are digests, which
    are the same in every process."""
    times: dict[str, int] = field(default_factory=lambda: {})
    """How often each call was made since the last progress."""
    transfers: set[tuple[str, str]] = field(default_factory=lambda: set())
    """Source and target of the handoffs since the last progress."""
    refused: int = 0
    """Handoffs that were refused as repeated since the last progress."""
    idle: int = 0
    """Turns in a row without progress."""
    names: dict[str, None] = field(default_factory=lambda: {})
    """Names of the tools called in these turns, in order."""
    nudged_at: int | None = None
    """The value of ``idle`` when the model was told that it repeats itself, which happens once."""
    mistakes: int = 0
    """Turns in a row with nothing but mistakes."""
    empty_replies: int = 0
    """Empty replies in a row."""
    over_limit: int = 0
    """Handoffs that were refused because of ``max_handoffs``; progress does not reset it."""

    def tool_results(self, results: Collection[_Result], requests: Collection[_Result] = ()) -> None:
        """Note the calls that were answered in one turn.

        Args:
            results: name, arguments and output of each call.
            requests: the same for calls that only requested a handoff: they can repeat, but a new one is no
                progress.
        """
        found = _by_call(results)
        made = found | _by_call(requests) if requests else found
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
        self.transfers.clear()
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
        return known and (source, target) in self.transfers

    def handed_over(self, source: str, target: str, given: str = "") -> None:
        """Note a handoff that was made. The source's repetitions do not count for the target."""
        if given and (digest := _handoff_digest(source, target, given)) not in self.answers:
            self.answers[digest] = ""
            self.transfers.clear()
            self.refused = 0
        self.transfers.add((source, target))
        self._reset_counts()

    def target_failed(self, name: str, arguments: str, error: str) -> None:
        """Note a failed target; its repetitions do not count for the caller that waited.

        Args:
            name: name of the tool that the caller called.
            arguments: arguments of that call.
            error: name of the error's class, or that of what a handler raised.
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
    """Return JSON in one form for any spacing and order of keys; text that is not JSON stays as it is."""
    try:
        return repr(_read_sorted(arguments))
    except (ValueError, RecursionError):
        return arguments
