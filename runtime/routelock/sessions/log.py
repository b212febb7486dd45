"""The records of one session, read as a conversation and written one by one."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from routelock._callables import words_of
from routelock.errors import ConfigError, RoutelockError, SessionConflict, SessionError
from routelock.history.messages import Message, RunItem, item_of, marked, shown_later
from routelock.sessions.entries import Part, conversation_of, entries_of, parts_of
from routelock.sessions.stores import Record, SessionStore
from routelock.sessions.window import newest_part

__all__ = ["Loaded", "SessionLog"]

_FIRST_LOOK = 64
"""So many records are loaded at first where only the size is limited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a run begins with."""

    number: int
    """Of the newest record."""
    items: Sequence[RunItem]
    notes: Sequence[str]
    own: Part | None
    """What this very run has stored before."""
    next_agent: str | None
    empty: bool
    """Whether nobody else has stored anything."""
    passed: bool
    """Whether this very run is there, and others have stored something since."""

    @property
    def messages(self) -> list[Message]:
        """The items as messages with private keys."""
        return [marked(item) for item in self.items]


class SessionLog:
    """What is stored under one name, see `routelock.sessions.Session`."""

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
        if not isinstance(given, str) or not given.strip() or "\x00" in given or not _is_utf8(given):
            raise ConfigError(f"The name of a session must be text and not empty, not {given!r:.80}.")
        if isinstance(store, type) or not callable(getattr(store, "load", None)):
            raise ConfigError(
                f"The store of a session must be one such as SQLiteSessions('chats.db'), not {store!r:.80}."
            )
        for what, limit in (("max_items", max_items), ("max_bytes", max_bytes)):
            if limit is not None and (not isinstance(cast(object, limit), int) or limit < 1):
                raise ConfigError(f"{what} must be at least 1, or None for no limit, not {limit!r:.80}.")
        self.name = name
        self.store = store
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.grace = grace

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
        """Return what the store holds.

        Raises:
            SessionError: it fails.
        """
        with self._failing("loaded"):
            return await self.store.load(self.name, newest=newest)

    async def append(self, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; if the store has it already, because it was cut off in the middle, that is as good.

        Raises:
            SessionConflict: another one was stored.
            SessionError: the store fails.
        """
        try:
            with self._failing("stored"):
                await self.store.append(self.name, after, text, alone=alone)
        except SessionConflict:
            if [*await self.records(1)] != [(after + 1, text)]:
                raise

    async def loaded(self, run_id: str | None = None) -> Loaded:
        """Return what a run is to be given; what the run of that id has stored itself is apart.

        Raises:
            SessionError: the store fails, or a newer version of routelock has written to it.
        """
        newest, found = self.max_items, None
        if newest is None and self.max_bytes is not None:
            newest = _FIRST_LOOK
        while found is None:
            records = await self.records(newest)
            found = self._understood(records, run_id, complete=newest is None or len(records) < newest)
            newest = None if newest is None else newest * 4
        return found

    def _understood(self, records: Sequence[Record], run_id: str | None, *, complete: bool) -> Loaded | None:
        """Return what records say; None when older ones are needed."""
        entries, notes = entries_of(records)
        parts = parts_of(entries)
        own = parts.pop() if run_id is not None and parts and parts[-1].run == run_id else None
        items, unread = conversation_of(parts)
        shown = [item_of(marked(item), 0, "input") for item in shown_later(items)]
        kept, cut = newest_part(shown, self.max_items, self.max_bytes)
        if not complete and (own is not None or not cut):
            return None
        return Loaded(
            number=records[-1][0] if records else 0,
            items=kept,
            notes=[*notes, *unread],
            own=own,
            next_agent=_next_agent([*parts, own]),
            empty=not parts,
            passed=own is None and any(part.run == run_id for part in parts if part.run),
        )

    @contextmanager
    def _failing(self, what: str) -> Generator[None]:
        try:
            yield
        except RoutelockError:
            raise
        except Exception as error:
            raise SessionError(
                f"Session {self.name!r:.80} could not be {what}: {type(error).__name__}: {words_of(error)}"
            ) from error


def _next_agent(parts: Sequence[Part | None]) -> str | None:
    return next((part.agent for part in reversed(parts) if part is not None and part.run), None)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
