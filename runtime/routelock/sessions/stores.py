"""Where sessions are kept: what a store has to do, and the one that keeps them in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import anyio.to_thread

from routelock.errors import SessionConflict

__all__ = ["InMemorySessions", "Record", "SessionStore", "conflict", "in_thread"]


Record = tuple[int, str]
"""The number of what is stored, which counts up by one, and the text."""


class SessionStore(Protocol):
    """Keeps numbered texts by the name of a session: 1, 2, 3 and so on. It need not know what is in them.

    That a number is given once only is all that keeps two writers apart, so it must hold for any number of
    tasks, threads, processes and machines that share the store.
    """

    async def load(self, session: str, *, newest: int | None = None) -> Sequence[Record]:
        """Return what is stored, oldest first, each with its number; nothing for a session that is not there.

        Args:
            session: its name.
            newest: at most so many, the last ones.
        """
        ...

    async def append(self, session: str, after: int, text: str, *, alone: bool = False) -> None:
        """Store a text under the number ``after + 1``, whole or not at all.

        Args:
            session: its name.
            after: the newest number, as far as the caller knows; 0 for a session that is not there.
            text: ASCII, of any length.
            alone: whether all that was stored before is deleted with it.

        Raises:
            SessionConflict: ``after`` is not the newest number.
        """
        ...


def conflict(session: str, after: int) -> SessionConflict:
    """Return the error that tells a second writer that it is the second."""
    return SessionConflict(
        f"Somebody else has added to session {session!r:.80} after its record {after} was read. What was to "
        "follow is not stored; of a run it is in error.result. Load the session and try again."
    )


class InMemorySessions:
    """A `SessionStore` for one process; its threads and event loops may share it."""

    __slots__ = ("_lock", "_records")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, list[Record]] = {}

    async def load(self, session: str, *, newest: int | None = None) -> list[Record]:
        """Return what is stored; see `SessionStore.load`."""
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

    Whoever is cancelled does not wait for the thread: what it stores may be there afterwards, or not.
    """
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
