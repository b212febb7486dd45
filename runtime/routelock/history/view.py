"""The view: the part of a run's transcript that the active agent's model is shown.

A view is a list of items of the transcript. Items are appended to it; only a handoff replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from routelock._callables import MaybeAwaitable, error_text, is_error, resolve
from routelock._json import detached
from routelock.errors import ConfigError, HandoffFilterError
from routelock.history.filters import HandoffInputData, as_items
from routelock.history.messages import (
    Message,
    RunItem,
    call_ids,
    checked_message,
    drop_unknown_keys,
    item_of,
    portable,
)
from routelock.history.notes import Audience, unforged, with_notes
from routelock.history.repair import NOTHING_LEFT, repair, validate

__all__ = ["View"]


class View:
    """The items that the active agent is shown. A run has one view.

    `messages` renders only the items that are new since the last call, if these are complete turns: then the
    messages before them stay valid. Otherwise, for example after a handoff, it renders and repairs all items.
    Both give the same messages.
    """

    __slots__ = ("_audience", "_family", "_ids", "_rendered", "_reported", "_wire", "items")

    def __init__(self, items: Iterable[RunItem]) -> None:
        self.items: list[RunItem] = list(items)
        self._wire: list[Message] = []
        self._ids: set[str] = set()
        self._rendered = 0
        self._family: str | None = None
        self._audience: Audience | None = None
        self._reported: Sequence[str] = ()
        """The repairs that were made when all items were last rendered."""

    def rendered_for(self, family: str, audience: Audience | None) -> int:
        """Return how many items are rendered for this audience; their repairs were returned before."""
        return self._rendered if family == self._family and audience is self._audience else 0

    def add(self, item: RunItem) -> None:
        """Append an item."""
        self.items.append(item)

    def replace(self, items: Iterable[RunItem]) -> None:
        """Replace all items."""
        self.items = list(items)
        self._rendered, self._reported = 0, ()

    def messages(self, family: str, audience: Audience | None = None) -> tuple[list[Message], Sequence[str]]:
        """Return the messages for a handler of ``family``, and the repairs made since the last call.

        With an ``audience``, calls that this audience cannot make are described in notes.
        """
        is_same_audience = family == self._family and audience is self._audience
        if is_same_audience and self._rendered and self._extend():
            return self._wire, ()
        new = _rendered(self.items if audience is None else with_notes(self.items, audience), family)
        self._wire, repairs = repair(new)
        self._ids = call_ids(self._wire) | call_ids(new)
        found = [each for each in repairs if not is_same_audience or each not in self._reported]
        self._reported, self._family, self._audience = repairs, family, audience
        self._rendered = 0 if NOTHING_LEFT in repairs else len(self.items)
        return self._wire, found

    def _extend(self) -> bool:
        """Append the messages of the new items if they are valid by themselves and after the others."""
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
    """Return the items as messages for a handler of ``family``.

    A message that the family wrote itself is complete; one of another family has only the fields that all
    providers can read. A user's message cannot pass for a note of the runtime.
    """
    return [_shown(item, family) for item in items]


def _shown(item: RunItem, family: str) -> Message:
    if item.origin is not None:
        return item.message if item.origin == family else portable(item.message)
    if item.message["role"] == "user":
        return item.message if item.kind == "note" else unforged(item.message)
    return drop_unknown_keys(item.message)


def partition(
    items: Sequence[RunItem], first_of_run: int, first_of_turn: int
) -> tuple[tuple[RunItem, ...], tuple[RunItem, ...], tuple[RunItem, ...]]:
    """Split a view into the three parts of `HandoffInputData`; the order of the items stays.

    Args:
        items: the items of the view.
        first_of_run: the id of the run's first item. The first part ends before it.
        first_of_turn: the id of the turn's first item. The last part is all items of this turn at the end of
            the view; what is left between the two is the second part, also where a filter put an older item
            into it.
    """
    new = len(items)
    while new and items[new - 1].id >= first_of_turn:
        new -= 1
    began = (
        place for place, item in enumerate(items[:new]) if item.id >= first_of_run and item.kind != "summary"
    )
    run = next(began, new)
    return tuple(items[:run]), tuple(items[run:new]), tuple(items[new:])


async def apply_filter(
    apply: Callable[[HandoffInputData], MaybeAwaitable[HandoffInputData]],
    data: HandoffInputData,
    name: str,
    *,
    own: bool = False,
) -> list[RunItem]:
    """Apply an input filter, or the nesting of the history, and return the items of the new view.

    Args:
        apply: the filter.
        data: what the target would see.
        name: the name of the filter, for errors.
        own: whether the filter is routelock's own, which edits nothing in place. Any other filter gets
            copies, so its edits cannot change the transcript.

    Raises:
        HandoffFilterError: the filter raised, or returned something other than a HandoffInputData.
    """
    who = f"Input filter {name!r}"
    given, originals = (data, {id(item): item for item in data.all_items}) if own else _copied(data)
    with filter_errors(who, data):
        result = cast(object, await resolve(apply(given)))
    if not isinstance(result, HandoffInputData):
        raise HandoffFilterError(
            f"{who} on {_edge(data)} must return a HandoffInputData, not {type(result).__name__}. "
            "Return data.clone(...)."
        )
    try:
        items = enumerate(as_items(result.all_items))
        return [_frozen(index, item, originals.get(id(item))) for index, item in items]
    except (TypeError, ConfigError) as error:
        raise invalid_filter_result(who, data, error) from error


def _copied(data: HandoffInputData) -> tuple[HandoffInputData, dict[int, RunItem]]:
    """Return the data with copied messages, and the original of each copied item by the copy's `id`."""
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


def _frozen(index: int, item: RunItem, original: RunItem | None) -> RunItem:
    """Return the original item if its message is unchanged, else the item with a checked copy of the
    message.
    """
    if original is not None and (item is original or item.message == original.message):
        return original
    message = item_of(checked_message(index, item.message), item.id, item.kind).message
    return replace(item, message=message)


def _edge(data: HandoffInputData) -> str:
    return f"handoff {data.source!r} -> {data.target!r}"


@contextmanager
def filter_errors(who: str, data: HandoffInputData) -> Generator[None]:
    """Turn an exception of a filter or history mapper into a `HandoffFilterError` that says which it was.

    Args:
        who: names the function in the error.
        data: what the function was given.
    """
    try:
        yield
    except HandoffFilterError:
        raise
    except BaseException as error:
        if not is_error(error):
            raise
        reason = f"{type(error).__name__}: {error_text(error)}".rstrip(": .")
        raise HandoffFilterError(
            f"{who} raised on {_edge(data)}: {reason}. "
            "The run stopped rather than show the target the unfiltered history."
        ) from error


def invalid_filter_result(who: str, data: HandoffInputData, error: Exception) -> HandoffFilterError:
    """Return the error for a filter or history mapper that returned something else than messages."""
    return HandoffFilterError(f"{who} on {_edge(data)}: {str(error).rstrip('.')}.")
