"""Numbers for all messages of a run, so that a trace has each of them once.

Those of the transcript have the numbers of their items. What only a model saw counts down from -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelock.handlers.port import ToolSpec
from routelock.history.messages import Message, RunItem, is_note, portable
from routelock.history.notes import unforged
from routelock.run.result import Shown
from routelock.trace_records import ItemTraced, Span, ToolsTraced, spans

__all__ = ["Accounted", "Accounts"]

_OWN_WORDS = frozenset(("summary", "filter", "note"))
"""Kinds of items that are nobody's words in the transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """What became of the messages of the transcript in one model call, and what is to be written before."""

    unwritten: Sequence[ItemTraced | ToolsTraced]
    shown: Sequence[Span]
    removed: Sequence[Span]
    summarised: Sequence[Span]
    told: Sequence[Span]
    tools: int | None


@dataclass(frozen=True, slots=True)
class _Form:
    """A message that is not in the transcript as it is."""

    message: Message
    """Held, so that no other message can have its identity."""
    kind: str
    stands_for: int | None = None
    covers: Sequence[int] = ()


class Accounts:
    """The numbers of one run."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._written = 0
        self._numbers: dict[int, int] = {}
        self._forms: dict[int, _Form] = {}
        self._systems: dict[str, int] = {}
        self._offers: list[Sequence[ToolSpec]] = []
        self._last: tuple[Shown, int, Accounted] | None = None
        """What the last call was shown, how much was written then, and its account."""

    def new_items(self, items: Sequence[RunItem], now: float) -> Iterable[ItemTraced]:
        """Return what the transcript has that was not written yet."""
        new = items[self._written :]
        self._written = len(items)
        for item in new:
            self._numbers[id(item.message)] = item.id
            yield ItemTraced(
                run=self._run_id,
                time=now,
                id=item.id,
                kind=item.kind,
                message=item.message,
                agent=item.agent,
                asked_by=item.asked_by,
            )

    def of_call(
        self, tools: Sequence[ToolSpec], shown: Shown, view: Sequence[RunItem], now: float
    ) -> Accounted:
        """Return what a model call is shown and offered.

        Args:
            tools: what it is offered.
            shown: what it is shown.
            view: of what that was made.
            now: the time of what is to be written.
        """
        found = self._gone_on(tools, shown, now) or self._afresh(tools, shown, view, now)
        self._last = shown, self._written, found
        return found

    def _gone_on(self, tools: Sequence[ToolSpec], shown: Shown, now: float) -> Accounted | None:
        """Return the account of a call that is shown what the last one was, and all that has come since.

        Nearly all calls of a long run are: to look at all messages for each would take ever longer.
        """
        if self._last is None:
            return None
        before, written, last = self._last
        if shown.growing is not before.growing or shown.system != before.system:
            return None
        new = [self._numbers.get(id(message)) for message in shown.growing[before.count : shown.count]]
        if new != list(range(written, self._written)):
            return None
        unwritten: list[ItemTraced | ToolsTraced] = []
        offered = self._offer(tools, now, unwritten)
        seen = spans(range(written, self._written), last.shown)
        return replace(last, tools=offered, unwritten=unwritten, shown=seen)

    def _afresh(
        self, tools: Sequence[ToolSpec], call: Shown, view: Sequence[RunItem], now: float
    ) -> Accounted:
        unwritten: list[ItemTraced | ToolsTraced] = []
        shown = [self._number(message, view, now, unwritten) for message in call.messages()]
        forms = [self._forms[number] for number in shown if number < 0]
        summarised = {place for form in forms for place in form.covers}
        there = {*shown, *(form.stands_for for form in forms)}
        known = there | summarised
        missing = [place for place in range(self._written) if place not in known]
        told: set[int] = set()
        if missing and any(form.kind == "note" for form in forms):
            told = {item.id for item in view if item.kind not in _OWN_WORDS}.intersection(missing)
        return Accounted(
            tools=self._offer(tools, now, unwritten),
            unwritten=unwritten,
            shown=spans(shown),
            removed=spans(place for place in missing if place not in told),
            summarised=spans(sorted(summarised - there)),
            told=spans(sorted(told)),
        )

    def _number(self, message: Message, view: Sequence[RunItem], now: float, unwritten: list[Any]) -> int:
        known = self._numbers.get(id(message))
        if known is None and message["role"] == "system":
            known = self._systems.get(str(message.get("content")))
        if known is not None:
            return known
        number, form = -1 - len(self._forms), _form_of(message, view)
        self._forms[number], self._numbers[id(message)] = form, number
        if form.kind == "system":
            self._systems[str(message.get("content"))] = number
        unwritten.append(
            ItemTraced(
                run=self._run_id,
                time=now,
                id=number,
                kind=form.kind,
                message=message,
                covers=spans(form.covers),
                stands_for=form.stands_for,
            )
        )
        return number

    def _offer(self, specs: Sequence[ToolSpec], now: float, unwritten: list[Any]) -> int | None:
        if not specs:
            return None
        for number, known in enumerate(self._offers):
            if known is specs or known == specs:
                return number
        self._offers.append(specs)
        number = len(self._offers) - 1
        unwritten.append(ToolsTraced(run=self._run_id, time=now, id=number, tools=specs))
        return number


def _form_of(message: Message, view: Sequence[RunItem]) -> _Form:
    """Find out what a message is that is not in the transcript as it is."""
    for item in view:
        if item.message is message:
            return _made_of(message, item, item.kind)
    for item in view:
        if item.message["role"] == message["role"] and unforged(portable(item.message)) == message:
            return _made_of(message, item, "view")
    if message["role"] == "system":
        return _Form(message, "system")
    return _Form(message, "note" if is_note(message) else "view")


def _made_of(message: Message, item: RunItem, kind: str) -> _Form:
    if item.kind in _OWN_WORDS:
        return _Form(message, item.kind, covers=sorted({each.id for each in item.covers}))
    return _Form(message, kind, stands_for=item.id)
