"""Conversations of the dev page: each message of the user is a run, which is sent as lines while it runs.

A line is a trace record (see `routelock.tracing.records`), so the page shows runs and trace files with the
same code. Two kinds of lines are the page's own: ``delta``, a piece of text or reasoning, and ``end``, the
last line.
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
from routelock.serving.forms import Answer, Misfit, asked_fields, question_text, read_answer
from routelock.sessions.session import Session
from routelock.state.run_state import RunState
from routelock.tools.approvals import Interruption
from routelock.tracing.file import as_line
from routelock.tracing.recorder import TraceWriter
from routelock.tracing.records import RunStarted, TraceRecord

__all__ = [
    "DevConversation",
    "DevConversations",
    "DevDecision",
    "MakeSession",
    "Said",
    "SendLine",
]


_logger = logging.getLogger("routelock.dev")

SendLine = Callable[[Mapping[str, Any] | str], None]
"""Sends a line, as JSON text or as a value that becomes JSON. It does not wait."""


MakeSession = Callable[[], MaybeAwaitable[Session]]
"""Makes the session of a new conversation; it may return the same one each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevDecision:
    """The user's decision on a call that waits for approval."""

    approve: bool
    message: str = ""
    """The reason, for the model."""
    answer: dict[str, Any] = field(default_factory=lambda: {})
    """The fields that the call asks for."""


Said = str | Sequence[DevDecision]
"""A message, or a decision on each of the calls that wait, in their order."""


@dataclass(slots=True, eq=False)
class DevConversation:
    """One conversation."""

    id: str
    root: Agent[Any]
    """The agent that it began with. Every other agent may hand off to it by name."""
    agent: Agent[Any]
    """The agent that answers the next message."""
    messages: list[Message] = field(default_factory=lambda: [])
    session: Session | None = None
    """Has the messages, if the app has sessions, and may know the agent that answers next."""
    running: anyio.CancelScope | None = None
    """The scope of the run, if one is running."""
    waiting: tuple[Agent[Any], RunState] | None = None
    """The first agent and the state of the last run, if its calls wait for approval."""

    @property
    def interruptions(self) -> Sequence[Interruption]:
        """The calls that wait for approval."""
        return () if self.waiting is None else self.waiting[1].interruptions

    def stop(self) -> None:
        """Cancel the run. Its messages so far stay in the conversation."""
        if self.running is not None:
            self.running.cancel()


class DevConversations:
    """The conversations of one app, in memory; the oldest is dropped when there are too many.

    Args:
        run_config: the settings of every run.
        context: makes the object that is passed as ``context=`` to each run.
        session: makes the session of each conversation; None keeps conversations in memory.
        max_turns: most model calls of one run.
        most: the largest number of conversations.
    """

    def __init__(
        self,
        run_config: RunConfig,
        context: Callable[[], MaybeAwaitable[Any]] | None = None,
        *,
        session: MakeSession | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        most: int = 50,
    ) -> None:
        self._config = run_config
        self._context = context
        self._session = session
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

    async def open_session(self, conversation: DevConversation) -> str:
        """Give a new conversation its session, and return a sentence about it; empty if the app has none.

        Raises:
            Refusal: 500, the session cannot be made or loaded.
        """
        if self._session is None:
            return ""
        try:
            session = await call_user_code("The session of the dev page", self._session)
            stored = await session.load()
        except Exception as error:
            raise Refusal(500, _error_text(error), "session") from error
        conversation.session, count = session, len(stored.messages)
        if count == 0:
            return f"The session {session.name!r:.80} is new."
        agent = f"; {stored.next_agent!r:.80} answers" if stored.next_agent else ""
        return f"The session {session.name!r:.80} goes on after {count} message{'s' * (count > 1)}{agent}."

    def find(self, conversation_id: object) -> DevConversation:
        """Return a conversation.

        Raises:
            Refusal: 404.
        """
        conversation = self._conversations.get(conversation_id) if isinstance(conversation_id, str) else None
        if conversation is None:
            why = "The server does not have this conversation any more. Begin a new one."
            raise Refusal(404, why, "no_conversation")
        return conversation

    async def answer(self, conversation: DevConversation, said: Said, send_line: SendLine) -> None:
        """Run the next message of the user. The last line says how the run ended.

        Raises:
            Refusal: 409, a run is running already, calls wait for a decision, or these calls do not wait.
        """
        if conversation.running is not None:
            raise Refusal(409, "A run of this conversation is running already. Stop it first.", "busy")
        try:
            agent, given = _begin_with(conversation, said)
        except Misfit as wrong:  # the calls wait on
            return send_line(_end_of(conversation, f"The answer does not fit: {wrong}"))
        error: Exception | None = None
        conversation.running = scope = anyio.CancelScope()
        try:
            with scope:
                await self._run(conversation, agent, given, send_line)
        except Exception as raised:
            error = raised
        finally:  # also when the page was closed
            conversation.running = None
        text = None if error is None else _error_text(error)
        send_line(_end_of(conversation, text, stopped=scope.cancelled_caught))

    async def _run(
        self,
        conversation: DevConversation,
        agent: Agent[Any],
        given: RunInput | RunState,
        send_line: SendLine,
    ) -> None:
        context = None
        if self._context is not None:
            context = await call_user_code("The context function of the dev page", self._context)
        config = replace(
            self._config,
            trace=[*_listed(self._config.trace), _Lines(send_line)],
            run_id=None,
            agents=(*self._config.agents, conversation.root),
        )
        stream = Runner.run_streamed(
            agent,
            given,
            context=context,
            max_turns=self._max_turns,
            run_config=config,
            session=conversation.session,
        )
        try:
            async with stream:
                async for event in stream:
                    _send_delta(event, send_line)
        finally:
            result = stream.result
            if conversation.session is None:
                conversation.messages = result.to_input_list()
                conversation.agent = result.next_agent
            conversation.waiting = (agent, result.state()) if result.interruptions else None


