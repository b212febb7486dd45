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
from typing import TYPE_CHECKING

import anyio

from routelock.sessions.session import Session
from routelock.sessions.stores import InMemorySessions, SessionStore
from routelock.state.document import write_document
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from a2a.auth.user import User
    from a2a.server.context import ServerCallContext
    from a2a.types import ListTasksRequest, ListTasksResponse, Task

__all__ = ["Contexts", "OpenContext", "Tasks"]


@dataclass(slots=True, eq=False)
class OpenContext:
    """One conversation."""

    session: Session
    memory: InMemorySessions | None
    """Where it is kept, if that is nowhere else."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: dict[str, RunState] = field(default_factory=lambda: {})
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
    states = (json.dumps(write_document(state.document)) for state in talk.waiting.values())
    return sum(len(text) for _, text in kept) + sum(map(len, states))


@dataclass(frozen=True, slots=True)
class _Kept:
    user: User
    size: int
    until: float


class Tasks:
    """A task store of the protocol's SDK, in memory. Nobody finds the tasks of another user.

    Args:
        most: how many are kept.
        size: most bytes of all together.
        ttl: seconds that each is kept after its last change.
        clock: gives the time in seconds; replace it for tests.
    """

    def __init__(
        self, *, most: int, size: int, ttl: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from a2a.server.tasks import InMemoryTaskStore  # noqa: PLC0415 - an extra

        self._most, self._size, self._ttl, self._clock = most, size, ttl, clock
        self._store = InMemoryTaskStore()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._used = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Keep a task as it is now."""
        key = (context.user.user_name, task.id)
        await self._store.save(task, context)
        self._drop(key)
        self._kept[key] = _Kept(context.user, task.ByteSize(), self._clock() + self._ttl)
        self._used += self._kept[key].size
        await self._forget()

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task of that user's, or None."""
        await self._forget()
        return await self._store.get(task_id, context)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of that user's tasks."""
        await self._forget()
        return await self._store.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Forget a task."""
        self._drop((context.user.user_name, task_id))
        await self._store.delete(task_id, context)

    def _drop(self, key: tuple[str, str]) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._used -= kept.size

    async def _forget(self) -> None:
        """Drop what is too old, and then what was not changed for longest."""
        from a2a.server.context import ServerCallContext  # noqa: PLC0415 - an extra

        while self._kept:
            (_, task_id), oldest = next(iter(self._kept.items()))
            over = len(self._kept) > self._most or self._used > self._size
            if not over and oldest.until > self._clock():
                return
            await self.delete(task_id, ServerCallContext(user=oldest.user))
