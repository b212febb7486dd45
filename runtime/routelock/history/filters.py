"""Input filters: functions that choose what the next agent sees after a handoff.

A filter takes a `HandoffInputData` and returns one. It changes the view from this handoff on, never the
transcript, so results and sessions keep all messages. A message that one filter hid stays hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from routelock._callables import MaybeAwaitable, error_text, is_error, name_of, resolve
from routelock._copies import detached
from routelock.context import RunContext
from routelock.errors import ConfigError, HandoffFilterError
from routelock.history.input import checked_message
from routelock.history.marked import item_of
from routelock.history.messages import Message, RunItem, calls_of
from routelock.history.notes import is_of_user
from routelock.history.portable import portable
from routelock.history.trim import newest, within_budget
from routelock.history.vendor_calls import VENDOR_KEYS

__all__ = [
    "HandoffInputData",
    "HandoffInputFilter",
    "apply_filter",
    "compose",
    "filter_errors",
    "invalid_filter_result",
    "keep_last",
    "last_user_message",
    "partition",
    "remove_all_tools",
    "tool_results_budget",
    "without_calls",
]


_UNCHANGED: Any = object()

_Given = Iterable[RunItem | Message] | str
"""A part as filters may give it; text is one user message."""

_PART_NAMES = ("input_history", "pre_handoff_items", "new_items", "input_items")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffInputData:
    """The input of a filter at a handoff: everything the source saw, in three parts.

    ``item.message`` is the chat message. To edit one, use ``dataclasses.replace(item, message={...})``. A
    filter of your own gets copies, so even an edit in place changes only the view. The constructor and
    `clone` also accept plain message dicts, and text for one user message. A plain assistant message loses
    the fields that only its own provider can read.
    """

    input_history: tuple[RunItem, ...]
    """The input of the run, or its summary after a nesting handoff."""
    pre_handoff_items: tuple[RunItem, ...]
    """The items of the run before the turn of the handoff."""
    new_items: tuple[RunItem, ...]
    """The turn of the handoff: the model's message and the results of its calls."""
    run_context: RunContext[Any] | None = None
    input_items: tuple[RunItem, ...] | None = None
    """If set, the target sees these items instead of ``new_items``."""
    source: str = ""
    """The name of the agent that hands over."""
    target: str = ""
    """The name of the agent or handler that takes over."""
    arguments: Any = None
    """The arguments of the handoff, parsed by its ``input_type``."""
    reason: str | None = None
    tool_call_id: str = ""

    if TYPE_CHECKING:  # the parts are items, whatever they were made of

        def __init__(
            self,
            *,
            input_history: _Given,
            pre_handoff_items: _Given,
            new_items: _Given,
            run_context: RunContext[Any] | None = None,
            input_items: _Given | None = None,
            source: str = "",
            target: str = "",
            arguments: Any = None,
            reason: str | None = None,
            tool_call_id: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        """Convert text and plain messages to items, because filters written for openai-agents return these.

        Raises:
            TypeError: a part is not a sequence.
            ConfigError: a part has an element that is neither an item nor a message with a known role.
        """
        previous = -1
        for name in _PART_NAMES:
            part = getattr(self, name)
            if not _are_items(part) and (part is not None or name != "input_items"):
                part = tuple(as_items(part, previous))
                object.__setattr__(self, name, part)
            previous = part[-1].id if part and name != "new_items" else previous

    @property
    def all_items(self) -> tuple[RunItem, ...]:
        """All items that the target would see, in order."""
        last = self.new_items if self.input_items is None else self.input_items
        return (*self.input_history, *self.pre_handoff_items, *last)

    def clone(
        self,
        *,
        input_history: _Given = _UNCHANGED,
        pre_handoff_items: _Given = _UNCHANGED,
        new_items: _Given = _UNCHANGED,
        input_items: _Given | None = _UNCHANGED,
    ) -> HandoffInputData:
        """Return a copy with some parts replaced; the other parts stay as they are.

        Raises:
            TypeError: a part is not a sequence.
            ConfigError: a part has an element that is neither an item nor a message with a known role.
        """
        given = {
            "input_history": input_history,
            "pre_handoff_items": pre_handoff_items,
            "new_items": new_items,
            "input_items": input_items,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not _UNCHANGED}
        return cast(HandoffInputData, dataclasses.replace(cast(Any, self), **changes))


HandoffInputFilter = Callable[[HandoffInputData], MaybeAwaitable[HandoffInputData]]
"""An input filter: a function, partial or callable object, sync or async."""

_Selection = Callable[[Sequence[RunItem]], Iterable[RunItem]]


def remove_all_tools(data: HandoffInputData) -> HandoffInputData:
    """Hide all tool calls, tool results and handoffs, those of vendors' own tools too, and keep the text.

    An assistant message with text and calls keeps the text and loses the calls and its reasoning; a message
    that has only calls is hidden. The summary of a nested history is text: to keep tools out of it, hide them
    before it is made, as in ``compose(remove_all_tools, nest_handoff_history)``.
    """
    return _by_part(data, _without_tools)


def _without_tools(items: Iterable[RunItem]) -> Iterable[RunItem]:
    for item in items:
        message = item.message
        if message["role"] == "tool" or item.kind == "note":
            continue
        if not calls_of(message) and VENDOR_KEYS.isdisjoint(message):
            yield item
        elif message.get("content"):
            text_only: Message = {"role": "assistant", "content": message.get("content")}
            yield dataclasses.replace(item, message=text_only)


def keep_last(count: int) -> HandoffInputFilter:
    """Return a filter that shows the last ``count`` messages and all system messages.

    A message with tool calls and its results count as one message each, and stay together: if they do not
    fit, all of them are hidden. The last such group is always shown unless ``count`` is 0.

    Raises:
        ConfigError: ``count`` is negative.
    """
    if count < 0:
        raise ConfigError(f"keep_last needs a count of 0 or more, not {count}.")

    def kept(items: Sequence[RunItem]) -> list[RunItem]:
        return [items[place] for place in newest([item.message for item in items], count)]

    def shown(data: HandoffInputData) -> HandoffInputData:
        return _over_all(data, kept)

    shown.__name__ = f"keep_last({count})"
    return shown


def tool_results_budget(max_bytes: int = 8192) -> HandoffInputFilter:
    """Return a filter that shows at most ``max_bytes`` of tool results, in UTF-8, all results together.

    The newest results stay whole; older ones are cut, the oldest first, and end in
    ``[... cut: 20480 bytes in all]``. A call and its result stay together. If there are so many results that
    these notices do not fit, the oldest calls are hidden with their results. Handoffs and summaries do not
    count.

    Raises:
        ConfigError: ``max_bytes`` is negative.
    """
    if max_bytes < 0:
        raise ConfigError(f"tool_results_budget needs 0 bytes or more, not {max_bytes}.")

    def shown(data: HandoffInputData) -> HandoffInputData:
        items = data.all_items
        exempt = [item.kind == "handoff" for item in items]
        messages = iter(within_budget([item.message for item in items], max_bytes, exempt))

        def part(items: Iterable[RunItem]) -> list[RunItem]:
            return [
                item if message is item.message else dataclasses.replace(item, message=message)
                for item, message in zip(items, messages, strict=False)
                if message is not None
            ]

        history, before = part(data.input_history), part(data.pre_handoff_items)
        if data.input_items is None:
            return data.clone(input_history=history, pre_handoff_items=before, new_items=part(data.new_items))
        last = part(data.input_items)
        return data.clone(input_history=history, pre_handoff_items=before, input_items=last)

    shown.__name__ = f"tool_results_budget({max_bytes})"
    return shown


def last_user_message(data: HandoffInputData) -> HandoffInputData:
    """Show only the newest user message and the system messages.

    A user message inside a nested summary counts; a message of the runtime with the user's role does not.
    """

    def kept(items: Sequence[RunItem]) -> list[RunItem]:
        newest = newest_of_user(items)
        return [item for item in items if item is newest or (is_system(item) and item.kind != "summary")]

    return _over_all(_by_part(data, unfold), kept)


def compose(*filters: HandoffInputFilter) -> HandoffInputFilter:
    """Return one filter that applies ``filters`` from left to right; each may be sync or async."""

    async def composed(data: HandoffInputData) -> HandoffInputData:
        for one in filters:
            data = await resolve(one(data))
        return data

    composed.__name__ = f"compose({', '.join(map(name_of, filters))})"
    return composed


def _over_all(data: HandoffInputData, select: _Selection) -> HandoffInputData:
    """Apply a selection to the whole view; each chosen item stays in its part."""
    chosen = {id(item) for item in select(data.all_items)}

    def part(items: Iterable[RunItem]) -> Iterable[RunItem]:
        return (item for item in items if id(item) in chosen)

    return _by_part(data, part)


def _by_part(
    data: HandoffInputData, change: Callable[[Iterable[RunItem]], Iterable[RunItem]]
) -> HandoffInputData:
    """Apply a change to each part."""
    return data.clone(
        input_history=change(data.input_history),
        pre_handoff_items=change(data.pre_handoff_items),
        new_items=change(data.new_items),
        input_items=None if data.input_items is None else change(data.input_items),
    )


def is_system(item: RunItem) -> bool:
    """Whether an item is a system or developer message."""
    return item.message["role"] in ("system", "developer")


def newest_of_user(items: Sequence[RunItem]) -> RunItem | None:
    """Return the newest message that the user wrote."""
    return next(filter(is_of_user, reversed(items)), None)


def unfold(
    items: Iterable[RunItem], is_opened: Callable[[RunItem], bool] = lambda item: True
) -> list[RunItem]:
    """Replace each summary by the items that it covers, each item once.

    A summary that a filter has changed stays as it is, because unfolding would show what the filter hid.

    Args:
        items: the items of a view.
        is_opened: whether an item may be unfolded; all may be by default.
    """
    items = tuple(items)
    flat: list[RunItem] = []
    seen: dict[int, list[RunItem]] = {}
    for item in items:
        for one in item.covers if is_opened(item) and _is_unchanged(item, items) else (item,):
            known = seen.setdefault(one.id, [])
            if one not in known:  # compared by value: a resumed run has other objects
                known.append(one)
                flat.append(one)
    return flat


def _is_unchanged(summary: RunItem, items: Sequence[RunItem]) -> bool:
    """Whether a filter left all messages that a summary consists of in the view, unchanged."""
    if summary.message not in summary.whole:
        return False
    if len(summary.whole) == 1:
        return True
    shown = [item.message for item in items if item.covers is summary.covers]
    return all(shown.count(message) >= summary.whole.count(message) for message in summary.whole)


def _are_items(part: object) -> bool:
    return isinstance(part, tuple) and all(
        isinstance(one, RunItem) for one in cast("tuple[object, ...]", part)
    )


def as_items(value: object, previous: int = -1) -> list[RunItem]:
    """Return the elements that a filter or mapper put into a part, as items.

    A plain message gets the id of the item before it, so that it keeps its place when a later nesting handoff
    sorts the items. Its provider is known only if it comes from `RunResult.to_input_list`; otherwise an
    assistant message keeps only the fields that all providers can read.

    Raises:
        TypeError: the value is not a sequence.
        ConfigError: an element is neither an item nor a message with a known role.
    """
    given = type(value).__name__
    if isinstance(value, str):
        value = ({"role": "user", "content": value},)
    if not isinstance(value, Iterable) or isinstance(value, Mapping | bytes):
        raise TypeError(f"expected a tuple of items or messages, not {given}")
    items: list[RunItem] = []
    for index, item in enumerate(cast("Iterable[RunItem | Message]", value)):
        if not isinstance(item, RunItem):
            item = _item_of_filter(checked_message(index, item), items[-1].id if items else previous)
        items.append(item)
    return items


def _item_of_filter(message: Message, place: int) -> RunItem:
    item = item_of(message, place, "filter")
    if item.origin is not None or message["role"] != "assistant":
        return item
    return dataclasses.replace(item, message=portable(item.message))


# How a run applies them


def partition(
    items: Sequence[RunItem], first_of_run: int, first_of_turn: int
) -> tuple[tuple[RunItem, ...], tuple[RunItem, ...], tuple[RunItem, ...]]:
    """Split a view into the three parts of `HandoffInputData`; the order of the items stays.

    Args:
        items: the items of the view.
        first_of_run: the id of the run's first item. The first part ends before it.
        first_of_turn: the id of the turn's first item. The third part is all items of this turn at the end of
            the view. The second part is between the other two; it may have an older item that a filter put
            there.
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
        data: the input of the target without the filter.
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
    try:
        if not isinstance(result, HandoffInputData):
            kind = type(result).__name__
            raise TypeError(f"it must return a HandoffInputData, not {kind}; return data.clone(...)")
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
    """Return an item of a filter without shared data.

    It is the original item if its message is unchanged, else the item with a checked copy of the message.
    """
    if original is not None and (item is original or item.message == original.message):
        return original
    message = item_of(checked_message(index, item.message), item.id, item.kind).message
    return replace(item, message=message)


def _edge(data: HandoffInputData) -> str:
    return f"handoff {data.source!r} -> {data.target!r}"


@contextmanager
def filter_errors(who: str, data: HandoffInputData) -> Generator[None]:
    """Turn an exception of a filter or history mapper into a `HandoffFilterError` that names the function.

    Args:
        who: names the function in the error.
        data: the input of the function.
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
    """Return the error for a filter or history mapper that returned something other than messages."""
    return HandoffFilterError(f"{who} on {_edge(data)}: {str(error).rstrip('.')}.")


def without_calls(items: list[RunItem], call_ids: Collection[str]) -> list[RunItem]:
    """Return items without some calls and their results."""
    kept: list[RunItem] = []
    for item in items:
        message = item.message
        calls = [call for call in calls_of(message) if call.get("id") not in call_ids]
        if message.get("tool_call_id") in call_ids:
            continue
        if calls and len(calls) < len(calls_of(message)):
            kept.append(replace(item, message=cast(Message, {**message, "tool_calls": calls})))
        elif calls or not calls_of(message):
            kept.append(item)
        elif content := portable(message).get("content"):
            words: Message = {"role": "assistant", "content": content}
            kept.append(replace(item, message=words))
    return kept
