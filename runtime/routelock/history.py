"""What a model is shown: the view of a run, and the summaries of nested history in it.

The transcript keeps everything. The view is what one model call is shown of it; it changes only at a
handoff. A nested history is a projection: a summary item knows the items it covers, so the next
nesting handoff renders again from those. Nothing is ever parsed back from text, so user text that
looks like a summary stays user text, and each item is shown exactly once.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, cast, overload

from routelock._callables import MaybeAwaitable, is_failure, resolve, words_of
from routelock._json import detached
from routelock.errors import ConfigError, HandoffFilterError
from routelock.filters import HandoffInputData, as_items, is_system, newest_of_user, unfold
from routelock.messages import Message, RunItem, call_ids, checked_message, item_of, portable, stored
from routelock.narrative import Reader, narrated, unforged
from routelock.parts import media_of, without_media
from routelock.repair import NOTHING_LEFT, examined, repair

__all__ = [
    "HandoffHistoryMapper",
    "View",
    "default_handoff_history_mapper",
    "get_conversation_history_wrappers",
    "nest_handoff_history",
    "reset_conversation_history_wrappers",
    "set_conversation_history_wrappers",
]

HandoffHistoryMapper = Callable[[list[Message]], MaybeAwaitable[Sequence[Message]]]
"""Turns the earlier messages into those that the target is shown instead; sync or async."""

_DEFAULT_WRAPPERS = ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")
_PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
_MAPPER = "The history mapper of nest_handoff_history"
_FROM_LINE = "(From line {} of the conversation so far:)"
_wrappers: ContextVar[tuple[str, str]] = ContextVar("routelock_history_wrappers", default=_DEFAULT_WRAPPERS)


def get_conversation_history_wrappers() -> tuple[str, str]:
    """Return the start and end marker around a summary in this task."""
    return _wrappers.get()


def set_conversation_history_wrappers(start: str | None = None, end: str | None = None) -> None:
    """Change the markers around a summary, for this task and those it starts from now on.

    A side left out stays as it is. Other tasks do not see the change, so tenants of one process
    cannot see each other's markers.

    Raises:
        ConfigError: the text of a message could forge that marker.
    """
    old_start, old_end = _wrappers.get()
    chosen = (old_start if start is None else start, old_end if end is None else end)
    _wrappers.set(checked_wrappers(chosen))


def checked_wrappers(wrappers: tuple[str, str]) -> tuple[str, str]:
    """Return the markers as they are.

    Raises:
        ConfigError: the text of a message could forge one of them.
    """
    for marker in wrappers:
        if marker.splitlines() != [marker] or re.match(r'[a-z0-9"\\/]', marker):
            raise ConfigError(
                f"{marker!r} cannot be a history marker: it must be one line, and must not begin with a "
                "lower-case letter, a digit, a quote or a slash."
            )
    return wrappers


def reset_conversation_history_wrappers() -> None:
    """Go back to ``<CONVERSATION HISTORY>`` and its end."""
    _wrappers.set(_DEFAULT_WRAPPERS)


def default_handoff_history_mapper(
    messages: list[Message], wrappers: tuple[str, str] | None = None
) -> list[Message]:
    """Fold messages into one assistant message: a preamble and one numbered JSON line per message.

    Images, sound and files follow in a user's message, in which each is named after its line: no model
    reads them out of JSON, and none takes them from an assistant.

    Args:
        messages: what to fold.
        wrappers: the start and end marker; None takes those of the task.

    Raises:
        ConfigError: the text of a message could forge a marker.
    """
    return _folded([(_line(message), message) for message in messages], wrappers)


def _folded(records: Iterable[tuple[str, Message]], wrappers: tuple[str, str] | None) -> list[Message]:
    start, end = markers = checked_wrappers(wrappers) if wrappers else get_conversation_history_wrappers()
    lines: list[str] = []
    shown: list[dict[str, Any]] = []
    for number, (record, message) in enumerate(records, 1):
        lines.append(f"{number}. {_unmarked(record, markers)}")
        if media := media_of(message.get("content")):
            shown += [{"type": "text", "text": _FROM_LINE.format(number)}, *media]
    body = "\n".join(lines) or "(no previous turns recorded)"
    summary: Message = {"role": "assistant", "content": f"{_PREAMBLE}\n{start}\n{body}\n{end}"}
    return [summary, {"role": "user", "content": shown}] if shown else [summary]


_as_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
_LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def _line_of(item: RunItem) -> str:
    """Return an item's message as `_line` does, only once: a long history may be folded many times."""
    if item.line is None:
        object.__setattr__(item, "line", _line(item.message))
    return cast(str, item.line)


