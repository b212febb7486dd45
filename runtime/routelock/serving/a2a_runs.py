"""Tasks of A2A as runs: what the protocol's SDK calls an executor.

The SDK is imported when an app is made, so that ``import routelock.serving`` needs no extra. A task goes on
when its client leaves: the protocol lets clients come back to it. What it takes is bounded all the same, by
``ServeConfig.timeout`` and ``ServeConfig.max_concurrent``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import anyio

from routelock.history.messages import RunInput
from routelock.run.config import RunConfig
from routelock.run.events import AgentUpdated
from routelock.run.result import RunResult
from routelock.runner import Runner
from routelock.serving.a2a_bodies import answer_parts, message_of, question_parts, usage_data, verdict_of
from routelock.serving.a2a_contexts import Contexts, OpenContext
from routelock.serving.a2a_telling import PieceFlow, TaskTeller
from routelock.serving.catalog import ServedAgent
from routelock.serving.chunks import DeltaWriter
from routelock.serving.config import A2A, ServeConfig, ServedRequest
from routelock.serving.endpoints import log_refusal
from routelock.serving.guards import Guards
from routelock.serving.jobs import context_for, needs_approval
from routelock.serving.refusals import Refusal, out_of_time, refusal_for
from routelock.state.run_state import RunState

if TYPE_CHECKING:
    from a2a.server.agent_execution import RequestContext
    from a2a.server.events import EventQueue

__all__ = ["Runs"]

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
        guards: count what runs.
    """

    def __init__(self, served: ServedAgent, settings: A2A, config: ServeConfig, guards: Guards) -> None:
        self._served, self._settings, self._config, self._guards = served, settings, config, guards
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
            with self._guards.slot(), anyio.move_on_after(self._config.timeout):
                await self._answer(asked, teller)
                return
            raise out_of_time(self._config.timeout)
        except Exception as error:
            refusal = refusal_for(error)
            if refusal is not error:
                refusal.__cause__ = error
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
