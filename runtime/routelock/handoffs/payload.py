"""Structured data that a transfer passes to its target, outside the conversation.

A run keeps the payload of its last transfer in its shared memory, under ``"handoff_context"``, as plain
data for tools, handlers and instructions. The target's system prompt gets a note and a preview, both of
bounded size; messages stay as they are. Nothing here keeps state.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypeVar, cast

from typing_extensions import TypedDict

from routelock._json_document import misfit_text
from routelock._redaction import REDACTED, is_secret_name, redact_text
from routelock._text import fit, plain, preview, shares
from routelock.context import PAYLOAD_KEY
from routelock.errors import PayloadError
from routelock.tools.schema import misfit

if TYPE_CHECKING:
    import pydantic

__all__ = ["HandoffPayload", "carried", "loggable", "payload_of", "sent_by"]


LONGEST_CHAIN = 8
"""The most earlier payloads that are kept; the oldest are dropped."""

_LONGEST_NOTE = 300

_SHORTEST_LINE = 24

_MOST_NODES = 10_000

_DOCUMENT = frozenset(("content", "filename", "type", "title", "metadata"))

T = TypeVar("T")

_NAMES = ("source_agent", "handoff_type", "context_data", "handoff_reason", "expected_output")


@functools.cache
def _contract() -> pydantic.TypeAdapter[dict[str, Any]]:
    from pydantic import Field, TypeAdapter  # noqa: PLC0415 - see `routelock.tools.schema`

    name, text = Annotated[str, Field(min_length=1)], NotRequired[str | None]
    hints = (name, name, NotRequired[dict[str, Any]], text, text)
    make_type: Any = TypedDict
    return TypeAdapter(make_type("_Fields", dict(zip(_NAMES, hints, strict=True))))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HandoffPayload:
    """The data that one transfer passes along. It is immutable, and its ``repr`` shows no values.

    Raises:
        PayloadError: a field has the wrong type, or the source or the type is empty.
    """

    source_agent: str
    """Name of the agent that hands over; a run fills it in, see `sent_by`."""
    handoff_type: str
    """The kind of work for the target, such as ``"research_delegation"``; see `HandoffTypes`."""
    context_data: Mapping[str, Any] = field(default_factory=lambda: {})
    """The data, by name. The mapping is copied, its values are not."""
    handoff_reason: str | None = None
    expected_output: str | None = None
    """The output that the source expects."""
    previous: Sequence[HandoffPayload] = ()
    """The payloads of earlier transfers, oldest first; see `carried`."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) for name in _NAMES}
        checked = _validated(given | {"context_data": _as_dict(self.context_data, "context_data")})
        flat = [one for each in _parsed(self.previous) for one in _flattened(each)]
        object.__setattr__(self, "context_data", checked.get("context_data", {}))
        object.__setattr__(self, "previous", tuple(flat[-LONGEST_CHAIN:]))

    def __repr__(self) -> str:
        return f"HandoffPayload({loggable(self, logging.DEBUG)})"

    @classmethod
    def parse(cls, data: object) -> HandoffPayload:
        """Return the payload that a mapping describes; a payload is returned as it is.

        Unknown keys go into ``context_data``.

        Raises:
            PayloadError: the data is no mapping, a field is missing or has the wrong type, or a key occurs
                twice, at the top and in ``context_data``.
        """
        if isinstance(data, HandoffPayload):
            return data
        given = _as_dict(data, "A handoff payload")
        earlier = given.pop("previous", None)
        known = {name: given.pop(name) for name in _NAMES if name in given}
        inside = known.get("context_data")
        inside = {} if inside is None else _as_dict(inside, "context_data")
        if twice := [plain(str(key), 40) for key in given if key in inside]:
            raise PayloadError(
                f"Give each key once; in context_data and beside it are: {', '.join(twice[:5])}."
            )
        checked = _validated({**known, "context_data": {**inside, **given}})
        return cls(**cast("Any", checked), previous=() if earlier is None else earlier)

    def to_dict(self) -> dict[str, Any]:
        """Return the payload as plain data that `parse` reads; the values are not copied."""
        data = {name: getattr(self, name) for name in _NAMES}
        data["context_data"] = dict(self.context_data)
        if self.previous:
            data["previous"] = [each.to_dict() for each in self.previous]
        return data

    def data_as(self, model: type[T]) -> T:
        """Return ``context_data`` as a pydantic model, dataclass or TypedDict.

        Raises:
            PayloadError: the data does not fit the model; the message names the fields.
        """
        from pydantic import TypeAdapter  # noqa: PLC0415 - see `routelock.tools.schema`

        try:
            return TypeAdapter(model).validate_python(dict(self.context_data))
        except misfit() as error:
            named = getattr(model, "__name__", "value of the requested type")
            what = f"context_data of {loggable(self)} is no {named}"
            raise PayloadError(f"{what}: {misfit_text(error, 3)}.") from None  # pydantic's error shows values

    @property
    def has_content(self) -> bool:
        """Whether this or an earlier payload has a value that is not empty."""
        here = (self.handoff_reason, self.expected_output, *self.context_data.values())
        return _is_filled(here) or any(each.has_content for each in self.previous)

    def note(self, *, markers: Collection[str] = ()) -> str | None:
        """Return one line for the target that summarises the payload, or None when it is empty.

        Args:
            markers: texts that must not occur in the line; texts that begin with ``<`` never do.

        Returns:
            ``Delegated by: <source> (<type>).`` and more, in at most 300 bytes of UTF-8.
        """
        if not self.has_content:
            return None
        source = _name(self.source_agent, 100, markers)
        parts = [f"Delegated by: {source} ({_name(self.handoff_type, 50, markers)})."]
        for label, text in ("Reason", self.handoff_reason), ("Expected", self.expected_output):
            if _is_filled(text):
                parts.append(f"{label}: {preview(text, 80, markers=markers)}.")
        if names := [_name(key, 40, markers) for key in islice(self.context_data, 6)]:
            parts.append(f"Given: {', '.join(names)}.")
        return fit([" ".join(parts)], _LONGEST_NOTE)

    def preview(self, limit: int = 1000, *, markers: Collection[str] = ()) -> str:
        """Return one line for each key, truncated where needed; keys of earlier payloads come last.

        Secrets, as `routelock.tracing.redact` finds them, are ``[redacted]`` here; tools still get them.

        No text in the data can begin a line, so it can forge no heading, role or marker. The time it takes
        does not depend on the size or the depth of the data.

        Args:
            limit: the longest result, in bytes of UTF-8, so that a page of Japanese costs no more than one of
                English.
            markers: texts that must not occur in the result, such as those around a nested history; texts
                that begin with ``<`` never do.

        Raises:
            ValueError: ``limit`` is negative.
        """
        if limit < 0:
            raise ValueError(f"limit must be at least 0 bytes, not {limit}.")
        count = sum(len(each.context_data) for each in (self, *self.previous))
        most = count if count * _SHORTEST_LINE <= limit else max(limit // _SHORTEST_LINE - 1, 0)
        every = chain.from_iterable(_entries(each) for each in (self, *reversed(self.previous)))
        entries = [*islice(every, most)]
        heads = [
            preview(key, limit, markers=markers)
            + ("" if owner is self else f" from {preview(owner.source_agent, 40, markers=markers)}")
            for owner, key, _ in entries
        ]
        more = [] if most == count else [f"({count - most} more)"]

        def lines(rooms: Iterable[int]) -> list[str]:
            shown = zip(heads, entries, rooms, strict=False)
            return [f"{head}: {_shown(key, value, room, markers)}" for head, (_, key, value), room in shown]

        whole = lines(repeat(limit))
        rooms = shares([*whole, *more], limit)
        cut = lines(room - len(f"{head}: ".encode()) for head, room in zip(heads, rooms, strict=False))
        return fit([*cut, *more], limit)


def _name(text: str, room: int, markers: Collection[str] = ()) -> str:
    """Return a name; in quotes if it has characters beyond letters, digits, spaces, dots and dashes."""
    is_name = re.fullmatch(r"[\w .-]+", text[:room]) is not None
    return (plain if is_name else preview)(text, room, markers=markers)


def _shown(key: str, value: object, room: int, markers: Collection[str]) -> str:
    """Return the preview of a value without secrets: tools need them, the model's vendor does not."""
    secret = not isinstance(value, bool | None) and is_secret_name(key[:_LONGEST_NOTE])
    shown = REDACTED if secret else value
    return redact_text(preview(shown, room, markers=markers))


def _entries(payload: HandoffPayload) -> Iterator[tuple[HandoffPayload, str, Any]]:
    return ((payload, key, value) for key, value in payload.context_data.items())


def _as_dict(data: object, what: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise PayloadError(f"{what} must be an object with named fields, not {type(data).__name__}.")
    return dict(cast("Mapping[str, Any]", data))


def _validated(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        return _contract().validate_python(fields, strict=True)
    except misfit() as error:
        raise PayloadError(
            f"This is no handoff payload: {misfit_text(error, 3)}."
        ) from None  # pydantic's error shows values


def _parsed(earlier: object) -> list[HandoffPayload]:
    if not isinstance(earlier, list | tuple):
        raise PayloadError(f"previous must be a list of payloads, not {type(earlier).__name__}.")
    newest = cast("Sequence[object]", earlier)[-LONGEST_CHAIN:]
    if any(isinstance(each, Mapping) and "previous" in each for each in newest):
        raise PayloadError(
            "A payload in previous must not have a previous of its own: put all of them into one list."
        )
    return [HandoffPayload.parse(each) for each in newest]


def _flattened(payload: HandoffPayload) -> tuple[HandoffPayload, ...]:
    """Return the earlier payloads of a payload and itself, each without earlier ones of its own."""
    return (*payload.previous, replace(payload, previous=())) if payload.previous else (payload,)


def _is_filled(value: object) -> bool:
    """Whether there is a value that is not empty; a mapping's ``has_content`` decides for that mapping."""
    todo = [value]
    for _ in range(_MOST_NODES):
        if not todo:
            return False
        each: object = todo.pop()
        if isinstance(each, Mapping):
            todo.extend(_contents(cast("Mapping[object, Any]", each)))
        elif isinstance(each, list | tuple | set | frozenset):
            todo.extend(islice(cast("Collection[object]", each), _MOST_NODES))
        elif isinstance(each, str | bytes):
            if each and not each.isspace():
                return True
        elif each is not None:
            return True
    return True


def _contents(named: Mapping[object, Any]) -> Iterable[Any]:
    if "has_content" in named:
        return [True] if named["has_content"] else []
    if named.keys() <= _DOCUMENT:  # a document without text is empty, even if it has a name
        return [named.get("content")]
    return islice(named.values(), _MOST_NODES)


def sent_by(source: str, given: HandoffPayload | Mapping[str, Any]) -> HandoffPayload:
    """Return a payload with ``source`` filled in as the agent that sends it.

    Args:
        source: name of the agent that hands over.
        given: a payload, or what `HandoffPayload.parse` takes, with or without ``source_agent``.

    Raises:
        PayloadError: ``given`` is no payload, names another source, or has earlier payloads.
    """
    data: object = given.to_dict() if isinstance(given, HandoffPayload) else given
    payload = HandoffPayload.parse({"source_agent": source, **_as_dict(data, "A handoff payload")})
    if payload.source_agent != source:
        named = plain(payload.source_agent, 60)
        raise PayloadError(f"{source!r:.60} cannot send a payload in the name of '{named}'; leave it out.")
    if payload.previous:
        raise PayloadError("The run keeps the earlier payloads; leave previous out of what you send.")
    return payload


def payload_of(shared_memory: Mapping[str, Any]) -> tuple[HandoffPayload | None, str | None]:
    """Return the payload in a shared memory and why it cannot be read; it never raises.

    Both are None without a payload. If the payload cannot be read, it is None and the second says why,
    without any of its values.
    """
    try:
        data: object = shared_memory.get(PAYLOAD_KEY)
        return (None, None) if data is None else (HandoffPayload.parse(data), None)
    except PayloadError as error:
        return None, str(error)
    except Exception as error:  # the app's objects may raise anything while they are read
        return None, f"Reading the handoff payload raised {type(error).__name__}."


def carried(shared_memory: Mapping[str, Any], payload: HandoffPayload) -> HandoffPayload:
    """Return ``payload`` with the payload in a shared memory, and those before it, as its ``previous``.

    So the third agent of a chain sees the payload of the first one, up to eight payloads back. A payload that
    cannot be read is left out; `payload_of` says why. The memory is not changed: keep
    ``carried(...).to_dict()`` under ``"handoff_context"``.
    """
    before, _ = payload_of(shared_memory)
    return replace(payload, previous=() if before is None else (before,))


def loggable(payload: HandoffPayload, level: int = logging.INFO) -> str:
    """Return a log text for a payload: its type and source, for DEBUG its keys too, and never a value.

    Args:
        payload: the payload.
        level: a level of `logging`.
    """
    text = f"{_name(payload.handoff_type, 60)} from {_name(payload.source_agent, 60)}"
    if level > logging.DEBUG:
        return text
    keys = [_name(key, 40) for key in islice(payload.context_data, 20)]
    more = len(payload.context_data) - len(keys)
    return f"{text} with {', '.join(keys) or 'no keys'}" + (f" and {more} more" if more else "")
