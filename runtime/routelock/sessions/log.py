"""The records of one session: written one by one, and read as one conversation."""

from __future__ import annotations

import functools
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

from routelock._callables import error_text
from routelock._json import OrDefault
from routelock._json_document import check_json
from routelock._sendable import finite, is_utf8
from routelock.errors import ConfigError, RoutelockError, SessionConflict, SessionError
from routelock.history.input import checked_message
from routelock.history.marked import item_of, marked, shown_later
from routelock.history.messages import ItemKind, Message, RunItem, calls_of
from routelock.sessions.import_messages import messages_of, readable
from routelock.sessions.stores import Record, SessionStore
from routelock.sessions.summaries import LoadedSummary, StoredSummary, covered_places

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = [
    "NOTHING",
    "Entry",
    "Loaded",
    "Part",
    "SessionLog",
    "conversation_of",
    "entries_of",
    "item_document",
    "newest_part",
    "parts_of",
    "record_text",
]


def newest_part(
    items: Sequence[RunItem], max_items: int | None, max_bytes: int | None
) -> tuple[list[RunItem], bool]:
    """Return the newest items within the limits, and whether older ones were left out.

    A tool result is left out if its call is.

    Args:
        items: the items, the oldest first.
        max_items: the most items to return; None for no limit.
        max_bytes: the most bytes of JSON in UTF-8, of all items together; None for no limit.
    """
    start = _start(items, max_items, max_bytes)
    if not start:
        return list(items), False
    seen: set[str] = set()
    kept: list[RunItem] = []
    for item in items[start:]:
        seen.update(call.get("id") or "" for call in calls_of(item.message))
        if item.message["role"] != "tool" or (item.message.get("tool_call_id") or "") in seen:
            kept.append(item)
    return kept, True


def _start(items: Sequence[RunItem], max_items: int | None, max_bytes: int | None) -> int:
    first = 0 if max_items is None else max(0, len(items) - max_items)
    if max_bytes is None:
        return first
    left = max_bytes
    for place in range(len(items) - 1, first - 1, -1):
        text = json.dumps(items[place].message, ensure_ascii=False)
        left -= len(text.encode("utf-8", "surrogatepass"))
        if left < 0:
            return place + 1
    return first


FORMAT_VERSION = 1

NOTHING = json.dumps({"format_version": FORMAT_VERSION, "messages": []})
"""An entry without messages: the content of a session that was cleared."""

_KINDS: tuple[str, ...] = get_args(ItemKind)


