"""The agent executor of A2A's SDK: each task is a run.

The SDK is imported when an app is made, so that ``import routelock.serving`` needs no extra. A task continues
after its client leaves, because the protocol lets clients come back to it. ``ServeConfig.timeout`` and
``ServeConfig.max_concurrent`` bound it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from routelock.history.messages import RunInput
from routelock.run.config import RunConfig
from routelock.run.events import AgentUpdated
from routelock.run.result import RunResult
from routelock.serving.a2a.messages import answer_parts, message_of
from routelock.serving.a2a.questions import question_parts, read_answers
from routelock.serving.a2a.tasks import Contexts, OpenContext
from routelock.serving.a2a.updates import MessageReply, TaskUpdates, TextBatches
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import ServedAgent, ServedApp
from routelock.serving.completions import refused_turns
from routelock.serving.config import A2A, ServedRequest
from routelock.serving.errors import Refusal, log_refusal, out_of_time, refusal_for
from routelock.serving.forms import Misfit
from routelock.serving.run_data import delta_text, run_data
from routelock.serving.served_run import needs_approval, run_stream
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue

__all__ = ["TaskExecutor"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """One run of a task."""

    asked: _Asked
    conversation: OpenContext
    number: int
    """Which run of its task it is, from 1; 0 if it goes on with a run that waited for approval."""
    updates: TaskUpdates


class TaskExecutor:
    """Runs the tasks of one agent.

    Args:
        served: the agent.
        settings: the settings of the protocol.
        app: the settings of the app, and the number of its runs at the same time.
    """

    def __init__(self, served: ServedAgent, settings: A2A, app: ServedApp) -> None:
        self._served, self._settings, self._config, self._access = served, settings, app.config, app.access
        base = app.config.run_config
        # text that was sent cannot be taken back
        self._run_config = replace(base, retry=replace(base.retry, mid_stream=False))
        self._contexts = Contexts(served.agent.name, settings.sessions, bounds_of(app.config))

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        """Answer a message. An error is sent as the final state of the task.

        Raises:
            UnsupportedOperationError: the task ended before this message had its turn. It is not changed.
        """
        _check_goes_on(context)
        asked = _asked(context)
        updates = MessageReply(queue, context) if asked.first else TaskUpdates(queue, context)
        try:
            if asked.first and self._begins_task(asked.about):
                updates = TaskUpdates(queue, context)
                await updates.begin(context.message)
            with self._access.slot(), anyio.move_on_after(self._config.timeout):
                await self._answer(asked, updates)
                return
            raise out_of_time(self._config.timeout)
        except Exception as error:
            refusal = refusal_for(error)
        log_refusal(asked.about.request_id, refusal)
        about = {"code": refusal.code, "requestId": asked.about.request_id}
        if refusal.code == "too_many_requests" and not asked.first:  # nothing is decided: the task waits on
            return await updates.send_state("INPUT_REQUIRED", self._asked_again(asked, refusal), about)
        state = "REJECTED" if refusal.status < 500 else "FAILED"
        await updates.settle()
        await updates.send_state(state, [{"text": refusal.message}], about)

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        """Send the state of a cancelled task; then the SDK cancels `execute`, and so the run."""
        await TaskUpdates(queue, context).send_state("CANCELED")

    def _begins_task(self, about: ServedRequest) -> bool:
        tasks = self._settings.tasks
        return tasks if isinstance(tasks, bool) else tasks(about)

    def _asked_again(self, asked: _Asked, refusal: Refusal) -> list[dict[str, Any]]:
        """Return the question of a task again, after an answer that does not fit it."""
        waiting = self._contexts.waiting(asked.about.principal, asked.context, asked.task)
        if waiting is None:
            return [{"text": refusal.message}]
        return question_parts(waiting.interruptions, refusal.message)

    async def _answer(self, asked: _Asked, updates: TaskUpdates) -> None:
        if len(asked.context) > _LONGEST_ID:
            raise Refusal(400, f"A contextId has at most {_LONGEST_ID} characters.", "invalid_request")
        async with self._contexts.turn(asked.about.principal, asked.context) as conversation:
            number = 1 if asked.first else conversation.questions.pop(asked.task, 0)
            if number:
                given: RunInput | RunState = [message_of(asked.said)]
            else:
                waiting = _waiting(asked, conversation)
                try:
                    given = _decided(asked, conversation, waiting)
                except Misfit as misfit:
                    again = question_parts(waiting.interruptions, f"This message does not answer: {misfit}")
                    return await updates.send_state("INPUT_REQUIRED", again)
            conversation.clear_waiting(asked.task)
            turn = _Turn(asked=asked, conversation=conversation, number=number, updates=updates)
            await self._end(turn, *await self._run(turn, given))

    async def _run(self, turn: _Turn, given: RunInput | RunState) -> tuple[RunResult[Any], str, str]:
        """Run, and return the result, the whole text and the finish reason."""
        updates = turn.updates
        config, session = self._config, turn.conversation.session
        settings = _settings(turn, self._run_config)
        stream = await run_stream(
            config, turn.asked.about, self._served.agent, given, settings, session=session
        )
        writer = self._served.writer()
        pieces, said = TextBatches(updates.piece), list[str]()

        async def show() -> None:
            async with stream:
                async for event in stream:
                    if isinstance(event, AgentUpdated):
                        await updates.send_state("WORKING", about={"agent": event.agent})
                    said.append(delta_text(writer.take(event)))
                    pieces.add(said[-1])

        await pieces.send_during(show)
        result = stream.result
        if refused_turns(result):  # the whole answer replaces the pieces, so it can leave these out
            writer = self._served.writer()
            said = [delta_text(deltas) for deltas in writer.replies(result)]
        last, finish = writer.finish(result)
        return result, "".join([*said, delta_text(last)]), finish

    async def _end(self, turn: _Turn, result: RunResult[Any], text: str, finish: str) -> None:
        task, conversation, updates = turn.asked.task, turn.conversation, turn.updates
        if result.interruptions or result.pending:
            if result.pending or not self._settings.approvals:
                raise needs_approval(result)
            conversation.waiting[task] = result.state()
            await updates.settle()
            return await updates.send_state("INPUT_REQUIRED", question_parts(result.interruptions))
        parts = answer_parts(result, text)
        about = run_data(result, finish)
        if self._settings.is_question is not None and self._settings.is_question(result):
            conversation.questions[task] = max(turn.number, 1) + 1
            await updates.settle()
            return await updates.send_state("INPUT_REQUIRED", parts, about)
        if parts:
            await updates.answer(parts)
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


def _decided(asked: _Asked, conversation: OpenContext, state: RunState) -> RunState:
    """Return the state with the client's answer to each call that waits.

    Raises:
        Misfit: the message does not answer all of them, or it has answered an earlier question.
    """
    message = str(asked.said.get("messageId", ""))
    if message in conversation.taken:
        raise Misfit("", f"the messageId {message!r:.80} was used for an earlier answer.")
    calls = state.interruptions
    for one, answer in zip(calls, read_answers(asked.said, calls), strict=True):
        state = answer.decide(state, one)
    conversation.taken.add(message)
    return state


def _settings(turn: _Turn, base: RunConfig) -> RunConfig:
    """Return the settings of all tasks with those of this run."""
    asked = turn.asked
    return replace(
        base,
        # an engine would take a second run of the same id for the first one
        run_id=asked.task if turn.number < 2 else f"{asked.task}-{turn.number}",
        scopes=asked.about.scopes,
        conversation_id=base.conversation_id or asked.context,
    )
