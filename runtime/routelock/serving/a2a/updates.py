"""Updates for the clients of a task: its states, its artifact, or a message in place of a task."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from routelock._sendable import sendable

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue
    from a2a.types import Message as A2AMessage

__all__ = ["MessageReply", "TaskUpdates", "TextBatches"]


_PIECE_SECONDS = 0.05
"""Seconds between two pieces of text: the cost of each grows with the size of the task."""


_DEEPEST = 80
"""The most levels of a part. An object in JSON data takes four. The SDKs of clients read 100 levels, and the
task around a part takes some of them."""


class TaskUpdates:
    """Sends the updates of one task to its clients.

    Args:
        queue: the SDK's queue of events.
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

    async def begin(self, message: A2AMessage | None) -> None:
        """Send the new task, which a message begins."""
        from a2a.helpers import new_task  # noqa: PLC0415 - an extra
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        state = TaskState.TASK_STATE_SUBMITTED
        await self._queue.enqueue_event(new_task(*self._ids, state, history=[message] if message else None))

    async def piece(self, text: str) -> None:
        """Send a piece of the answer."""
        await self._send_artifact([{"text": text}], append=bool(self._pieces), last=False)
        self._pieces.append(text)

    async def answer(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Send the whole answer, which replaces its pieces."""
        await self._send_artifact(parts, append=False, last=True)

    async def settle(self) -> None:
        """Send the pieces as one answer, if no whole answer follows."""
        if self._pieces:
            await self.answer([{"text": "".join(self._pieces)}])

    async def send_state(
        self, state: str, parts: Sequence[Mapping[str, Any]] = (), about: Mapping[str, Any] | None = None
    ) -> None:
        """Send a state of the task.

        Args:
            state: such as ``"WORKING"``.
            parts: the parts of a message with it, if any.
            about: metadata.
        """
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        message = self._updater.new_agent_message(_parts(parts)) if parts else None
        metadata = dict(about) if about else None
        number: Any = TaskState.Value(f"TASK_STATE_{state}")
        await self._updater.update_status(number, message=message, metadata=metadata)

    async def send_message(self, parts: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None) -> None:
        """Send a message in place of the task, which must not have begun."""
        metadata = dict(about) if about else None
        message = self._updater.new_agent_message(_parts(parts), metadata)
        message.ClearField("task_id")  # a client cannot come back to it, because there is no task
        await self._queue.enqueue_event(message)

    async def _send_artifact(self, parts: Sequence[Mapping[str, Any]], *, append: bool, last: bool) -> None:
        await self._updater.add_artifact(
            _parts(parts), artifact_id=self._artifact, name="answer", append=append, last_chunk=last
        )


class MessageReply(TaskUpdates):
    """Answers with a message, and begins the task only when the run does not just complete.

    Args:
        queue: the SDK's queue of events.
        context: the message of the client.
    """

    def __init__(self, queue: EventQueue, context: RequestContext) -> None:
        super().__init__(queue, context)
        self._message = context.message
        self._answer: Sequence[Mapping[str, Any]] = ({"text": ""},)
        """A message has at least one part."""

    async def piece(self, text: str) -> None:
        """Leave a piece out: a message is whole."""

    async def answer(self, parts: Sequence[Mapping[str, Any]]) -> None:
        """Keep the answer for the message, which is sent at the end of the run."""
        self._answer = parts

    async def send_state(
        self, state: str, parts: Sequence[Mapping[str, Any]] = (), about: Mapping[str, Any] | None = None
    ) -> None:
        """Send the message if the run is completed. Any other end is the state of a task."""
        if state == "COMPLETED":
            return await self.send_message(self._answer, about)
        if state != "WORKING":
            await self.begin(self._message)
            await super().send_state(state, parts, about)


def _parts(bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [_part(body) for body in sendable([dict(body) for body in bodies])]


def _part(body: dict[str, Any]) -> Any:
    """Return a part; as text if it has data that is nested too deeply for the SDKs of clients."""
    from a2a.types import Part  # noqa: PLC0415 - an extra
    from google.protobuf.json_format import ParseDict, ParseError  # noqa: PLC0415 - an extra

    if body.keys() == {"text"}:  # nearly all are
        return Part(text=body["text"])
    try:
        return ParseDict(body, Part(), max_recursion_depth=_DEEPEST)
    except ParseError:
        if "data" not in body:
            raise
        text = json.dumps(body["data"], ensure_ascii=False)
        return ParseDict({"text": text, "mediaType": body["mediaType"]}, Part())


class TextBatches:
    """Sends pieces of text at once, but not more often than every twentieth of a second.

    Args:
        send: is given a text that is not empty.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._text = ""
        self._added = anyio.Event()

    def add(self, text: str) -> None:
        """Add a text, which may be empty."""
        self._text += text
        if text:
            self._added.set()

    async def send_during(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work, and send the texts that it adds. An error of the work is raised after all texts are
        sent.
        """
        failed: list[Exception] = []
        async with anyio.create_task_group() as group:
            group.start_soon(self._send_batches)
            try:
                await work()
            except Exception as error:  # here, because the group would wrap it
                failed.append(error)
            group.cancel_scope.cancel()
        await self._flush()
        if failed:
            raise failed[0]

    async def _send_batches(self) -> None:
        while True:
            await self._added.wait()
            with anyio.CancelScope(shield=True):  # or a text could be taken and not sent
                await self._flush()
            await anyio.sleep(_PIECE_SECONDS)

    async def _flush(self) -> None:
        self._added = anyio.Event()
        text, self._text = self._text, ""
        if text:
            await self._send(text)
