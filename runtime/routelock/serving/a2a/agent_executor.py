"""The agent executor of A2A's SDK: each task is a run.

The SDK is imported when an app is made, so that ``import routelock.serving`` needs no extra. A task continues
after its client leaves, because the protocol lets clients come back to it. ``ServeConfig.timeout`` and
``ServeConfig.max_concurrent`` bound it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from routelock._json import sendable
from routelock.history.messages import RunInput
from routelock.run.config import RunConfig
from routelock.run.events import AgentUpdated
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.serving.a2a.messages import answer_parts, message_of, question_parts, usage_data, verdict_of
from routelock.serving.a2a.tasks import Contexts, OpenContext
from routelock.serving.auth import AccessControl
from routelock.serving.catalog import ServedAgent
from routelock.serving.completions import DeltaWriter
from routelock.serving.config import A2A, ServeConfig, ServedRequest
from routelock.serving.errors import Refusal, log_refusal, out_of_time, refusal_for
from routelock.serving.served_run import context_for, needs_approval
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue
    from a2a.types import Message as A2AMessage

__all__ = ["TaskExecutor", "TaskUpdates", "TextBatches"]


_PIECE_SECONDS = 0.05
"""Seconds between two pieces of text: the cost of each grows with the size of the task."""


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

    async def begin(self, message: A2AMessage) -> None:
        """Send the new task."""
        from a2a.helpers import new_task  # noqa: PLC0415 - an extra
        from a2a.types import TaskState  # noqa: PLC0415 - an extra

        state = TaskState.TASK_STATE_SUBMITTED
        await self._queue.enqueue_event(new_task(*self._ids, state, history=[message]))

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

    async def _send_artifact(self, parts: Sequence[Mapping[str, Any]], *, append: bool, last: bool) -> None:
        await self._updater.add_artifact(
            _parts(parts), artifact_id=self._artifact, name="answer", append=append, last_chunk=last
        )


def _parts(bodies: Sequence[Mapping[str, Any]]) -> list[Any]:
    from a2a.types import Part  # noqa: PLC0415 - an extra
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415 - an extra

    return [ParseDict(body, Part()) for body in sendable([dict(body) for body in bodies])]


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


_LONGEST_ID = 256

_OVER = ("COMPLETED", "CANCELED", "FAILED", "REJECTED")
"""The final states of tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A message of a client, with its task and its request."""

    about: ServedRequest
    said: Mapping[str, Any]
    task: str
    context: str
    first: bool
    """Whether the message begins the task."""


class TaskExecutor:
    """Runs the tasks of one agent.

    Args:
        served: the agent.
        settings: the settings of the protocol.
        config: keys, limits and settings.
        access: counts the runs at the same time.
    """

    def __init__(
        self, served: ServedAgent, settings: A2A, config: ServeConfig, access: AccessControl
    ) -> None:
        self._served, self._settings, self._config, self._access = served, settings, config, access
        self._contexts = Contexts(
            served.agent.name,
            settings.sessions,
            most=config.max_pending,
            size=config.pending_bytes,
            ttl=config.pending_ttl,
        )

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        """Answer a message. An error is sent as the final state of the task.

        Raises:
            UnsupportedOperationError: the task ended before this message had its turn. It is not changed.
        """
        _check_goes_on(context)
        updates, asked = TaskUpdates(queue, context), _asked(context)
        if asked.first and context.message is not None:
            await updates.begin(context.message)
        try:
            with self._access.slot(), anyio.move_on_after(self._config.timeout):
                await self._answer(asked, updates)
                return
            raise out_of_time(self._config.timeout)
        except Exception as error:
            refusal = refusal_for(error)
        log_refusal(asked.about.request_id, refusal)
        about = {"code": refusal.code, "requestId": asked.about.request_id}
        state = "REJECTED" if refusal.status < 500 else "FAILED"
        await updates.settle()
        await updates.send_state(state, [{"text": refusal.message}], about)

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        """Send the state of a cancelled task; then the SDK cancels `execute`, and so the run."""
        await TaskUpdates(queue, context).send_state("CANCELED")

    async def _answer(self, asked: _Asked, updates: TaskUpdates) -> None:
        if len(asked.context) > _LONGEST_ID:
            raise Refusal(400, f"A contextId has at most {_LONGEST_ID} characters.", "invalid_request")
        async with self._contexts.turn(asked.about.principal, asked.context) as conversation:
            if asked.first:
                given: RunInput | RunState = [message_of(asked.said)]
            else:
                waiting = _waiting(asked, conversation)
                if (verdict := verdict_of(asked.said)) is None:
                    return await updates.send_state("INPUT_REQUIRED", question_parts(waiting.interruptions))
                given = _decided(waiting, *verdict)
            conversation.waiting.clear()
            result, text = await self._run(asked, conversation, given, updates)
            await self._end(asked, conversation, result, text, updates)

    async def _run(
        self, asked: _Asked, conversation: OpenContext, given: RunInput | RunState, updates: TaskUpdates
    ) -> tuple[RunResult[Any], str]:
        """Run, and return the result and the whole text."""
        stream = Runner.run_streamed(
            self._served.agent,
            given,
            context=await context_for(self._config, asked.about),
            max_turns=self._config.max_turns,
            hooks=self._config.hooks,
            run_config=_settings(asked, self._config.run_config),
            session=conversation.session,
        )
        writer = DeltaWriter(agents=self._served.graph.keys(), hold=self._served.has_output_type)
        pieces, said = TextBatches(updates.piece), list[str]()

        async def show() -> None:
            async with stream:
                async for event in stream:
                    if isinstance(event, AgentUpdated):
                        await updates.send_state("WORKING", about={"agent": event.agent})
                    said.append(_text(writer.take(event)))
                    pieces.add(said[-1])

        await pieces.send_during(show)
        last, _ = writer.finish(stream.result)
        return stream.result, "".join([*said, _text(last)])

    async def _end(
        self,
        asked: _Asked,
        conversation: OpenContext,
        result: RunResult[Any],
        text: str,
        updates: TaskUpdates,
    ) -> None:
        if result.interruptions or result.pending:
            if result.pending or not self._settings.approvals:
                raise needs_approval(result)
            conversation.waiting[asked.task] = result.state()
            await updates.settle()
            return await updates.send_state("INPUT_REQUIRED", question_parts(result.interruptions))
        if parts := answer_parts(result, text):
            await updates.answer(parts)
        about = {"agent": result.last_agent.name, "usage": usage_data(result.usage)}
        await updates.send_state("COMPLETED", about=about)


def _check_goes_on(context: RequestContext) -> None:
    from a2a.types import TaskState  # noqa: PLC0415 - an extra
    from a2a.utils.errors import UnsupportedOperationError  # noqa: PLC0415 - an extra

    if (task := context.current_task) is not None:
        state = TaskState.Name(task.status.state)
        if state.removeprefix("TASK_STATE_") in _OVER:
            raise UnsupportedOperationError(message=f"Task {task.id} is in terminal state: {state}")


def _asked(context: RequestContext) -> _Asked:
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - an extra

    task = context.current_task
    return _Asked(
        about=context.call_context.state["about"],
        said=MessageToDict(context.message) if context.message is not None else {},
        task=context.task_id or "",
        # a message with a task needs no context, and the SDK makes one up
        context=(task.context_id if task else context.context_id) or "",
        first=task is None,
    )


def _waiting(asked: _Asked, conversation: OpenContext) -> RunState:
    """Return the state of a task's run that waits for approval.

    Raises:
        Refusal: 409, the task does not wait.
    """
    if (state := conversation.waiting.get(asked.task)) is None:
        why = "This task does not wait for approval any more. Send the message without its taskId."
        raise Refusal(409, why, "not_waiting")
    return state


def _decided(state: RunState, approved: bool, why_not: str) -> RunState:
    """Return the state with a decision on all calls that wait."""
    for one in state.interruptions:
        state = state.approve(one) if approved else state.reject(one, message=why_not)
    return state


def _text(deltas: Sequence[Mapping[str, Any]]) -> str:
    return "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas)


def _settings(asked: _Asked, base: RunConfig) -> RunConfig:
    """Return the settings of the app with those of this task."""
    return replace(
        base,
        run_id=asked.task,
        scopes=asked.about.scopes,
        conversation_id=base.conversation_id or asked.context,
        retry=replace(base.retry, mid_stream=False),  # text that was sent cannot be taken back
    )
