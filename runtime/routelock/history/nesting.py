"""Nested history: the conversation before a handoff, folded into one summary for the next agent."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, overload

from routelock._callables import MaybeAwaitable
from routelock._copies import detached
from routelock._json import json_line
from routelock.errors import ConfigError
from routelock.history.content import media_of, without_media
from routelock.history.filters import (
    HandoffInputData,
    as_items,
    filter_errors,
    invalid_filter_result,
    is_system,
    newest_of_user,
    unfold,
)
from routelock.history.messages import Message, RunItem
from routelock.history.portable import portable

__all__ = [
    "HandoffHistoryMapper",
    "default_handoff_history_mapper",
    "get_conversation_history_wrappers",
    "message_line",
    "nest_handoff_history",
    "reset_conversation_history_wrappers",
    "set_conversation_history_wrappers",
]


HandoffHistoryMapper = Callable[[list[Message]], MaybeAwaitable[Sequence[Message]]]
"""Returns the messages that the target is shown instead of the earlier messages; sync or async."""

_DEFAULT_WRAPPERS = ("<CONVERSATION HISTORY>", "</CONVERSATION HISTORY>")

_PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"

_MAPPER = "The history mapper of nest_handoff_history"

_FROM_LINE = "(From line {} of the conversation so far:)"

_wrappers: ContextVar[tuple[str, str]] = ContextVar("routelock_history_wrappers", default=_DEFAULT_WRAPPERS)


def get_conversation_history_wrappers() -> tuple[str, str]:
    """Return the start marker and the end marker of a summary in this task."""
    return _wrappers.get()


def set_conversation_history_wrappers(start: str | None = None, end: str | None = None) -> None:
    """Set the markers around a summary, for this task and the tasks that it starts from now on.

    A marker that is left out stays as it is. Other tasks keep their markers, so tenants of one process cannot
    see each other's.

    Raises:
        ConfigError: the text of a message could forge a marker.
    """
    old_start, old_end = _wrappers.get()
    chosen = (old_start if start is None else start, old_end if end is None else end)
    _wrappers.set(checked_wrappers(chosen))


def checked_wrappers(wrappers: tuple[str, str]) -> tuple[str, str]:
    """Return the markers after a check that no message can forge them.

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
    """Set the markers back to ``<CONVERSATION HISTORY>`` and ``</CONVERSATION HISTORY>``."""
    _wrappers.set(_DEFAULT_WRAPPERS)


def default_handoff_history_mapper(
    messages: list[Message], wrappers: tuple[str, str] | None = None
) -> list[Message]:
    """Fold messages into one assistant message: a preamble and one numbered JSON line per message.

    Images, sound and files follow in a user message that names the line of each. No model reads them out of
    JSON, and no provider accepts them in an assistant message.

    Args:
        messages: the messages to fold.
        wrappers: the start and end marker; None takes the markers of the task.

    Raises:
        ConfigError: the text of a message could forge a marker.
    """
    return _folded([(message_line(message), message) for message in messages], wrappers)


def _folded(records: Iterable[tuple[str, Message]], wrappers: tuple[str, str] | None) -> list[Message]:
    start, end = markers = checked_wrappers(wrappers) if wrappers else get_conversation_history_wrappers()
    lines: list[str] = []
    shown: list[dict[str, Any]] = []
    for number, (record, message) in enumerate(records, 1):
        lines.append(f"{number}. {_without_markers(record, markers)}")
        if media := media_of(message.get("content")):
            shown += [{"type": "text", "text": _FROM_LINE.format(number)}, *media]
    body = "\n".join(lines) or "(no previous turns recorded)"
    summary: Message = {"role": "assistant", "content": f"{_PREAMBLE}\n{start}\n{body}\n{end}"}
    return [summary, {"role": "user", "content": shown}] if shown else [summary]


def message_line(message: Message) -> str:
    """Return a message as one line of JSON, in which no text can forge another line or a role."""
    readable = portable(message)
    shown: dict[str, Any] = {"role": message["role"], "content": without_media(readable.get("content"))}
    for key in ("name", "refusal", "tool_calls", "tool_call_id"):
        if value := readable.get(key):
            shown[key] = value
    return json_line(shown)


def _without_markers(line: str, markers: tuple[str, str]) -> str:
    """Return a line in which the first character of each marker is escaped."""
    for marker in markers:
        if marker in line:
            line = re.sub(rf"(\\u[0-9a-f]{{4}}|\\.)|(?={re.escape(marker)}).", _escaped, line)
    return line


def _escaped(found: re.Match[str]) -> str:
    """Return an escape sequence as it is, and the first character of a marker as an escape sequence."""
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
    """Fold everything that the target would see into a summary; this function is an input filter too.

    Earlier summaries are unfolded first, so a summary never contains a summary. With the default mapper the
    system messages stay in front of the summary, where they keep their authority. The newest user message
    follows the summary word for word, because many providers refuse a request that ends with an assistant
    message. A mapper of your own gets copies of all messages, without the fields that only their provider can
    read.

    Args:
        data: the input of the target without nesting.
        history_mapper: is used instead of `default_handoff_history_mapper`.
        keep_last_user: whether the newest user message stays outside the summary.
        wrappers: the markers of the default mapper; None takes the markers of the task.

    Returns:
        The new input of the target, or an awaitable of it if the mapper is async.

    Raises:
        ConfigError: the text of a message could forge a marker.
        HandoffFilterError: the history mapper raised, or returned something other than messages.
    """
    items = sorted(unfold(data.all_items), key=lambda item: item.id)
    if history_mapper is not None:
        messages = [detached(portable(item.message)) for item in items]
        return _mapped(history_mapper, messages, data, items)
    system = [item for item in items if is_system(item) and item.kind != "summary"]
    newest = newest_of_user(items) if keep_last_user else None
    beside = {id(item) for item in (*system, newest)}
    folded = [item for item in items if id(item) not in beside]
    shown = as_items(_folded([(message_line(item.message), item.message) for item in folded], wrappers))
    history = (*system, *_summary(shown, folded), *([newest] if newest else []))
    return _with_history(data, history)


def _with_history(data: HandoffInputData, history: Sequence[RunItem]) -> HandoffInputData:
    return data.clone(input_history=history, pre_handoff_items=(), new_items=(), input_items=None)


def _summary(shown: Sequence[RunItem], folded: Iterable[RunItem]) -> list[RunItem]:
    covers = tuple(folded)
    whole = tuple(detached(item.message) for item in shown)
    return [replace(item, kind="summary", covers=covers, whole=whole) for item in shown]


def _mapped(
    mapper: HandoffHistoryMapper, messages: list[Message], data: HandoffInputData, items: Sequence[RunItem]
) -> MaybeAwaitable[HandoffInputData]:
    with filter_errors(_MAPPER, data):
        shown = mapper(messages)
    if inspect.isawaitable(shown):
        return _awaited(shown, data, items)
    return _with_summary(shown, data, items)


async def _awaited(
    shown: Awaitable[Sequence[Message]], data: HandoffInputData, items: Sequence[RunItem]
) -> HandoffInputData:
    with filter_errors(_MAPPER, data):
        messages = await shown
    return _with_summary(messages, data, items)


def _with_summary(
    messages: Sequence[Message], data: HandoffInputData, items: Sequence[RunItem]
) -> HandoffInputData:
    try:
        shown = as_items(messages)
    except (TypeError, ConfigError) as error:
        raise invalid_filter_result(_MAPPER, data, error) from error
    return _with_history(data, _summary(shown, items))