def _begin_with(conversation: DevConversation, said: Said) -> tuple[Agent[Any], RunInput | RunState]:
    """Return the first agent and the input: the conversation so far, or the state with the decisions.

    Raises:
        Refusal: 409.
        Misfit: an answer does not fit its question.
    """
    if isinstance(said, str):
        if conversation.waiting is not None:
            raise Refusal(409, "Calls wait for you: approve or decline each of them first.", "waiting")
        return conversation.agent, [*conversation.messages, {"role": "user", "content": said}]
    if conversation.waiting is None or len(said) != len(conversation.interruptions):
        raise Refusal(409, "These calls do not wait for approval any more.", "not_waiting")
    agent, state = conversation.waiting
    for one, decision in zip(conversation.interruptions, said, strict=True):
        state = _answer_of(decision, one).decide(state, one)
    return agent, state


def _answer_of(decision: DevDecision, one: Interruption) -> Answer:
    """Return the user's answer to a call.

    Raises:
        Misfit: it does not fit the fields that the call asks for.
    """
    if not decision.approve:
        return Answer(False, decision.message)
    return read_answer(one, decision.answer if asked_fields(one) else True, key="")


def _end_of(conversation: DevConversation, error: str | None, *, stopped: bool = False) -> dict[str, Any]:
    """Return the last line of an answer, with the calls that wait."""
    waiting = [_shown(one) for one in conversation.interruptions]
    return {"type": "end", "error": error, "stopped": stopped, "approvals": waiting}


def _shown(one: Interruption) -> dict[str, Any]:
    shown = {"agent": one.agent, "name": one.name, "arguments": one.arguments, "call_id": one.call_id}
    if one.question is None:
        return redact(shown)
    form = {"fields": asked_fields(one), "required": one.question.required}
    return redact({**shown, "question": question_text(one.question), **form})


def _send_delta(event: RunEvent, send_line: SendLine) -> None:
    if isinstance(event, TextDelta):
        send_line({"type": "delta", "text": event.text})
    elif isinstance(event, ReasoningDelta):
        send_line({"type": "delta", "reasoning": event.text})


def _error_text(error: Exception) -> str:
    _logger.info("a run failed", exc_info=error)
    return f"{type(error).__name__}: {error}"


def _listed(trace: Any) -> Sequence[Any]:
    if trace is None:
        return ()
    return cast("Sequence[Any]", trace) if isinstance(trace, list | tuple) else (trace,)


class _Lines:
    """A `TraceWriter` that sends each record as a line."""

    def __init__(self, send_line: SendLine) -> None:
        self._send_line = send_line

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> _Lines:
        self.write(start)
        return self

    def write(self, record: TraceRecord, /) -> None:
        self._send_line(as_line(record).decode().rstrip("\n"))
