"""Noticing that a run goes round without getting anywhere.

A turn brings something new when one of its calls was never made before, or is answered otherwise than
the last time; so polling, and turning a switch on and off, are progress. What brings nothing new is
counted per call. Circles of any length are noticed that way, without looking for them: whoever goes
round in one makes the same calls again and again.
"""

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
"""A call may be made twice with one result: to look again after a while is sensible. The third time it
is told. For a circle of n calls that is turn 2n + 1."""

_MORE_TURNS = 3
"""So many turns without anything new may follow a nudge, before the run ends. That is time to look at the
old results once more. A single call ends the run when it is made for the sixth time, a circle of three
in turn 10, just before `max_turns` would end it with a reason that says less."""

_MOST_NAMES = 5

_MOST_UNREAD = 1000
"""Turns."""

_in_order = json.JSONEncoder(sort_keys=True).encode

_Result = tuple[str, str, str]
"""The name, arguments and output of a call."""


@dataclass(slots=True)
class Progress:
    """What one run has seen: a few numbers for each different call, and nothing that grows with their texts.

    Bound: with ``n`` different calls, the run ends at most ``2n + 4`` turns after the last that brought
    something new; going round from the start, in a circle of ``n`` turns, it ends in turn ``2n + 4``.
    """

    answers: dict[str, str] = field(default_factory=lambda: {})
    """How each call was answered the last time; both as digests, which are the same in every process. And
    what was handed over to whom, with no answer."""
    times: dict[str, int] = field(default_factory=lambda: {})
    """How often each call was made since the last progress."""
    edges: set[tuple[str, str]] = field(default_factory=lambda: set())
    """Transfers taken since the last progress."""
    refused: int = 0
    """Transfers refused as going round since the last progress."""
    idle: int = 0
    """Turns in a row without anything new."""
    names: dict[str, None] = field(default_factory=lambda: {})
    """What they called, in order."""
    unread: list[tuple[list[_Result], bool]] = field(default_factory=lambda: [])
    """Turns that brought something new, which shows without reading their calls; and whether those count."""
    outputs: set[tuple[str, str]] = field(default_factory=lambda: set())
    """What each tool has given, as long as it was noted from the beginning."""
    told: int | None = None
    """The value of ``idle`` when the model was told; it is told once."""
    mistakes: int = 0
    """Turns in a row with nothing but mistakes."""
    empty_replies: int = 0
    """Empty replies in a row."""
    over_limit: int = 0
    """Handoffs that were refused because there had been enough; progress does not earn another."""

    def tool_results(self, results: Iterable[_Result], requests: Iterable[_Result] = ()) -> None:
        """Note the name, arguments and output of each call that one turn answered.

        ``requests`` are those that only ask to hand over: repeated, they repeat; they find nothing out.
        """
        results, requests = list(results), list(requests)
        if not requests and self._is_new_at_a_glance(results):
            if self.idle:
                self._start_counting()
            self.unread.append((results, True))
            self.edges.clear()
            self.refused = 0
            return
        self.read_all()
        found, asked = _by_call(results), _by_call(requests)
        made = {*found, *asked}
        new = [call for call, answer in found.items() if self.answers.get(call) != answer]
        if new:
            self._something_new(made, new)
        elif made:
            self._nothing_new(made, [name for name, _, _ in (*results, *requests)])
        self.answers |= found

    def _is_new_at_a_glance(self, results: Iterable[_Result]) -> bool:
        """Whether these tools never gave such results before, for whatever arguments."""
        if len(self.unread) >= _MOST_UNREAD or (self.answers and not self.outputs):
            self.outputs.clear()  # from now on each call is read: not all that was given is known
            return False
        given = [(name, output) for name, _, output in results]
        known = len(self.outputs)
        self.outputs.update(given)
        return bool(given) and len(self.outputs) == known + len(given)

    def read_all(self) -> None:
        """Note what was passed over as surely new, so that ``answers`` and ``times`` are complete."""
        unread, self.unread = self.unread, []
        for results, counts in unread:
            found = _by_call(results)
            self.answers |= found
            if counts:
                self.times |= dict.fromkeys(found, 1)

    def _something_new(self, made: Iterable[str], new: Iterable[str]) -> None:
        if self.idle:
            self._start_counting()
        self.times |= {**dict.fromkeys(made, 0), **dict.fromkeys(new, 1)}
        self.edges.clear()
        self.refused = 0

    def _nothing_new(self, made: Collection[str], names: Iterable[str]) -> None:
        self.idle += 1
        self.names |= dict.fromkeys(names)
        for call in made:
            self.times[call] = self.times.get(call, 0) + 1
        if self.told is None and all(self.times[call] >= _NUDGE_AT for call in made):
            self.told = self.idle

    def _start_counting(self) -> None:
        self.unread = [(results, False) for results, _ in self.unread]
        self.times.clear()
        self.names.clear()
        self.idle, self.told = 0, None

    def goes_round(self, source: str, target: str, given: str = "") -> bool:
        """Whether this transfer was already made since the last progress.

        Args:
            source: who hands over.
            target: to whom.
            given: the data that is passed along, as JSON: what was never passed along is new.
        """
        known = not given or _handing(source, target, given) in self.answers
        return known and (source, target) in self.edges

    def transferred(self, source: str, target: str, given: str = "") -> None:
        """Note a transfer that was made. What the source repeated is not held against the target."""
        if given and (handing := _handing(source, target, given)) not in self.answers:
            self.answers[handing] = ""
            self.edges.clear()
            self.refused = 0
        self.edges.add((source, target))
        self._start_counting()

    def failed(self, name: str, arguments: str, why: str) -> None:
        """Note that an agent that was asked has failed. What it repeated is not held against its caller."""
        self.tool_results([(name, arguments, why)])
        self.refused = 0
        self._start_counting()

    @property
    def needs_nudge(self) -> bool:
        """Whether this is the turn after which the model is to be told that it repeats itself."""
        return self.told is not None and self.told == self.idle

    @property
    def is_stuck(self) -> bool:
        """Whether the model went on without anything new for too long after it was told."""
        return self.told is not None and self.idle - self.told >= _MORE_TURNS

    @property
    def what(self) -> str:
        """What repeats, for people and models."""
        names = [*self.names]
        more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
        return ", ".join([*names[:_MOST_NAMES], *more])


def _by_call(made: Iterable[_Result]) -> dict[str, str]:
    """Return what each different call was answered, in whatever order and however often."""
    answers: dict[str, set[str]] = {}
    for name, arguments, output in made:
        answers.setdefault(_digest(f"{name}\0{_plain(arguments)}"), set()).add(_digest(output))
    return {call: "".join(sorted(several)) for call, several in answers.items()}


def _handing(source: str, target: str, given: str) -> str:
    return _digest(f"{source}\0{target}\0{_plain(given)}")


@functools.cache
def _blake2b() -> Callable[..., blake2b]:
    import hashlib  # noqa: PLC0415 - loads OpenSSL, for the few runs that repeat themselves

    return hashlib.blake2b


def _digest(text: str) -> str:
    return _blake2b()(text.encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def _plain(arguments: str) -> str:
    """Return arguments in one spelling: another space, or another order of names, changes nothing."""
    try:
        return _in_order(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments
