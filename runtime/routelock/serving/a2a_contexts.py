"""The conversations of A2A's clients: one session for each context, and one run at a time in it.

Two messages of one context that come at once are answered one after the other: the second is shown what the
first led to.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from routelock._records import NEW_DICT
from routelock.sessions.session import Session
from routelock.sessions.stores import InMemorySessions, SessionStore
from routelock.state.run_state import RunState

__all__ = ["Contexts", "OpenContext"]


@dataclass(slots=True, eq=False)
class OpenContext:
    """One conversation."""

    session: Session
    memory: InMemorySessions | None
    """Where it is kept, if that is nowhere else."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: dict[str, RunState] = field(default_factory=NEW_DICT)
    """Where the run stands that waits for approval, by its task: none or one."""
    users: int = 0
    size: int = 0
    until: float = 0.0


class Contexts:
    """The conversations of one agent. Nobody finds those of another principal.

    Args:
        agent: its name.
        sessions: where they are kept; None keeps them here, within the bounds.
        most: how many are known at a time.
        size: most bytes of all that are kept here.
        ttl: seconds that each is known after its last message.
        clock: gives the time in seconds; replace it for tests.
    """

    def __init__(
        self,
        agent: str,
        sessions: SessionStore | None,
        *,
        most: int,
        size: int,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent, self._sessions = agent, sessions
        self._most, self._size, self._ttl, self._clock = most, size, ttl, clock
        self._talks: OrderedDict[tuple[str, str], OpenContext] = OrderedDict()

    def __len__(self) -> int:
        return len(self._talks)

    @asynccontextmanager
    async def turn(self, principal: str, context: str) -> AsyncGenerator[OpenContext]:
        """Wait until it is one's turn in a conversation, and hold it."""
        self._forget()
        key = (principal, context)
        talk = self._talks.get(key) or self._talks.setdefault(key, self._begin(principal, context))
        self._talks.move_to_end(key)
        talk.users += 1
        try:
            async with talk.lock:
                yield talk
        finally:
            talk.users -= 1
            talk.until = self._clock() + self._ttl
            talk.size = await _measured(talk)  # never waits, so it is no matter if the run is being cancelled
            self._forget()

    def _begin(self, principal: str, context: str) -> OpenContext:
        # as JSON, so that no name can be put together from parts of another one
        name = json.dumps(["a2a", principal, self._agent, context])
        if self._sessions is not None:
            return OpenContext(session=Session(name, self._sessions), memory=None)
        memory = InMemorySessions()
        return OpenContext(session=Session(name, memory), memory=memory)

    def _forget(self) -> None:
        """Drop what is too old, and then what was not used for longest; never what is in use."""
        now, used = self._clock(), sum(talk.size for talk in self._talks.values())
        for key, talk in list(self._talks.items()):
            over = len(self._talks) > self._most or used > self._size
            if not talk.users and (over or talk.until <= now):
                used -= self._talks.pop(key).size


async def _measured(talk: OpenContext) -> int:
    kept = await talk.memory.load(talk.session.name) if talk.memory else ()
    states = (json.dumps(state.document, default=str) for state in talk.waiting.values())
    return sum(len(text) for _, text in kept) + sum(map(len, states))
