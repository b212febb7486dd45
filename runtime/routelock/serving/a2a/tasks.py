"""The conversations and tasks of A2A clients: one session for each context, with one run at a time.

Two messages of a context that arrive at the same time are answered one after the other, so that the second
run sees the result of the first.
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
    """The store, if it is in memory."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    waiting: dict[str, RunState] = field(default_factory=lambda: {})
    """The state of the run that waits for approval, by its task: none or one."""
    users: int = 0
    size: int = 0
    until: float = 0.0


class Contexts:
    """The conversations of one agent. A caller finds only its own.

    Args:
        agent: the name of the agent.
        sessions: the store of the conversations; None keeps them in memory, within the bounds.
        most: the largest number of conversations.
        size: most bytes of all conversations in memory.
        ttl: seconds that a conversation is kept after its last message.
        clock: returns the time in seconds; replace it for tests.
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
        self._conversations: OrderedDict[tuple[str, str], OpenContext] = OrderedDict()

    def __len__(self) -> int:
        return len(self._conversations)

    @asynccontextmanager
    async def turn(self, principal: str, context: str) -> AsyncGenerator[OpenContext]:
        """Wait for this message's turn in a conversation, and hold the conversation."""
        self._forget()
        key = (principal, context)
        conversation = self._conversations.get(key) or self._conversations.setdefault(
            key, self._begin(principal, context)
        )
        self._conversations.move_to_end(key)
        conversation.users += 1
        try:
            async with conversation.lock:
                yield conversation
        finally:
            conversation.users -= 1
            conversation.until = self._clock() + self._ttl
            conversation.size = await _measured(
                conversation
            )  # this does not wait, so it also works while the run is cancelled
            self._forget()

    def _begin(self, principal: str, context: str) -> OpenContext:
        # as JSON, so that two different keys never make the same name
        name = json.dumps(["a2a", principal, self._agent, context])
        if self._sessions is not None:
            return OpenContext(session=Session(name, self._sessions), memory=None)
        memory = InMemorySessions()
        return OpenContext(session=Session(name, memory), memory=memory)

    def _forget(self) -> None:
        """Drop expired conversations, and then the least recently used ones, but none that is in use."""
        now, used = self._clock(), sum(conversation.size for conversation in self._conversations.values())
        for key, conversation in list(self._conversations.items()):
            over = len(self._conversations) > self._most or used > self._size
            if not conversation.users and (over or conversation.until <= now):
                used -= self._conversations.pop(key).size


async def _measured(conversation: OpenContext) -> int:
    kept = await conversation.memory.load(conversation.session.name) if conversation.memory else ()
    states = (json.dumps(write_document(state.document)) for state in conversation.waiting.values())
    return sum(len(text) for _, text in kept) + sum(map(len, states))


@dataclass(frozen=True, slots=True)
class _Kept:
    user: User
    size: int
    until: float


class Tasks:
    """A task store for the protocol's SDK, in memory and bounded. A user finds only its own tasks.

    Args:
        most: the largest number of tasks.
        size: most bytes of all tasks.
        ttl: seconds that a task is kept after its last change.
        clock: returns the time in seconds; replace it for tests.
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
        """Save a task."""
        key = (context.user.user_name, task.id)
        await self._store.save(task, context)
        self._drop(key)
        self._kept[key] = _Kept(context.user, task.ByteSize(), self._clock() + self._ttl)
        self._used += self._kept[key].size
        await self._forget()

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task of the user, or None."""
        await self._forget()
        return await self._store.get(task_id, context)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the user's tasks."""
        await self._forget()
        return await self._store.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task."""
        self._drop((context.user.user_name, task_id))
        await self._store.delete(task_id, context)

    def _drop(self, key: tuple[str, str]) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._used -= kept.size

    async def _forget(self) -> None:
        """Drop expired tasks, and then the least recently changed ones."""
        from a2a.server.context import ServerCallContext  # noqa: PLC0415 - an extra

        while self._kept:
            (_, task_id), oldest = next(iter(self._kept.items()))
            over = len(self._kept) > self._most or self._used > self._size
            if not over and oldest.until > self._clock():
                return
            await self.delete(task_id, ServerCallContext(user=oldest.user))
