"""The conversations and tasks of A2A clients: one session for each context, with one run at a time.

Two messages of a context that arrive at the same time are answered one after the other, so that the second
run sees the result of the first.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from routelock.serving.bounded_store import BoundedStore, Bounds, state_size
from routelock.sessions.session import Session
from routelock.sessions.stores import InMemorySessions, SessionStore
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
    taken: set[str] = field(default_factory=lambda: set())
    """The ids of the messages that have answered questions of that task: one that comes twice counts once."""
    questions: dict[str, int] = field(default_factory=lambda: {})
    """The number of the next run of each task that has asked its client, by task."""
    users: int = 0

    def clear_waiting(self, task: str) -> None:
        """Forget the run that waits, and also the answered messages if another task begins."""
        if task not in self.waiting:
            self.taken.clear()
        self.waiting.clear()


class Contexts:
    """The conversations of one agent. A caller finds only its own.

    Args:
        agent: the name of the agent.
        sessions: the store of the conversations; None keeps them in memory, within the bounds.
        bounds: the bounds of the conversations. Their time begins with the last message.
    """

    def __init__(self, agent: str, sessions: SessionStore | None, bounds: Bounds) -> None:
        self._agent, self._sessions = agent, sessions
        self._conversations: BoundedStore[tuple[str, str], OpenContext]
        self._conversations = BoundedStore(bounds, is_used=lambda conversation: conversation.users > 0)

    def __len__(self) -> int:
        return len(self._conversations)

    @asynccontextmanager
    async def turn(self, principal: str, context: str) -> AsyncGenerator[OpenContext]:
        """Wait for this message's turn in a conversation, and hold the conversation."""
        key = (principal, context)
        conversation = self._conversations.get(key) or self._begin(principal, context)
        conversation.users += 1
        self._conversations.put(key, conversation, await _measured(conversation))
        try:
            async with conversation.lock:
                yield conversation
        finally:
            size = await _measured(conversation)  # this does not wait, so it also works while cancelled
            conversation.users -= 1
            self._conversations.put(key, conversation, size)

    def waiting(self, principal: str, context: str, task: str) -> RunState | None:
        """Return the state of a task's run that waits for its client, or None."""
        conversation = self._conversations.get((principal, context))
        return None if conversation is None else conversation.waiting.get(task)

    def _begin(self, principal: str, context: str) -> OpenContext:
        # as JSON, so that two different keys never make the same name
        name = json.dumps(["a2a", principal, self._agent, context])
        if self._sessions is not None:
            return OpenContext(session=Session(name, self._sessions), memory=None)
        memory = InMemorySessions()
        return OpenContext(session=Session(name, memory), memory=memory)


async def _measured(conversation: OpenContext) -> int:
    kept = await conversation.memory.load(conversation.session.name) if conversation.memory else ()
    asking = sum(map(len, (*conversation.questions, *conversation.taken)))
    return sum(len(text) for _, text in kept) + sum(map(state_size, conversation.waiting.values())) + asking


class Tasks:
    """A task store for the protocol's SDK, in memory and bounded. A user finds only its own tasks.

    Args:
        bounds: the bounds of the tasks. Their time begins with the last change.
    """

    def __init__(self, bounds: Bounds) -> None:
        from a2a.server.tasks import InMemoryTaskStore  # noqa: PLC0415 - an extra

        self._store = InMemoryTaskStore()
        self._kept = BoundedStore[tuple[str, str], "User"](bounds)

    def __len__(self) -> int:
        return len(self._kept)

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Save a task."""
        await self._store.save(task, context)
        key = (context.user.user_name, task.id)
        await self._delete(self._kept.put(key, context.user, task.ByteSize()))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task of the user, or None."""
        await self._delete(self._kept.drop())
        return await self._store.get(task_id, context)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the user's tasks."""
        await self._delete(self._kept.drop())
        return await self._store.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove a task."""
        self._kept.remove((context.user.user_name, task_id))
        await self._store.delete(task_id, context)

    async def _delete(self, dropped: Sequence[tuple[tuple[str, str], User]]) -> None:
        from a2a.server.context import ServerCallContext  # noqa: PLC0415 - an extra

        for (_, task_id), user in dropped:
            await self._store.delete(task_id, ServerCallContext(user=user))
