"""Tasks of A2A as runs: what the protocol's SDK calls an executor.

The SDK is imported when an app is made, so that ``import routelock.serving`` needs no extra. A task goes on
when its client leaves: the protocol lets clients come back to it. What it takes is bounded all the same, by
``ServeConfig.timeout`` and ``ServeConfig.max_concurrent``.
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
from routelock.serving.requests import context_for, needs_approval
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue
    from a2a.types import Message as A2AMessage

__all__ = ["PieceFlow", "Runs", "TaskTeller"]


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


_LONGEST_ID = 256

_OVER = ("COMPLETED", "CANCELED", "FAILED", "REJECTED")
"""The states of tasks that have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A message of a client's, and who sent it."""

    about: ServedRequest
    said: Mapping[str, Any]
    task: str
    context: str
    first: bool
    """Whether it begins the task."""


class Runs:
    """Answers the tasks of one agent.

    Args:
        served: the agent.
        settings: how it is served by this protocol.
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
        """Answer a message; what goes wrong is told as the end of the task.

        Raises:
            UnsupportedOperationError: the task had an end before the message had its turn. It stays as it is.
        """
        _check_goes_on(context)
        teller, asked = TaskTeller(queue, context), _asked(context)
        if asked.first and context.message is not None:
            await teller.begin(context.message)
        try:
            with self._access.slot(), anyio.move_on_after(self._config.timeout):
                await self._answer(asked, teller)
                return
            raise out_of_time(self._config.timeout)
        except Exception as error:
            refusal = refusal_for(error)
        log_refusal(asked.about.request_id, refusal)
        about = {"code": refusal.code, "requestId": asked.about.request_id}
        state = "REJECTED" if refusal.status < 500 else "FAILED"
        await teller.settle()
        await teller.tell(state, [{"text": refusal.message}], about)

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        """Say that the task is cancelled; then the SDK cancels what `execute` awaits, and so the run."""
        await TaskTeller(queue, context).tell("CANCELED")

    async def _answer(self, asked: _Asked, teller: TaskTeller) -> None:
        if len(asked.context) > _LONGEST_ID:
            raise Refusal(400, f"A contextId has at most {_LONGEST_ID} characters.", "invalid_request")
        async with self._contexts.turn(asked.about.principal, asked.context) as talk:
            if asked.first:
                given: RunInput | RunState = [message_of(asked.said)]
            else:
                waiting = _waiting(asked, talk)
                if (verdict := verdict_of(asked.said)) is None:
                    return await teller.tell("INPUT_REQUIRED", question_parts(waiting.interruptions))
                given = _decided(waiting, *verdict)
            talk.waiting.clear()
            result, text = await self._run(asked, talk, given, teller)
            await self._end(asked, talk, result, text, teller)

    async def _run(
        self, asked: _Asked, talk: OpenContext, given: RunInput | RunState, teller: TaskTeller
    ) -> tuple[RunResult[Any], str]:
        """Run, and return how it ended and all that was written."""
        stream = Runner.run_streamed(
            self._served.agent,
            given,
            context=await context_for(self._config, asked.about),
            max_turns=self._config.max_turns,
            hooks=self._config.hooks,
            run_config=_settings(asked, self._config.run_config),
            session=talk.session,
        )
        writer = DeltaWriter(agents=self._served.graph.keys(), hold=self._served.has_output_type)
        pieces, said = PieceFlow(teller.piece), list[str]()

        async def show() -> None:
            async with stream:
                async for event in stream:
                    if isinstance(event, AgentUpdated):
                        await teller.tell("WORKING", about={"agent": event.agent})
                    said.append(_text(writer.take(event)))
                    pieces.add(said[-1])

        await pieces.flow_during(show)
        last, _ = writer.finish(stream.result)
        return stream.result, "".join([*said, _text(last)])

    async def _end(
        self, asked: _Asked, talk: OpenContext, result: RunResult[Any], text: str, teller: TaskTeller
    ) -> None:
        if result.interruptions or result.pending:
            if result.pending or not self._settings.approvals:
                raise needs_approval(result)
            talk.waiting[asked.task] = result.state()
            await teller.settle()
            return await teller.tell("INPUT_REQUIRED", question_parts(result.interruptions))
        if parts := answer_parts(result, text):
            await teller.answer(parts)
        about = {"agent": result.last_agent.name, "usage": usage_data(result.usage)}
        await teller.tell("COMPLETED", about=about)


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
        # a message that names its task need not name the context, and the SDK makes one up
        context=(task.context_id if task else context.context_id) or "",
        first=task is None,
    )


def _waiting(asked: _Asked, talk: OpenContext) -> RunState:
    """Return where the run of a task stands that waits for approval.

    Raises:
        Refusal: 409, none does.
    """
    if (state := talk.waiting.get(asked.task)) is None:
        why = "This task waits for nothing any more. Send the message without its taskId."
        raise Refusal(409, why, "not_waiting")
    return state


def _decided(state: RunState, approved: bool, why_not: str) -> RunState:
    """Return the state with a word on all calls that wait."""
    for one in state.interruptions:
        state = state.approve(one) if approved else state.reject(one, message=why_not)
    return state


def _text(deltas: Sequence[Mapping[str, Any]]) -> str:
    return "".join(delta.get("content") or delta.get("refusal") or "" for delta in deltas)


def _settings(asked: _Asked, base: RunConfig) -> RunConfig:
    """Return the app's settings with what this task adds."""
    return replace(
        base,
        run_id=asked.task,
        scopes=asked.about.scopes,
        conversation_id=base.conversation_id or asked.context,
        retry=replace(base.retry, mid_stream=False),  # what a client was shown cannot be taken back
    )
