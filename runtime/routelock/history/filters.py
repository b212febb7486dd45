"""Input filters: functions over what the next agent is to see.

A filter takes a `HandoffInputData` and returns one. It changes the view of the agents from here on,
never the transcript: results and sessions keep everything. Filters add up: what one hid stays hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from routelock._callables import MaybeAwaitable, name_of, resolve
from routelock.context import RunContext
from routelock.errors import ConfigError
from routelock.history.messages import (
    Message,
    RunItem,
    calls_of,
    checked_message,
    is_of_user,
    item_of,
    portable,
)
from routelock.history.trim import newest, within_budget

__all__ = [
    "HandoffInputData",
    "HandoffInputFilter",
    "compose",
    "keep_last",
    "last_user_message",
    "remove_all_tools",
    "tool_results_budget",
]


_KEEP: Any = object()

_PARTS = ("input_history", "pre_handoff_items", "new_items", "input_items")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffInputData:
    """What a filter is given at a handoff, in three parts that together are all the source saw.

    ``item.message`` is the chat message. To edit one, use ``dataclasses.replace(item, message={...})``.
    A filter of your own is given copies, so an edit in place changes the view only, too. `clone`, and whoever
    makes one, may give plain message dicts beside items, of which an assistant's keeps what any provider can
    read, and text for one message of the user's.
    """

    input_history: tuple[RunItem, ...]
    """What the run started from, or the summary of it after a nesting handoff."""
    pre_handoff_items: tuple[RunItem, ...]
    """What happened in the run before the turn that asked for the transfer."""
    new_items: tuple[RunItem, ...]
    """The turn that asked for the transfer: the model's message and the answers to its calls."""
    run_context: RunContext[Any] | None = None
    input_items: tuple[RunItem, ...] | None = None
    """If set, shown to the target instead of ``new_items``."""
    source: str = ""
    """Name of the agent that hands over."""
    target: str = ""
    """Name of the agent or handler that takes over."""
    arguments: Any = None
    """What the model passed with the transfer, parsed by the handoff's ``input_type``."""
    reason: str | None = None
    tool_call_id: str = ""

    def __post_init__(self) -> None:
        """Make items of text and plain messages, which the parts of openai-agents' data are.

        Raises:
            TypeError: a part is not a sequence.
            ConfigError: something in it is neither an item nor a message with a known role.
        """
        previous = -1
        for name in _PARTS:
            part = getattr(self, name)
            if part is not None and not _are_items(part):
                part = tuple(as_items(part, previous))
                object.__setattr__(self, name, part)
            previous = part[-1].id if part and name != "new_items" else previous

    @property
    def all_items(self) -> tuple[RunItem, ...]:
        """Everything the target would see, in order."""
        last = self.new_items if self.input_items is None else self.input_items
        return (*self.input_history, *self.pre_handoff_items, *last)

    def clone(
        self,
        *,
        input_history: Iterable[RunItem | Message] = _KEEP,
        pre_handoff_items: Iterable[RunItem | Message] = _KEEP,
        new_items: Iterable[RunItem | Message] = _KEEP,
        input_items: Iterable[RunItem | Message] | None = _KEEP,
    ) -> HandoffInputData:
        """Return a copy with some parts replaced; the parts left out stay as they are.

        Raises:
            TypeError: a part is not a sequence.
            ConfigError: something in it is neither an item nor a message with a known role.
        """
        given = {
            "input_history": input_history,
            "pre_handoff_items": pre_handoff_items,
            "new_items": new_items,
            "input_items": input_items,
        }
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not _KEEP}
        return cast(HandoffInputData, dataclasses.replace(cast(Any, self), **changes))


HandoffInputFilter = Callable[[HandoffInputData], MaybeAwaitable[HandoffInputData]]
"""A function, partial or callable object, sync or async."""

_Selection = Callable[[Sequence[RunItem]], Iterable[RunItem]]


def remove_all_tools(data: HandoffInputData) -> HandoffInputData:
    """Hide every tool call, tool answer and transfer; keep what was said in words.

    An assistant message that has text beside its calls keeps the text and loses the calls together
    with the reasoning that led to them; one that has only calls goes. A summary of
    nested history is words: to keep tools out of it, remove them before it is made, as in
    ``compose(remove_all_tools, nest_handoff_history)``.
    """
    return _by_part(data, _without_tools)


