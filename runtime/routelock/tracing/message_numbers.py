"""Numbers of the messages and tool lists in the trace of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from routelock.handlers.port import ToolSpec
from routelock.history.messages import Message, RunItem, is_note
from routelock.history.portable import portable
from routelock.history.view import unforged
from routelock.run.records import Shown
from routelock.tracing.records import ItemTraced, Span, ToolsTraced, spans

__all__ = ["CallMessages", "MessageNumbers"]


_GENERATED = frozenset(("summary", "filter", "note"))
"""Kinds of items that are only in a view, and not in the transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMessages:
    """Numbers of the messages of a model call, and the records to write before it."""

    unwritten: Sequence[ItemTraced | ToolsTraced]
    shown: Sequence[Span]
    """Messages of the call."""
    removed: Sequence[Span]
    """Messages of the transcript that the call does not have in any form."""
    summarised: Sequence[Span]
    """Messages of the transcript that a summary replaces."""
    told: Sequence[Span]
    """Messages of the transcript that are in a handoff note."""
    tools: int | None
    """Number of the list of tools; None without tools."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """A message of a call that differs from those of the transcript."""

    message: Message
    """The message; keeping it prevents that another object gets its id()."""
    kind: str
    stands_for: int | None = None
    covers: Sequence[int] = ()


class MessageNumbers:
    """Numbers of the messages and lists of tools that are written in the trace of a run.

    A message of the transcript has the id of its item; all others have negative numbers.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._written = 0
        """Number of items of the transcript that are written."""
        self._numbers: dict[int, int] = {}
        """The number of each message, by id() of the message."""
        self._variants: dict[int, _Variant] = {}
        self._systems: dict[str, int] = {}
        self._tool_lists: list[Sequence[ToolSpec]] = []
        self._last: tuple[Shown, int, CallMessages] | None = None
        """The last call: its messages, ``_written`` at that time, and their numbers."""

    def new_items(self, items: Sequence[RunItem], now: float) -> Iterable[ItemTraced]:
        """Return records of the items that were not written yet."""
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
    ) -> CallMessages:
        """Return the numbers of a model call's messages and tools.

        Args:
            tools: tools and handoffs that are offered to the model.
            shown: messages of the call.
            view: items that the messages were made from.
            now: time for the records.
        """
        found = self._from_last(tools, shown, now) or self._from_all(tools, shown, view, now)
        self._last = shown, self._written, found
        return found

    def _from_last(self, tools: Sequence[ToolSpec], shown: Shown, now: float) -> CallMessages | None:
        """Return the numbers of a call that has the last call's messages and all that were added since.

        Nearly all calls of a long run are of this kind. To look at all messages in each call would take time
        that grows with the square of the run's length.
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
        offered = self._number_of_tools(tools, now, unwritten)
        all_shown = spans(range(written, self._written), last.shown)
        return replace(last, tools=offered, unwritten=unwritten, shown=all_shown)

    def _from_all(
        self, tools: Sequence[ToolSpec], call: Shown, view: Sequence[RunItem], now: float
    ) -> CallMessages:
        unwritten: list[ItemTraced | ToolsTraced] = []
        shown = [self._number(message, view, now, unwritten) for message in call.messages()]
        variants = [self._variants[number] for number in shown if number < 0]
        summarised = {place for variant in variants for place in variant.covers}
        present = {*shown, *(variant.stands_for for variant in variants)}
        known = present | summarised
        missing = [place for place in range(self._written) if place not in known]
        told: set[int] = set()
        if missing and any(variant.kind == "note" for variant in variants):
            told = {item.id for item in view if item.kind not in _GENERATED}.intersection(missing)
        return CallMessages(
            tools=self._number_of_tools(tools, now, unwritten),
            unwritten=unwritten,
            shown=spans(shown),
            removed=spans(place for place in missing if place not in told),
            summarised=spans(sorted(summarised - present)),
            told=spans(sorted(told)),
        )

    def _number(self, message: Message, view: Sequence[RunItem], now: float, unwritten: list[Any]) -> int:
        known = self._numbers.get(id(message))
        if known is None and message["role"] == "system":
            known = self._systems.get(str(message.get("content")))
        if known is not None:
            return known
        number, variant = -1 - len(self._variants), _variant_of(message, view)
        self._variants[number], self._numbers[id(message)] = variant, number
        if variant.kind == "system":
            self._systems[str(message.get("content"))] = number
        unwritten.append(
            ItemTraced(
                run=self._run_id,
                time=now,
                id=number,
                kind=variant.kind,
                message=message,
                covers=spans(variant.covers),
                stands_for=variant.stands_for,
            )
        )
        return number

    def _number_of_tools(self, specs: Sequence[ToolSpec], now: float, unwritten: list[Any]) -> int | None:
        if not specs:
            return None
        for number, known in enumerate(self._tool_lists):
            if known is specs or known == specs:
                return number
        self._tool_lists.append(specs)
        number = len(self._tool_lists) - 1
        unwritten.append(ToolsTraced(run=self._run_id, time=now, id=number, tools=specs))
        return number


def _variant_of(message: Message, view: Sequence[RunItem]) -> _Variant:
    """Return a message that is not in the transcript, with the items that it was made from."""
    for item in view:
        if item.message is message:
            return _variant_of_item(message, item, item.kind)
    for item in view:
        if item.message["role"] == message["role"] and unforged(portable(item.message)) == message:
            return _variant_of_item(message, item, "view")
    if message["role"] == "system":
        return _Variant(message, "system")
    return _Variant(message, "note" if is_note(message) else "view")


def _variant_of_item(message: Message, item: RunItem, kind: str) -> _Variant:
    if item.kind in _GENERATED:
        return _Variant(message, item.kind, covers=sorted({each.id for each in item.covers}))
    return _Variant(message, kind, stands_for=item.id)
