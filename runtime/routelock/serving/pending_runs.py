"""Runs that wait for their client to run its own tools.

A client sends back only the messages that it got, without the server's tool calls of that turn and without
the handoffs. So the app keeps the transcript and the active agent. The limits of this are:

* It is in memory. After a restart, or in another worker process, the run begins at the first agent with the
  messages that the client sent. Use one process, or sticky sessions.
* It is bounded in number, bytes and time, see `ServeConfig`. A dropped run begins again in the same way.
* A handler that is not one of the agent's own, but the target of a handoff, is not resumed. The agent's
  default handler continues with the same transcript, without the data of the handoff (``handoff_input``, the
  source's instructions).
* An agent that was to return to its caller (``return_to_caller``) ends the run with its answer.
* Reading a run does not remove it: a client may repeat a request whose reply it lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from routelock.agents.agent import Agent
from routelock.history.marked import ORIGIN
from routelock.history.messages import Message, ToolCall, calls_of
from routelock.history.notes import with_notes_marked
from routelock.history.portable import portable
from routelock.run.result import RunResult
from routelock.serving.bounded_store import BoundedStore, Bounds

__all__ = ["HeldRun", "PendingRuns", "Resumed", "held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A run that is resumed."""

    agent: Agent[Any]
    handler: str
    messages: list[Message]
    """The transcript, the tool results, and the messages that the client added after them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRun:
    """A run as it is kept for its next messages."""

    agent: Agent[Any]
    """The agent that goes on."""
    handler: str
    """Its handler; empty for its default."""
    messages: list[Message]
    calls: Sequence[ToolCall] = ()
    """The calls that wait for the client, with the ids that the client is given."""
    own_ids: Mapping[str, str] = field(default_factory=lambda: {})
    """The call ids of the transcript, by those that the client was given."""

    @property
    def size(self) -> int:
        """The size of the messages in bytes of JSON."""
        return len(json.dumps(self.messages, default=str))

    def without(self, own: Sequence[Message]) -> HeldRun:
        """Return the run without ``own``, the messages at its beginning that were for one request alone."""
        if own and self.messages[: len(own)] == [*own]:
            return replace(self, messages=self.messages[len(own) :])
        return self

    def resumed(self, added: Sequence[Message]) -> Resumed:
        """Return what resumes the run: its messages, and those that the client sent after it."""
        own = [_with_own_id(message, self.own_ids) for message in added]
        return Resumed(agent=self.agent, handler=self.handler, messages=[*self.messages, *own])


def held(result: RunResult[Any]) -> HeldRun:
    """Return a run that waits for its client, with new ids of its calls.

    The new ids cannot be guessed. Those of models repeat ("call_0"), and would lead one conversation into
    another.
    """
    calls: list[ToolCall] = []
    own_ids: dict[str, str] = {}
    for call in result.pending:
        shown = f"call_{secrets.token_hex(12)}"
        own_ids[shown] = call["id"]
        function = call["function"]
        arguments = function.get("arguments") or "{}"
        calls.append(
            {
                "id": shown,
                "type": "function",
                "function": {"name": function["name"], "arguments": arguments},
            }
        )
    return HeldRun(
        agent=result.last_agent,
        handler=result.last_handler,
        messages=_transcript(result),
        calls=calls,
        own_ids=own_ids,
    )


class PendingRuns:
    """The waiting runs of one app. A caller finds only its own, and only for the same model.

    Args:
        bounds: the bounds of the runs, whose bytes are counted as JSON.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._kept = BoundedStore[tuple[str, str, frozenset[str]], HeldRun](bounds)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, principal: str, model: str, run: HeldRun) -> None:
        """Keep a run that waits for the results of its calls."""
        self._kept.put((principal, model, frozenset(run.own_ids)), run, run.size)

    def find(self, principal: str, model: str, messages: Sequence[Message]) -> Resumed | None:
        """Return the run that these messages continue, or None.

        Args:
            principal: the name of the caller.
            model: the name of the requested agent.
            messages: the messages of the client: the last message with tool calls, a result of each call, and
                perhaps more.
        """
        answered = _answers(messages)
        if answered is None:
            return None
        ids, after = answered
        if (kept := self._kept.get((principal, model, ids))) is None:
            return None
        return kept.resumed(after)


def _answers(messages: Sequence[Message]) -> tuple[frozenset[str], Sequence[Message]] | None:
    """Return the ids of the last calls and the messages after them, if each call has a result."""
    for place in range(len(messages) - 1, -1, -1):
        if calls := calls_of(messages[place]):
            ids = frozenset(call["id"] for call in calls)
            after = messages[place + 1 :]
            answered = {message.get("tool_call_id") for message in after if message["role"] == "tool"}
            later = any(message["role"] == "assistant" for message in after)
            return None if later or not ids <= answered else (ids, after)
    return None


def _with_own_id(message: Message, own_ids: Mapping[str, str]) -> Message:
    if message["role"] != "tool":
        return message
    answered = message.get("tool_call_id") or ""
    return cast(Message, {**message, "tool_call_id": own_ids.get(answered, answered)})


def _transcript(result: RunResult[Any]) -> list[Message]:
    """Return the messages for the active agent when it is resumed.

    After a handoff these are the messages that it was shown, and not the whole transcript, so that the effect
    of an input filter remains.
    """
    whole = result.to_input_list()
    if not any(record.taken for record in result.handoffs):
        return whole
    last = result.calls[-1]
    family = next((item.origin for item in reversed(result.items) if item.kind == "model"), None)
    growing = with_notes_marked(last.shown.growing[: last.shown.count])
    shown = [_marked(message, family) for message in growing]
    asked = max(place for place, message in enumerate(whole) if calls_of(message))
    return [*shown, *whole[asked:]]


def _marked(message: Message, family: str | None) -> Message:
    """Mark a message that only models of a provider family can read, as `RunResult.to_input_list` does."""
    if family is None or message["role"] != "assistant" or message == portable(message):
        return message
    return cast(Message, {**message, ORIGIN: family})