def _line(message: Message) -> str:
    """Return a message as one line of JSON, which can forge neither another line nor a role."""
    readable = portable(message)
    shown: dict[str, Any] = {"role": message["role"], "content": without_media(readable.get("content"))}
    for key in ("name", "refusal", "tool_calls", "tool_call_id"):
        if value := readable.get(key):
            shown[key] = value
    line = _as_json(shown)
    return line if line.isascii() else line.translate(_LINE_ENDS)


def _unmarked(line: str, markers: tuple[str, str]) -> str:
    """Return a line that can forge no marker either."""
    for marker in markers:
        if marker in line:
            line = re.sub(rf"(\\u[0-9a-f]{{4}}|\\.)|(?={re.escape(marker)}).", _escaped, line)
    return line


def _escaped(found: re.Match[str]) -> str:
    """Return an escape sequence as it is, and the first character of a marker as one."""
    char = found[0]
    return found[1] or (f"\\u{ord(char):04x}" if char.isascii() else json.dumps(char)[1:-1])


@overload
def nest_handoff_history(
    data: HandoffInputData,
    *,
    history_mapper: Callable[[list[Message]], Coroutine[Any, Any, Sequence[Message]]],
    keep_last_user: bool = True,
    wrappers: tuple[str, str] | None = None,
) -> Awaitable[HandoffInputData]: ...


@overload
def nest_handoff_history(
    data: HandoffInputData,
    *,
    history_mapper: Callable[[list[Message]], Sequence[Message]] | None = None,
    keep_last_user: bool = True,
    wrappers: tuple[str, str] | None = None,
) -> HandoffInputData: ...


@overload
def nest_handoff_history(
    data: HandoffInputData,
    *,
    history_mapper: HandoffHistoryMapper | None = None,
    keep_last_user: bool = True,
    wrappers: tuple[str, str] | None = None,
) -> MaybeAwaitable[HandoffInputData]: ...


def nest_handoff_history(
    data: HandoffInputData,
    *,
    history_mapper: HandoffHistoryMapper | None = None,
    keep_last_user: bool = True,
    wrappers: tuple[str, str] | None = None,
) -> MaybeAwaitable[HandoffInputData]:
    """Fold all that the target would see into a summary; usable as an input filter, too.

    Earlier summaries are unfolded first, so there is never a summary inside a summary. With the
    default mapper system messages stay in front of the summary, where they keep their authority, and
    the newest user message follows it word for word: many providers refuse a request that ends on an
    assistant's turn. A mapper of your own decides about all messages; it is given copies of them,
    without what only the provider that wrote them can read.

    Args:
        data: what the target would see.
        history_mapper: replaces `default_handoff_history_mapper`.
        keep_last_user: whether the newest user message stays outside the summary.
        wrappers: the markers of the default mapper; None takes those of the task.

    Returns:
        What the target sees; something to await for it, if the mapper is async.

    Raises:
        ConfigError: the text of a message could forge a marker.
        HandoffFilterError: the history mapper raised, or returned something else than messages.
    """
    items = sorted(unfold(data.all_items), key=lambda item: item.id)
    if history_mapper is not None:
        messages = [detached(portable(item.message)) for item in items]
        return _mapped(history_mapper, messages, data, items)
    system = [item for item in items if is_system(item) and item.kind != "summary"]
    newest = newest_of_user(items) if keep_last_user else None
    beside = {id(item) for item in (*system, newest)}
    folded = [item for item in items if id(item) not in beside]
    shown = as_items(_folded([(_line_of(item), item.message) for item in folded], wrappers))
    history = (*system, *_summary(shown, folded), *([newest] if newest else []))
    return _of_history(data, history)


def _of_history(data: HandoffInputData, history: Sequence[RunItem]) -> HandoffInputData:
    return data.clone(input_history=history, pre_handoff_items=(), new_items=(), input_items=None)


def _summary(shown: Sequence[RunItem], folded: Iterable[RunItem]) -> list[RunItem]:
    covers = tuple(folded)
    whole = tuple(detached(item.message) for item in shown)
    return [replace(item, kind="summary", covers=covers, whole=whole) for item in shown]


