"""Conversations of the page: each message of the user's is a run, told line by line while it happens.

A line is a record of a trace (see `routelock.tracing.records`), so the page shows a run and a file of traces
by the same means; or it is one of the page's own: ``delta``, a piece of text or reasoning as it arrives, and
``end``, the last one.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import anyio

from routelock._callables import MaybeAwaitable, call_user_code
from routelock._redaction import redact
from routelock.agents.agent import Agent
from routelock.handlers.events import ReasoningDelta, TextDelta
from routelock.history.messages import Message, RunInput
from routelock.run.config import RunConfig
from routelock.run.events import RunEvent
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.runner import Runner
from routelock.serving.errors import Refusal
from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.tracing.file import as_line
from routelock.tracing.recorder import TraceWriter
from routelock.tracing.records import RunStarted, TraceRecord

__all__ = ["DevConversation", "DevConversations", "DevDecision", "Said", "Tell"]


_logger = logging.getLogger("routelock.dev")

Tell = Callable[[Mapping[str, Any] | str], None]
"""Is given the lines, as JSON text or what becomes it. It does not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevDecision:
    """What the user says of a call that waits for approval."""

    approve: bool
    message: str = ""
    """Why not, for the model."""


Said = str | Sequence[DevDecision]
"""A message, or a decision on each of the calls that wait, in their order."""


@dataclass(slots=True, eq=False)
class DevConversation:
    """One conversation."""

    id: str
    root: Agent[Any]
    """With whom it began: whoever else speaks may hand over to it by name."""
    agent: Agent[Any]
    """Who answers the next message."""
    messages: list[Message] = field(default_factory=lambda: [])
    running: anyio.CancelScope | None = None
    """The run that goes on, if there is one."""
    waiting: tuple[Agent[Any], RunState] | None = None
    """Where the last run stands, and who began it, if calls of it wait for approval."""

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """The calls that wait for approval."""
        return () if self.waiting is None else self.waiting[1].interruptions

    def stop(self) -> None:
        """Cancel the run. What it did until then stays in the conversation."""
        if self.running is not None:
            self.running.cancel()


class DevConversations:
    """The conversations of one app, in memory; the oldest goes when there are too many.

    Args:
        run_config: the settings of every run.
        context: makes the object that is passed as ``context=`` to each run.
        max_turns: most model calls of one run.
        most: so many are kept.
    """

    def __init__(
        self,
        run_config: RunConfig,
        context: Callable[[], MaybeAwaitable[Any]] | None = None,
        *,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        most: int = 50,
    ) -> None:
        self._config = run_config
        self._context = context
        self._max_turns = max_turns
        self._most = most
        self._conversations: dict[str, DevConversation] = {}

    def begin(self, agent: Agent[Any]) -> DevConversation:
        """Return a new conversation."""
        while len(self._conversations) >= self._most:
            self._conversations.pop(next(iter(self._conversations))).stop()
        conversation = DevConversation(secrets.token_urlsafe(12), agent, agent)
        self._conversations[conversation.id] = conversation
        return conversation

    def find(self, conversation_id: object) -> DevConversation:
        """Return a conversation.

        Raises:
            Refusal: 404.
        """
        conversation = self._conversations.get(conversation_id) if isinstance(conversation_id, str) else None
        if conversation is None:
            why = "The server does not know this conversation any more. Begin a new one."
            raise Refusal(404, why, "no_conversation")
        return conversation

    async def answer(self, conversation: DevConversation, said: Said, tell: Tell) -> None:
        """Answer what the user says next. However the run ends, the last line says so.

        Raises:
            Refusal: 409, a run goes on already, or these calls do not wait.
        """
        if conversation.running is not None:
            raise Refusal(409, "This conversation waits for an answer already. Stop it first.", "busy")
        agent, given = _begin_with(conversation, said)
        error: Exception | None = None
        conversation.running = scope = anyio.CancelScope()
        try:
            with scope:
                await self._run(conversation, agent, given, tell)
        except Exception as raised:
            error = raised
        finally:  # also when the page has left
            conversation.running = None
        tell(
            {
                "type": "end",
                "error": None if error is None else _error_text(error),
                "stopped": scope.cancelled_caught,
                "approvals": [_shown(one) for one in conversation.interruptions],
            }
        )

    async def _run(
        self, conversation: DevConversation, agent: Agent[Any], given: RunInput | RunState, tell: Tell
    ) -> None:
        context = None
        if self._context is not None:
            context = await call_user_code("The context function of the dev page", self._context)
        config = replace(
            self._config,
            trace=[*_listed(self._config.trace), _Lines(tell)],
            run_id=None,
            agents=(*self._config.agents, conversation.root),
        )
        stream = Runner.run_streamed(
            agent, given, context=context, max_turns=self._max_turns, run_config=config
        )
        try:
            async with stream:
                async for event in stream:
                    _tell_delta(event, tell)
        finally:
            result = stream.result
            conversation.messages = result.to_input_list()
            conversation.agent = result.next_agent
            conversation.waiting = (agent, result.state()) if result.interruptions else None


def _begin_with(conversation: DevConversation, said: Said) -> tuple[Agent[Any], RunInput | RunState]:
    """Return who begins, and with what: the conversation so far, or the state in which calls are decided.

    Raises:
        Refusal: 409.
    """
    if isinstance(said, str):
        return conversation.agent, [*conversation.messages, {"role": "user", "content": said}]
    if conversation.waiting is None or len(said) != len(conversation.interruptions):
        raise Refusal(409, "These calls do not wait for approval any more.", "not_waiting")
    agent, state = conversation.waiting
    for one, decision in zip(conversation.interruptions, said, strict=True):
        state = state.approve(one) if decision.approve else state.reject(one, message=decision.message)
    return agent, state


def _shown(one: Interruption) -> dict[str, Any]:
    return redact({"agent": one.agent, "name": one.name, "arguments": one.arguments, "call_id": one.call_id})


def _tell_delta(event: RunEvent, tell: Tell) -> None:
    if isinstance(event, TextDelta):
        tell({"type": "delta", "text": event.text})
    elif isinstance(event, ReasoningDelta):
        tell({"type": "delta", "reasoning": event.text})


def _error_text(error: Exception) -> str:
    _logger.info("a run failed", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _listed(trace: Any) -> Sequence[Any]:
    if trace is None:
        return ()
    return cast("Sequence[Any]", trace) if isinstance(trace, list | tuple) else (trace,)


class _Lines:
    """A trace that is told as lines."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> _Lines:
        self.write(start)
        return self

    def write(self, record: TraceRecord, /) -> None:
        self._tell(as_line(record).decode().rstrip("\n"))
