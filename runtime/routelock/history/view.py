"""The view: what of a run's transcript one model call is shown, and what filters make of it.

A view is a list of the transcript's own items. It changes at a handoff only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

from routelock._callables import MaybeAwaitable, error_text, is_error, resolve
from routelock._json import detached
from routelock.errors import ConfigError, HandoffFilterError
from routelock.history.filters import HandoffInputData, as_items
from routelock.history.messages import Message, RunItem, call_ids, checked_message, item_of, portable, stored
from routelock.history.notes import Audience, unforged, with_notes
from routelock.history.repair import NOTHING_LEFT, repair, validate

__all__ = ["View"]


class View:
    """What the active agent is shown, as it grows. One per run.

    `messages` renders and repairs only what is new since the last call, as long as that is complete
    turns: then what was valid stays valid. Anything else, such as a handoff, starts afresh. The result is
    always what starting afresh would give.
    """

    __slots__ = ("_audience", "_family", "_ids", "_rendered", "_told", "_wire", "items")

    def __init__(self, items: Iterable[RunItem]) -> None:
        self.items = list(items)
        self._wire: list[Message] = []
        self._ids: set[str] = set()
        self._rendered = 0
        self._family: str | None = None
        self._audience: Audience | None = None
        self._told: Sequence[str] = ()
        """What had to be repaired for them, the last time that all was rendered."""

    def rendered_for(self, family: str, audience: Audience | None) -> int:
        """Return how many of the items were rendered already for this audience: their repairs were told."""
        return self._rendered if family == self._family and audience is self._audience else 0

    def add(self, item: RunItem) -> None:
        """Show one more item from now on."""
        self.items.append(item)

    def replace(self, items: Iterable[RunItem]) -> None:
        """Show these items instead of the present ones."""
        self.items = list(items)
        self._rendered, self._told = 0, ()

    def messages(self, family: str, audience: Audience | None = None) -> tuple[list[Message], Sequence[str]]:
        """Return the messages for a handler of ``family``, and what had to be repaired since the last time.

        With an ``audience``, calls that it cannot make are told to it in notes.
        """
        if self.rendered_for(family, audience) and self._goes_on():
            return self._wire, ()
        items = self.items if audience is None else with_notes(self.items, audience)
        self._wire = new = _rendered(items, family)
        wrong, self._ids = validate(new)
        notes: Sequence[str] = ()
        found: Sequence[str] = ()
        if wrong:
            self._wire, notes = repair(new)
            self._ids = call_ids(self._wire) | call_ids(new)
            told = self._told if family == self._family and audience is self._audience else ()
            found = [note for note in notes if note not in told]
        self._told, self._family, self._audience = notes, family, audience
        self._rendered = 0 if NOTHING_LEFT in notes else len(self.items)
        return self._wire, found

    def _goes_on(self) -> bool:
        """Take in what is new, if that is valid by itself, and what comes before too, with it."""
        assert self._family is not None
        new = _rendered(self.items[self._rendered :], self._family)
        if new:
            wrong, ids = validate(new)
            if wrong or not self._ids.isdisjoint(ids):
                return False
            self._wire += new
            self._ids |= ids
            self._rendered = len(self.items)
        return True


def _rendered(items: Iterable[RunItem], family: str) -> list[Message]:
    """Give back to a family what it wrote, whole; give any other only what all can read.

    What a user wrote is shown so that it cannot be taken for a note.
    """
    return [_shown(item, family) for item in items]


def _shown(item: RunItem, family: str) -> Message:
    if item.origin is not None:
        return item.message if item.origin == family else portable(item.message)
    if item.message["role"] == "user":
        return item.message if item.kind == "note" else unforged(item.message)
    return stored(item.message)


def partition(
    items: Sequence[RunItem], first_of_run: int, first_of_turn: int
) -> tuple[tuple[RunItem, ...], tuple[RunItem, ...], tuple[RunItem, ...]]:
    """Split a view into a filter's three parts, by the ids where run and turn began, and never reorder it.

    The last part is all of the turn at the end. Of the rest, the history ends where the run begins; what
    follows is the run's, although a filter may have put something older there.
    """
    new = len(items)
    while new and items[new - 1].id >= first_of_turn:
        new -= 1
    began = (
        place for place, item in enumerate(items[:new]) if item.id >= first_of_run and item.kind != "summary"
    )
    run = next(began, new)
    return tuple(items[:run]), tuple(items[run:new]), tuple(items[new:])


async def filtered(
    apply: Callable[[HandoffInputData], MaybeAwaitable[HandoffInputData]],
    data: HandoffInputData,
    name: str,
    *,
    own: bool = False,
) -> list[RunItem]:
    """Apply a filter or a nesting and return the items of the new view.

    Args:
        apply: the filter.
        data: what the target would see.
        name: what the filter is called in an error.
        own: whether it is one of routelock's, which edit nothing in place. Any other is given copies:
            whatever it does to them, the transcript stays what it was.

    Raises:
        HandoffFilterError: it raised, or returned something that is not what a filter returns.
    """
    who = f"Input filter {name!r}"
    given, originals = (data, {id(item): item for item in data.all_items}) if own else _copied(data)
    try:
        result = cast(object, await resolve(apply(given)))
    except HandoffFilterError:
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        raise filter_failed(who, data, error) from error
    if not isinstance(result, HandoffInputData):
        raise HandoffFilterError(
            f"{who} on {_edge(data)} must return a HandoffInputData, not {type(result).__name__}. "
            "Return data.clone(...)."
        )
    try:
        items = enumerate(as_items(result.all_items))
        return [_settled(index, item, originals.get(id(item))) for index, item in items]
    except (TypeError, ConfigError) as error:
        raise filter_returned_no_data(who, data, error) from error


def _copied(data: HandoffInputData) -> tuple[HandoffInputData, dict[int, RunItem]]:
    """Return the same data with messages of its own, and which item each of its items stands for."""
    parts = (data.input_history, data.pre_handoff_items, data.new_items, data.input_items or ())
    items = [item for part in parts for item in part]
    copies = {id(item): replace(item, message=detached(item.message)) for item in items}
    history, before, new, instead = (tuple(copies[id(item)] for item in part) for part in parts)
    given = replace(
        data,
        input_history=history,
        pre_handoff_items=before,
        new_items=new,
        input_items=None if data.input_items is None else instead,
    )
    return given, {id(copies[id(item)]): item for item in items}


def _settled(index: int, item: RunItem, original: RunItem | None) -> RunItem:
    """Return an item that nobody can edit any more: the transcript's, if its message was not changed."""
    if original is not None and (item is original or item.message == original.message):
        return original
    message = item_of(checked_message(index, item.message), item.id, item.kind).message
    return replace(item, message=message)


def _edge(data: HandoffInputData) -> str:
    return f"handoff {data.source!r} -> {data.target!r}"


def filter_failed(who: str, data: HandoffInputData, error: BaseException) -> HandoffFilterError:
    why = f"{type(error).__name__}: {error_text(error)}".rstrip(": .")
    return HandoffFilterError(
        f"{who} raised on {_edge(data)}: {why}. "
        "The run stopped rather than show the target the unfiltered history."
    )


def filter_returned_no_data(who: str, data: HandoffInputData, error: Exception) -> HandoffFilterError:
    return HandoffFilterError(f"{who} on {_edge(data)}: {str(error).rstrip('.')}.")