_Count = Annotated[int, OrDefault(0, ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The items that a run added in one turn, or messages of another program.

    A field with a value that does not fit is read as its default, so that no items are lost.
    """

    items: Sequence[Any]
    """Documents of items (see `item_document`), or the messages of another program as they are."""
    run: Annotated[str, OrDefault("")] = ""
    """Id of the run; empty for messages of another program."""
    turn: _Count = 0
    history: _Count = 0
    """How many items of the session the run was given."""
    first: _Count = 0
    """Index of the first of these items in the run. They replace the items of the run from there on."""
    agent: Annotated[str | None, OrDefault(None)] = None
    """Name of the agent that answers the next message; None lets the next run decide."""
    claims: _Count = 0
    """How many times a saved state of the run was resumed, this time included; 0 if this is no resumption."""
    resumes: Annotated[str, OrDefault("")] = ""
    """A digest of that state if an engine resumed it, which may do so again; empty otherwise."""
    summary: Annotated[StoredSummary | None, OrDefault(None)] = None
    """Summary of a compaction that was written in this turn."""
    writer: Annotated[str, OrDefault("")] = ""
    """The name of the writer, so that an equal entry of another writer is not taken for its own."""


@functools.cache
def _entry_adapter() -> TypeAdapter[Entry]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - see `routelock.tools.schema`

    return TypeAdapter(Entry)


def item_document(item: RunItem) -> dict[str, Any]:
    """Return an item as JSON data, with its whole message."""
    made: dict[str, Any] = {"kind": item.kind, "message": item.message}
    for name in ("agent", "origin", "asked_by"):
        if (value := getattr(item, name)) is not None:
            made[name] = value
    return made


# -- texts --


def record_text(entries: Sequence[Entry]) -> str:
    """Return entries as one text. It is ASCII, so that any store keeps half a surrogate pair, or a NUL.

    NaN and infinity become null, so that no message is lost because of them.

    Raises:
        ConfigError: a value in them is no JSON; the message says where.
    """
    documents = [_document(entry) for entry in entries]
    made = documents[0] if len(documents) == 1 else {"format_version": FORMAT_VERSION, "entries": documents}
    try:
        text = json.dumps(made, separators=(",", ":"))
        if "NaN" in text or "Infinity" in text:  # as a number, or inside of a text
            text = json.dumps(finite(made), separators=(",", ":"))
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"A session keeps JSON, and this is not JSON: {_reason(made, error)}.") from error


def _reason(value: object, error: Exception) -> str:
    try:
        check_json(value)
    except ValueError as where:
        return str(where)
    return str(error)


def _document(entry: Entry) -> dict[str, Any]:
    made = _entry_adapter().dump_python(entry, exclude_defaults=True)
    if not entry.run:
        made["messages"] = made.pop("items")
    return {"format_version": FORMAT_VERSION, **made}


def entries_of(records: Iterable[Record]) -> tuple[list[Entry], list[str]]:
    """Return the entries of stored records, and notes on records that could not be read.

    Raises:
        SessionError: a newer version of routelock wrote one.
    """
    found: list[Entry] = []
    notes: list[str] = []
    for number, text in records:
        try:
            found += _read(number, json.loads(text))
        except (ValueError, RecursionError) as error:
            notes.append(f"session: left out record {number}, which is not readable: {error}")
    return found, notes


def _read(number: int, data: object) -> list[Entry]:
    """Return the entries of one record, of routelock or of another program.

    Raises:
        ValueError: the record has no entries.
    """
    if isinstance(data, list):
        return [Entry(items=cast("list[object]", data))]
    if not isinstance(data, dict):
        raise ValueError(f"expected an object, not {type(data).__name__}")
    document = cast("dict[str, Any]", data)
    version: Any = document.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise SessionError(
            f"Record {number} of the session has the format {version}, and this version of routelock reads "
            f"formats up to {FORMAT_VERSION}. Update routelock."
        )
    if isinstance(parts := document.get("entries"), list):
        return [entry for each in cast("list[object]", parts) for entry in _read(number, each)]
    if isinstance(messages := document.get("messages"), list):
        return [_entry_adapter().validate_python({"writer": document.get("writer"), "items": messages})]
    if isinstance(document.get("items"), list):
        entry = _entry_adapter().validate_python(document)
        return [entry if entry.run else replace(entry, run="unknown")]
    return [Entry(items=[document])]


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) else None


# -- conversations --


@dataclass(slots=True)
class Part:
    """The items that one run added, as far as its entries were read."""

    run: str
    first: int
    """Index of the first of these items in the run."""
    items: list[Any] = field(default_factory=lambda: [])
    history: int = 0
    agent: str | None = None
    claimed: int = 0
    """How many times a saved state of the run was resumed."""
    resumes: str = ""
    """See `Entry`; that of the newest time."""
    summary: StoredSummary | None = None
    """The newest summary that the run has written."""

    def add(self, entry: Entry) -> None:
        """Add an entry; its items replace those of the run from its first index on."""
        if entry.first < self.first:
            self.items, self.first = [], entry.first
        del self.items[entry.first - self.first :]
        if self.summary is not None and self.summary.through >= entry.first:
            self.summary = None  # the summary covers items that are replaced
        self.summary = entry.summary or self.summary
        self.items += entry.items
        self.history, self.agent = entry.history, entry.agent
        if entry.claims > self.claimed:
            self.claimed, self.resumes = entry.claims, entry.resumes


def parts_of(entries: Iterable[Entry]) -> list[Part]:
    """Return what each run added, in the order of the entries."""
    parts: list[Part] = []
    for entry in entries:
        last = parts[-1] if parts else None
        continues = last is not None and entry.run == last.run and entry.first <= last.first + len(last.items)
        if last is None or not entry.run or not continues:
            last = Part(entry.run, entry.first)
            parts.append(last)
        last.add(entry)
    return parts


def conversation_of(parts: Iterable[Part]) -> tuple[list[RunItem], list[str]]:
    """Return the items of a conversation, and notes on what could not be read or was changed."""
    found: list[RunItem] = []
    notes: list[str] = []
    for part in parts:
        if (known := finite(part.items)) is not part.items:
            notes.append("session: replaced NaN or infinity by null")
            part.items = known
        if not part.run:
            messages, wrong = messages_of(part.items)
            found += (item_of(message, 0, "input") for message in messages)
            notes += wrong
            continue
        for document in part.items:
            items, wrong = _items(document)
            found += items
            notes += wrong
    return found, notes


def _items(document: Any) -> tuple[list[RunItem], list[str]]:
    known = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    try:
        message = checked_message(0, known.get("message"))
    except ConfigError:
        messages, notes = messages_of([known.get("message", cast(object, document))])
        return [_item(known, message) for message in messages], notes
    message, notes = (message, []) if _text(known, "origin") else readable(message)
    return [_item(known, message)], notes


def _item(document: Mapping[str, Any], message: Message) -> RunItem:
    kind = document.get("kind")
    return RunItem(
        id=0,
        kind=cast(ItemKind, kind) if kind in _KINDS else "input",
        message=message,
        agent=_text(document, "agent"),
        origin=_text(document, "origin"),
        asked_by=_text(document, "asked_by"),
    )


_FIRST_LOOK = 64
"""The number of records that are loaded first if only the size is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The stored history with which a run starts."""

    number: int
    """Number of the newest record."""
    items: Sequence[RunItem]
    notes: Sequence[str]
    own: Part | None
    """The part that the run itself has stored before."""
    next_agent: str | None
    empty: bool
    """Whether no other run has stored anything."""
    passed: bool
    """Whether other runs have stored something after this run did; their items are not in ``items``."""
    summary: LoadedSummary | None = None
    """The newest summary of a compaction."""

    @property
    def messages(self) -> list[Message]:
        """The items as messages with private keys."""
        return [marked(item) for item in self.items]


class SessionLog:
    """The records of one session in a store.

    The arguments are those of `routelock.sessions.Session`. ``grace`` is the time in seconds that storing the
    end of a run may take.
    """

    __slots__ = ("grace", "max_bytes", "max_items", "name", "store")

    def __init__(
        self,
        name: str,
        store: SessionStore,
        *,
        max_items: int | None = None,
        max_bytes: int | None = None,
        grace: float = 5.0,
    ) -> None:
        given = cast(object, name)
        if not isinstance(given, str) or not given.strip() or "\x00" in given or not is_utf8(given):
            raise ConfigError(f"The name of a session must be text and not empty, not {given!r:.80}.")
        if isinstance(store, type) or not callable(getattr(store, "load", None)):
            raise ConfigError(
                f"The store of a session must be one such as SQLiteSessions('chats.db'), not {store!r:.80}."
            )
        for what, limit in (("max_items", max_items), ("max_bytes", max_bytes)):
            if limit is not None and (not isinstance(cast(object, limit), int) or limit < 1):
                raise ConfigError(f"{what} must be at least 1, or None for no limit, not {limit!r:.80}.")
        self.name: str = name
        self.store: SessionStore = store
        self.max_items: int | None = max_items
        self.max_bytes: int | None = max_bytes
        self.grace: float = grace

    def __repr__(self) -> str:
        return f"Session({self.name!r}, {type(self.store).__name__})"

    async def newest(self) -> int:
        """Return the number of the newest record, 0 if there is none.

        Raises:
            SessionError: the store fails.
        """
        records = await self.records(1)
        return records[-1][0] if records else 0

    async def records(self, newest: int | None) -> Sequence[Record]:
        """Return the newest records in the store, the oldest of them first; None returns all.

        Raises:
            SessionError: the store fails.
        """
        with self._failing("loaded"):
            return await self.store.load(self.name, newest=newest)

    async def append(self, after: int, text: str, *, alone: bool = False) -> None:
        """Store a record; if the store has it already, from an attempt that broke off, that is no conflict.

        Args:
            after: the number of the newest record that the caller knows; 0 for a new session.
            text: the record.
            alone: whether all earlier records are deleted in the same step.

        Raises:
            SessionConflict: another record was stored.
            SessionError: the store fails.
        """
        try:
            with self._failing("stored"):
                await self.store.append(self.name, after, text, alone=alone)
        except SessionConflict:
            if [*await self.records(1)] != [(after + 1, text)]:
                raise

    async def loaded(self, run_id: str | None = None) -> Loaded:
        """Return the history for a run, without the items that the run of this id has stored itself.

        Raises:
            SessionError: the store fails, or a newer version of routelock has written to it.
        """
        return await self._loaded(run_id, passed_too=False)

    async def loaded_for_sub_run(self, run_id: str) -> Loaded:
        """Do the same as `loaded`, but a run that other runs followed gets the history from before it."""
        return await self._loaded(run_id, passed_too=True)

    async def _loaded(self, run_id: str | None, *, passed_too: bool) -> Loaded:
        newest, found = self.max_items, None
        if newest is None and self.max_bytes is not None:
            newest = _FIRST_LOOK
        elif newest is not None and passed_too:  # the run may be older than the newest part
            newest = max(newest, _FIRST_LOOK)
        while found is None:
            records = await self.records(newest)
            complete = newest is None or len(records) < newest
            found = self._history(records, run_id, complete=complete, passed_too=passed_too)
            newest = None if newest is None else newest * 4
        return found

    def _history(
        self, records: Sequence[Record], run_id: str | None, *, complete: bool, passed_too: bool
    ) -> Loaded | None:
        """Return the history in these records; None if older records are needed."""
        entries, notes = entries_of(records)
        parts = parts_of(entries)
        place = max(
            (place for place, part in enumerate(parts) if run_id and part.run == run_id), default=None
        )
        is_newest = place == len(parts) - 1
        own: Part | None = None
        if place is not None and (is_newest or passed_too):
            own, parts = parts[place], parts[:place]
        read = [conversation_of([part]) for part in parts]
        # a run that was given only the newest items may repeat the ids of calls in older ones
        later = [item for items, _ in read for item in shown_later(items)]
        shown = [item_of(marked(item), 0, "input") for item in later]
        kept, cut = newest_part(shown, self.max_items, self.max_bytes)
        if not complete and (own is not None or not cut):
            return None
        return Loaded(
            number=records[-1][0] if records else 0,
            items=kept,
            notes=[*notes, *(note for _, unread in read for note in unread)],
            own=own,
            next_agent=next((part.agent for part in reversed(parts) if part.run), None),
            empty=not parts,
            passed=place is not None and not is_newest,
            summary=_summary_of(
                [(part, items) for part, (items, _) in zip(parts, read, strict=True)],
                {id(item): each for item, each in zip(later, shown, strict=True)},
                kept,
            ),
        )

    @contextmanager
    def _failing(self, what: str) -> Generator[None]:
        try:
            yield
        except RoutelockError:
            raise
        except Exception as error:
            raise SessionError(
                f"Session {self.name!r:.80} could not be {what}: {type(error).__name__}: {error_text(error)}"
            ) from error


def _summary_of(
    parts: Sequence[tuple[Part, Sequence[RunItem]]], shown: Mapping[int, RunItem], kept: Sequence[RunItem]
) -> LoadedSummary | None:
    """Return the newest summary for the items that a run is given.

    Args:
        parts: the part of the log from each run, and the items of this part.
        shown: the items that later runs see, by the `id` of the same item in ``parts``.
        kept: the newest of these items: those that the run is given.
    """
    number = next((place for place in range(len(parts) - 1, -1, -1) if parts[place][0].summary), None)
    if number is None or (stored := parts[number][0].summary) is None:
        return None
    part, own = parts[number]
    before = [shown[id(item)] for _, items in parts[:number] for item in items if id(item) in shown]
    end = len(before) + stored.through + 1
    if stored.through >= 0:
        if len(own) != len(part.items):
            return None
        before += [shown[id(item)] for item in own[: stored.through - part.first + 1] if id(item) in shown]
        end = len(before)
    places = covered_places(stored, before[:end], kept)
    return LoadedSummary(text=stored.text, places=places) if places else None
