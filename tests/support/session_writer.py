"""A process that writes to a session, and says what it was told is stored.

python session_writer.py "KIND WHERE" SESSION NAME COUNT [FIRST]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import anyio
import anyio.lowlevel

from routelock.errors import SessionConflict
from routelock.sessions import (
    EncryptedSessions,
    PostgresSessions,
    RedisSessions,
    SessionStore,
    SQLiteSessions,
)

KEY = "ZmFrZS1rZXktZm9yLXRlc3RzLW9mLXNlc3Npb25zISE="


def opened(spec: str) -> tuple[SessionStore, Callable[[], None]]:
    """Return the store that a text names, and what closes it."""
    kind, _, where = spec.partition(" ")
    if kind == "postgres":
        store = PostgresSessions(where)
        return store, store.close
    if kind == "redis":
        redis = RedisSessions(where)
        return redis, redis.close
    file = SQLiteSessions(where)
    return (EncryptedSessions(file, [KEY]) if kind == "encrypted" else file), file.close


async def append_surely(store: SessionStore, session: str, text: str) -> int:
    """Store a text after whatever is there, and return its number."""
    while True:
        newest = [number for number, _ in await store.load(session, newest=1)]
        after = newest[0] if newest else 0
        try:
            await store.append(session, after, text)
        except SessionConflict:
            await anyio.lowlevel.checkpoint()
        else:
            return after + 1


async def write(spec: str, session: str, name: str, count: str, first: str = "0") -> None:
    """Write so many texts and print each number once it is told to be stored."""
    store, close = opened(spec)
    for number in range(int(first), int(first) + int(count)):
        print(await append_surely(store, session, f"{name}{number} " + "x" * 3000), flush=True)  # noqa: T201
    close()


if __name__ == "__main__":
    anyio.run(partial(write, *sys.argv[1:]))
