"""What the clients of one A2A task are told, by the means of the protocol's SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from routelock._json import sendable

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue
    from a2a.types import Message as A2AMessage

__all__ = ["PieceFlow", "TaskTeller"]

_BEAT = 0.05
"""Seconds between two pieces of text: each costs as much as the whole task has by then."""


class TaskTeller:
    """Tells the clients of one task what happens.

    Args:
        queue: the SDK's way to them.
        context: the task.
    """

    def __init__(self, queue: EventQueue, context: RequestContext) -> None:
        from a2a.server.tasks import TaskUpdater  # noqa: PLC0415 - an extra

        self._queue = queue
        task = context.current_task
        self._ids = (context.task_id or "", (task.context_id if task else context.context_id) or "")
        self._updater = TaskUpdater(queue, *self._ids)
        earlier = len(task.artifacts) if task else 0
        self._artifact = f"answer-{earlier + 1}" if earlier else "answer"
        self._pieces: list[str] = []

    async def begin(self, message: A2AMessage) -> None:
        """Say that there is a task now."""
        from a2a.helpers import new_task  # noqa: PLC0415 - an extra
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        state = TaskState.TASK_STATE_SUBMITTED
        await self._queue.enqueue_event(new_task(*self._ids, state, history=[message]))

    async def piece(self, text: str) -> None:
        """Show a piece of the answer."""
        await self._show([{"text": text}], append=bool(self._pieces), last=False)
        self._pieces.append(text)

    async def answer(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Show the whole answer, in place of its pieces."""
        await self._show(parts, append=False, last=True)

    async def settle(self) -> None:
        """Show what was shown in pieces as one, where no whole answer follows."""
        if self._pieces:
            await self.answer([{"text": "".join(self._pieces)}])

    async def tell(
        self, state: str, parts: Sequence[Mapping[str, Any]] = (), about: Mapping[str, Any] | None = None
    ) -> None:
        """Say how it stands.

        Args:
            state: such as ``"WORKING"``.
            parts: what is said with it, if anything.
            about: more for programs.
        """
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        message = self._updater.new_agent_message(_parts(parts)) if parts else None
        metadata = dict(about) if about else None
        number: Any = TaskState.Value(f"TASK_STATE_{state}")
        await self._updater.update_status(number, message=message, metadata=metadata)

    async def _show(self, parts: Sequence[Mapping[str, Any]], *, append: bool, last: bool) -> None:
        await self._updater.add_artifact(
            _parts(parts), artifact_id=self._artifact, name="answer", append=append, last_chunk=last
        )


def _parts(bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
    from a2a.types import Part  # noqa: PLC0415 - an extra
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - an extra

    return [ParseDict(body, Part()) for body in sendable([dict(body) for body in bodies])]


class PieceFlow:
    """Text on its way to the clients: at once, but no more often than every twentieth of a second.

    Args:
        send: takes a text that is not empty.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._text = ""
        self._fresh = anyio.Event()

    def add(self, text: str) -> None:
        """Take a text, which may be empty."""
        self._text += text
        if text:
            self._fresh.set()

    async def flow_during(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, and send meanwhile what it adds. What the work raises is raised when all is sent."""
        failed: list[Exception] = []
        async with anyio.create_task_group() as group:
            group.start_soon(self._flow)
            try:
                await work()
            except Exception as error:  # here, because the group would wrap it
                failed.append(error)
            group.cancel_scope.cancel()
        await self._flush()
        if failed:
            raise failed[0]

    async def _flow(self) -> None:
        while True:
            await self._fresh.wait()
            with anyio.CancelScope(shield=True):  # or a text could be lost between two places
                await self._flush()
            await anyio.sleep(_BEAT)

    async def _flush(self) -> None:
        self._fresh = anyio.Event()
        text, self._text = self._text, ""
        if text:
            await self._send(text)
