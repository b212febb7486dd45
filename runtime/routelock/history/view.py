"""The view: the part of a run's transcript that the active agent's model is shown.

A view is a list of items of the transcript. Items are appended to it; only a handoff or a compaction replaces
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, cast

from routelock.history.compaction import ViewSize, is_compacted
from routelock.history.messages import NOTE, Message, RunItem, call_ids, quoted, text_of
from routelock.history.notes import Audience, with_notes
from routelock.history.portable import drop_unknown_keys, portable
from routelock.history.repair import NOTHING_LEFT, repair
from routelock.history.validity import validate

__all__ = ["View", "unforged"]


class View:
    """The items that the active agent is shown; append new ones to ``items``. A run has one view.

    `messages` renders only the items that are new since the last call, if they are valid after the messages
    before them. Otherwise, for example after a handoff, it renders all items, and repairs them if needed.
    Both give the same messages.
    """

    __slots__ = ("_audience", "_family", "_ids", "_rendered_count", "_reported", "_wire", "items", "size")

    def __init__(self, items: Iterable[RunItem]) -> None:
        self.items: list[RunItem] = list(items)
        self._wire: list[Message] = []
        self._ids: set[str] = set()
        self._rendered_count = 0
        self._family: str | None = None
        self._audience: Audience | None = None
        self._reported: Sequence[str] = ()
        """The repairs that were made when all items were last rendered."""
        self.size: ViewSize | None = None
        """The size of the items, if they are to be compacted."""

    def rendered_for(self, family: str, audience: Audience | None) -> int:
        """Return how many items are rendered for this audience; their repairs were returned before."""
        return self._rendered_count if family == self._family and audience is self._audience else 0

    def replace(self, items: Iterable[RunItem]) -> None:
        """Replace all items."""
        self.items, self.size = list(items), None
        self._rendered_count, self._reported = 0, ()

    def messages(self, family: str, audience: Audience | None = None) -> tuple[list[Message], Sequence[str]]:
        """Return the messages for a handler of ``family``, and the repairs made since the last call.

        With an ``audience``, calls that this audience cannot make are described in notes.
        """
        is_same_audience = family == self._family and audience is self._audience
        if is_same_audience and self._rendered_count:
            new = _render(self.items[self._rendered_count :], family)
            if not new or self._append(new):
                return self._wire, ()
        self._wire, self._ids, self._rendered_count = [], set(), 0
        self._family, self._audience = family, audience
        new = _render(self.items if audience is None else with_notes(self.items, audience), family)
        if self._append(new):
            self._reported = ()
            return self._wire, ()
        self._wire, repairs = repair(new)
        self._ids = call_ids(self._wire) | call_ids(new)
        found = [each for each in repairs if not is_same_audience or each not in self._reported]
        self._reported = repairs
        # a message that is appended later makes this repair void, so all items are rendered again
        self._rendered_count = 0 if NOTHING_LEFT in repairs else len(self.items)
        return self._wire, found

    def _append(self, new: list[Message]) -> bool:
        """Append the messages of the new items if they are valid by themselves and after the others."""
        wrong, ids = validate(new)
        if wrong or not self._ids.isdisjoint(ids):
            return False
        self._wire += new
        self._ids |= ids
        self._rendered_count = len(self.items)
        return True


def _render(items: Iterable[RunItem], family: str) -> list[Message]:
    """Return the items as messages for a handler of ``family``.

    A message that the family wrote itself is complete; one of another family has only the fields that all
    providers can read. A user's message cannot pass for a note of the runtime.
    """
    return [_render_item(item, family) for item in items]


def _render_item(item: RunItem, family: str) -> Message:
    if item.origin is not None:
        return item.message if item.origin == family else portable(item.message)
    if item.message["role"] == "user":
        is_own = item.kind == "note" or (item.kind == "summary" and is_compacted(item))
        return item.message if is_own else unforged(item.message)
    # the provider chooses which keys of other messages it sends
    return drop_unknown_keys(item.message) if item.message["role"] == "assistant" else item.message


def unforged(message: Message) -> Message:
    """Return a user message in which the beginning of a note is put in quotes, so that it forges none.

    A message without such a text is returned as the same object.
    """
    content = message.get("content")
    if isinstance(content, str):
        if NOTE not in content:
            return message
        return cast(Message, {**message, "content": quoted(content)})
    if NOTE not in text_of(message):
        return message
    parts: list[dict[str, Any]] = []
    for kind, several in groupby(content or (), key=lambda part: part.get("type")):
        group = [*several]
        text = "".join(str(part.get("text") or "") for part in group)
        # the text may be split into two parts, which a vendor joins
        forges = kind == "text" and NOTE in text
        parts += [{**group[0], "text": quoted(text)}] if forges else group
    return message if parts == content else cast(Message, {**message, "content": parts})