def _without_tools(items: Iterable[RunItem]) -> Iterable[RunItem]:
    for item in items:
        message = item.message
        if message["role"] == "tool" or item.kind == "note":
            continue
        if not calls_of(message):
            yield item
        elif message.get("content"):
            words: Message = {"role": "assistant", "content": message.get("content")}
            yield dataclasses.replace(item, message=words)


def keep_last(count: int) -> HandoffInputFilter:
    """Return a filter that shows the last ``count`` messages, and all system messages.

    A tool call and its answers count one each and are never separated: if they do not fit together,
    they go together. At least the last such group is shown unless ``count`` is 0.

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
    """Return a filter that shows at most ``max_bytes`` of tool results, in UTF-8, all of them together.

    The newest stay whole; older ones are cut, oldest first, and end in ``[... cut: 20480 bytes in all]``. A
    call and its answer stay together. Only where there are so many results that not even those notices fit,
    the oldest calls go with their answers. Transfers do not count, nor does what a summary says.

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
    """Show only the newest message of the user's, and system messages.

    Nested history is looked into. What the runtime says in the user's role does not count.
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
    """Apply a selection to the whole view and keep each chosen item in the part it came from."""
    chosen = {id(item) for item in select(data.all_items)}

    def part(items: Iterable[RunItem]) -> Iterable[RunItem]:
        return (item for item in items if id(item) in chosen)

    return _by_part(data, part)


def _by_part(
    data: HandoffInputData, change: Callable[[Iterable[RunItem]], Iterable[RunItem]]
) -> HandoffInputData:
    """Apply a change to each part by itself."""
    return data.clone(
        input_history=change(data.input_history),
        pre_handoff_items=change(data.pre_handoff_items),
        new_items=change(data.new_items),
        input_items=None if data.input_items is None else change(data.input_items),
    )


def is_system(item: RunItem) -> bool:
    """Whether a message has a system's or a developer's authority."""
    return item.message["role"] in ("system", "developer")


def newest_of_user(items: Sequence[RunItem]) -> RunItem | None:
    """Return the newest message that is the user's own."""
    return next(filter(is_of_user, reversed(items)), None)


def unfold(items: Iterable[RunItem]) -> list[RunItem]:
    """Replace summaries by what they cover, each item once.

    A summary of which a filter changed or removed a part stays what it is now: to unfold it would show
    again what the filter hid.
    """
    items = tuple(items)
    flat: list[RunItem] = []
    seen: dict[int, list[RunItem]] = {}
    for item in items:
        for one in item.covers if _is_whole(item, items) else (item,):
            known = seen.setdefault(one.id, [])
            if one not in known:  # equal is the same: a resumed run has other objects
                known.append(one)
                flat.append(one)
    return flat


def _is_whole(summary: RunItem, items: Sequence[RunItem]) -> bool:
    """Whether a summary is shown as it was made, with all messages that belong to it."""
    if summary.message not in summary.whole:
        return False
    shown = [item.message for item in items if item.covers is summary.covers]
    return all(shown.count(message) >= summary.whole.count(message) for message in summary.whole)


def _are_items(part: object) -> bool:
    return isinstance(part, tuple) and all(
        isinstance(one, RunItem) for one in cast("tuple[object, ...]", part)
    )


def as_items(value: object, previous: int = -1) -> list[RunItem]:
    """Turn what a filter or mapper put into a part into items.

    A plain message takes the id of the item before it, so that it keeps its place among the items
    when a later nesting handoff sorts them. Nothing says which provider wrote it, unless it comes from
    `RunResult.to_input_list`: an assistant's keeps only what all can read.

    Raises:
        TypeError: this is no sequence.
        ConfigError: something in it is neither an item nor a message with a known role.
    """
    given = type(value).__name__
    if isinstance(value, str):
        value = ({"role": "user", "content": value},)
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise TypeError(f"expected a tuple of items or messages, not {given}")
    items: list[RunItem] = []
    for index, item in enumerate(cast("Iterable[RunItem | Message]", value)):
        if not isinstance(item, RunItem):
            item = _written(checked_message(index, item), items[-1].id if items else previous)
        items.append(item)
    return items


def _written(message: Message, place: int) -> RunItem:
    item = item_of(message, place, "filter")
    if item.origin is not None or message["role"] != "assistant":
        return item
    return dataclasses.replace(item, message=portable(item.message))
