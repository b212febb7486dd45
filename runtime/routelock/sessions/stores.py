"""The contract of session stores, and the store that keeps sessions in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import anyio.to_thread

from routelock.errors import SessionConflict

__all__ = ["InMemorySessions", "Record", "SessionStore", "conflict", "in_thread"]


Record = tuple[int, str]
"""The number of a record, which counts up by one, and its text."""


class SessionStore(Protocol):
    """Keeps texts by the name of a session, numbered 1, 2, 3 and so on. It does not read the texts.

    Each number must be given only once, for all tasks, threads, processes and machines that share the store:
    this alone keeps concurrent writers apart.
    """

    async def load(self, session: str, *, newest: int | None = None) -> Sequence[Record]:
        """Return the records of a session, oldest first; none for an unknown session.

        Args:
            session: the name of the session.
            newest: the highest number of records to return, the last ones; None for all.
        """
        ...

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text under the number ``after + 1``, whole or not at all.

        Args:
            session: the name of the session.
            after: the newest number that the caller knows; 0 for a new session.
            text: ASCII, of any length.
            alone: whether all earlier records are deleted in the same step.

        Raises:
            SessionConflict: ``after`` is not the newest number.
        """
        ...


def conflict(session: str, after: int) -> SessionConflict:
    """Return the error for a writer whose ``after`` is not the newest number."""
    return SessionConflict(
        f"Session {session!r:.80} was changed after its record {after} was read, so the new record is not "
        "stored; that of a run is in error.result. Load the session and try again."
    )


class InMemorySessions:
    """A `SessionStore` in memory, for one process, whose threads and event loops may share it."""

    __slots__ = ("_lock", "_records")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, list[Record]] = {}

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return the records of a session; see `SessionStore.load`."""
        with self._lock:
            records = self._records.get(session, [])
            return records[:] if newest is None else records[max(0, len(records) - newest) :]

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text; see `SessionStore.append`."""
        with self._lock:
            records = self._records.get(session, [])
            if (records[-1][0] if records else 0) != after:
                raise conflict(session, after)
            if alone or not records:
                records = self._records[session] = []
            records.append((after + 1, text))


T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Do blocking work in a thread.

    A cancelled caller does not wait for the thread: its text may be stored afterwards, or not.
    """
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