def _mapped(
    mapper: HandoffHistoryMapper, messages: list[Message], data: HandoffInputData, items: Sequence[RunItem]
) -> MaybeAwaitable[HandoffInputData]:
    try:
        shown = mapper(messages)
    except BaseException as error:
        if not is_failure(error):
            raise
        raise _raised(_MAPPER, data, error) from error
    if inspect.isawaitable(shown):
        return _awaited(shown, data, items)
    return _mapped_to(shown, data, items)


async def _awaited(
    shown: Awaitable[Sequence[Message]], data: HandoffInputData, items: Sequence[RunItem]
) -> HandoffInputData:
    try:
        messages = await shown
    except BaseException as error:
        if not is_failure(error):
            raise
        raise _raised(_MAPPER, data, error) from error
    return _mapped_to(messages, data, items)


def _mapped_to(
    messages: Sequence[Message], data: HandoffInputData, items: Sequence[RunItem]
) -> HandoffInputData:
    try:
        shown = as_items(messages)
    except (TypeError, ConfigError) as error:
        raise _returned(_MAPPER, data, error) from error
    return _of_history(data, _summary(shown, items))


class View:
    """What the active agent is shown, as it grows. One per run.

    `messages` renders and repairs only what is new since the last call, as long as that is complete
    turns: then what was valid stays valid. Anything else, such as a handoff, starts afresh. The result is
    always what starting afresh would give.
    """

    __slots__ = ("_family", "_ids", "_reader", "_rendered", "_told", "_wire", "items")

    def __init__(self, items: Iterable[RunItem]) -> None:
        self.items = list(items)
        self._wire: list[Message] = []
        self._ids: set[str] = set()
        self._rendered = 0
        self._family: str | None = None
        self._reader: Reader | None = None
        self._told: Sequence[str] = ()
        """What had to be repaired for them, the last time that all was rendered."""

    def rendered_for(self, family: str, reader: Reader | None) -> int:
        """Return how many of the items were rendered already for this reader: their repairs were told."""
        return self._rendered if family == self._family and reader is self._reader else 0

    def add(self, item: RunItem) -> None:
        """Show one more item from now on."""
        self.items.append(item)

    def replace(self, items: Iterable[RunItem]) -> None:
        """Show these items instead of the present ones."""
        self.items = list(items)
        self._rendered, self._told = 0, ()

    def messages(self, family: str, reader: Reader | None = None) -> tuple[list[Message], Sequence[str]]:
        """Return the messages for a handler of ``family``, and what had to be mended since the last time.

        With a ``reader``, calls that it cannot make are told to it in notes.
        """
        if self.rendered_for(family, reader) and self._goes_on():
            return self._wire, ()
        items = self.items if reader is None else narrated(self.items, reader)
        self._wire = new = _rendered(items, family)
        wrong, self._ids = examined(new)
        notes: Sequence[str] = ()
        found: Sequence[str] = ()
        if wrong:
            self._wire, notes = repair(new)
            self._ids = call_ids(self._wire) | call_ids(new)
            told = self._told if family == self._family and reader is self._reader else ()
            found = [note for note in notes if note not in told]
        self._told, self._family, self._reader = notes, family, reader
        self._rendered = 0 if NOTHING_LEFT in notes else len(self.items)
        return self._wire, found

    def _goes_on(self) -> bool:
        """Take in what is new, if that is valid by itself, and what comes before too, with it."""
        assert self._family is not None
        new = _rendered(self.items[self._rendered :], self._family)
        if new:
            wrong, ids = examined(new)
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
        if not is_failure(error):
            raise
        raise _raised(who, data, error) from error
    if not isinstance(result, HandoffInputData):
        raise HandoffFilterError(
            f"{who} on {_edge(data)} must return a HandoffInputData, not {type(result).__name__}. "
            "Return data.clone(...)."
        )
    try:
        items = enumerate(as_items(result.all_items))
        return [_settled(index, item, originals.get(id(item))) for index, item in items]
    except (TypeError, ConfigError) as error:
        raise _returned(who, data, error) from error


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


def _raised(who: str, data: HandoffInputData, error: BaseException) -> HandoffFilterError:
    why = f"{type(error).__name__}: {words_of(error)}".rstrip(": .")
    return HandoffFilterError(
        f"{who} raised on {_edge(data)}: {why}. "
        "The run stopped rather than show the target the unfiltered history."
    )


def _returned(who: str, data: HandoffInputData, error: Exception) -> HandoffFilterError:
    return HandoffFilterError(f"{who} on {_edge(data)}: {str(error).rstrip('.')}.")
