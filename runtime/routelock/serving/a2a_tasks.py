"""The tasks that A2A's clients may ask about: the newest ones, within bounds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from a2a.auth.user import User
    from a2a.server.context import ServerCallContext
    from a2a.types import ListTasksRequest, ListTasksResponse, Task

__all__ = ["Tasks"]


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
