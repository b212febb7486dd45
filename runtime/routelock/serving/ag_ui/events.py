"""The events of one run. This module does no input or output.

Each reply of a model is a message of its own, and its calls belong to that message. Transfers are not
calls here: a step ends and another begins, and an event of the application's own kind has the reason.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from routelock._sendable import is_utf8, sendable, sendable_json
from routelock.handlers.events import AttemptFailed, MessageDone, ToolCallDelta
from routelock.history.messages import Message, ToolCall, calls_of
from routelock.run.events import (
    AgentUpdated,
    HandoffFailed,
    HandoffOccurred,
    HandoffReturned,
    NestedEvent,
    RunEvent,
    ToolOutput,
)
from routelock.run.result import RunResult
from routelock.serving.ag_ui.interrupts import Interrupt
from routelock.serving.ag_ui.subagents import Subagents
from routelock.serving.completions import Delta, DeltaWriter
from routelock.serving.errors import Refusal
from routelock.usage import Usage

__all__ = ["RunEvents"]


_Event = dict[str, Any]

_VERSION = "1.0"

_FAILURES = ("raised", "timeout", "output")
"""Kinds of errors whose text may come from an exception of the app's code."""


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


class _Messages:
    """Makes the events of texts and of reasoning."""

    def __init__(self) -> None:
        self._reply = ""
        """The id of the message of the current reply; empty before it has one."""
        self._has_text = False
        """Whether the current reply has text."""
        self._texts = 0
        """How many replies had text before."""
        self._open: tuple[str, str] | None = None
        """The kind and the id of the open message."""

    @property
    def reply(self) -> str:
        """The id of the message of the current reply."""
        self._reply = self._reply or _new_id("msg")
        return self._reply

    def add(self, deltas: Iterable[Delta], agent: str) -> list[_Event]:
        """Return the events of some deltas of an agent."""
        events: list[_Event] = []
        for delta in deltas:
            if text := delta.get("reasoning_content"):
                events += self._opened("REASONING_MESSAGE", agent)
                events.append(self._content(text))
            if text := delta.get("content") or delta.get("refusal"):
                if not self._has_text and self._texts:  # a chat completion has a blank line between texts
                    text = text.removeprefix("\n\n")
                self._has_text = True
                events += self._opened("TEXT_MESSAGE", agent)
                events.append(self._content(text))
        return events

    def close(self) -> list[_Event]:
        """End the open message."""
        if self._open is None:
            return []
        (kind, name), self._open = self._open, None
        ends = [f"{kind}_END", *(["REASONING_END"] if kind == "REASONING_MESSAGE" else [])]
        return [{"type": each, "messageId": name} for each in ends]

    def end_reply(self) -> list[_Event]:
        """End the current reply. The next text is another message."""
        self._texts += self._has_text
        self._reply, self._has_text = "", False
        return self.close()

    def _opened(self, kind: str, agent: str) -> list[_Event]:
        if self._open is not None and self._open[0] == kind:
            return []
        events = self.close()
        name = self.reply if kind == "TEXT_MESSAGE" else _new_id("reasoning")
        self._open = (kind, name)
        if kind == "REASONING_MESSAGE":
            begun = {"type": "REASONING_START", "messageId": name}
            return [*events, begun, {"type": f"{kind}_START", "messageId": name, "role": "reasoning"}]
        said_by = {"name": agent} if agent else {}
        return [*events, {"type": f"{kind}_START", "messageId": name, "role": "assistant", **said_by}]

    def _content(self, text: str) -> _Event:
        kind, name = self._open or ("", "")
        return {"type": f"{kind}_CONTENT", "messageId": name, "delta": text}


@dataclass(slots=True)
class _Piece:
    """A call of which pieces are still arriving."""

    shown: str
    """The id that the client is given."""
    name: str = ""
    """Empty until the client was sent the name."""
    arguments: str = ""
    sent: str = ""


class _Calls:
    """Makes the events of calls and their results.

    The client is given ids of its own: those of models repeat ("call_0") in a conversation.

    Args:
        is_hidden: whether the client is not shown the calls of a tool.
        shown: ids of calls that the client knows, by the ids of the run.
    """

    def __init__(self, is_hidden: Callable[[str], bool], shown: Mapping[str, str]) -> None:
        self._is_hidden = is_hidden
        self.shown = dict(shown)
        self._pieces: dict[int, _Piece] = {}
        self.open: list[str] = []
        """The calls of this run without a result, by the ids of the client."""

    def add(self, delta: ToolCallDelta, parent: str) -> list[_Event]:
        """Return the events of a piece of a call. A name is complete when the arguments begin."""
        piece = self._pieces.setdefault(delta.index, _Piece(_new_id("call")))
        # some vendors send an empty object before the arguments, or half of a character
        held = "" if piece.arguments.strip() == "{}" else piece.arguments
        piece.arguments = held + delta.arguments
        if self._is_hidden(delta.name) or piece.arguments.strip() in ("", "{}"):
            return []
        events = self._begun(piece, delta.name, parent)
        if is_utf8(piece.arguments):
            events += self._sent(piece, piece.arguments)
        return events

    def end_reply(self, message: Message, parent: str) -> list[_Event]:
        """Return the events of the calls of a complete reply that are still missing."""
        events: list[_Event] = []
        for index, call in enumerate(calls_of(message)):
            if not self._is_hidden(call["function"]["name"]):
                events += self._ended(self._pieces.get(index) or _Piece(_new_id("call")), call, parent)
        self._pieces.clear()
        return events

    def break_off(self) -> list[_Event]:
        """Return the events that end the calls of a reply that broke; they have no results."""
        begun = [piece.shown for piece in self._pieces.values() if piece.name]
        self._pieces.clear()
        return [{"type": "TOOL_CALL_END", "toolCallId": shown} for shown in begun]

    def result(self, event: ToolOutput) -> list[_Event]:
        """Return the event of a result; none if the client does not know the call.

        The client is not sent why a tool failed: it may be the server's own business.
        """
        if (shown := self.shown.get(event.call_id)) is None:
            return []
        if shown in self.open:
            self.open.remove(shown)
        about = {"metadata": {"routelock": {"error": event.error}}} if event.error else {}
        failed = event.error in _FAILURES
        content = f"Tool {event.name!r} failed." if failed else event.output
        said = {"messageId": _new_id("msg"), "toolCallId": shown, "content": sendable(content)}
        return [{"type": "TOOL_CALL_RESULT", **said, "role": "tool", **about}]

    def _ended(self, piece: _Piece, call: ToolCall, parent: str) -> list[_Event]:
        self.shown[call["id"]] = piece.shown
        self.open.append(piece.shown)
        events = self._begun(piece, call["function"]["name"], parent)
        events += self._sent(piece, sendable_json(call["function"].get("arguments") or "{}"))
        return [*events, {"type": "TOOL_CALL_END", "toolCallId": piece.shown}]

    def _begun(self, piece: _Piece, name: str, parent: str) -> list[_Event]:
        if piece.name:
            return []
        piece.name = name
        begun = {"toolCallId": piece.shown, "toolCallName": name, "parentMessageId": parent}
        return [{"type": "TOOL_CALL_START", **begun}]

    def _sent(self, piece: _Piece, arguments: str) -> list[_Event]:
        """Return the event of the new part of the arguments so far."""
        more = arguments.removeprefix(piece.sent) if arguments.startswith(piece.sent) else ""
        piece.sent += more
        return [{"type": "TOOL_CALL_ARGS", "toolCallId": piece.shown, "delta": more}] if more else []


class RunEvents:
    """Makes the events of one run.

    Args:
        thread: the client's id of the conversation.
        run: the client's id of the run.
        writer: makes the deltas of the run.
        is_hidden: whether the client is not shown the calls of a tool.
        is_current: whether the client knows the additions of version 1.0; an older one fails on them.
        shown: ids of calls that the client knows, by the ids of the run.
    """

    def __init__(
        self,
        thread: str,
        run: str,
        *,
        writer: DeltaWriter,
        is_hidden: Callable[[str], bool],
        is_current: bool,
        shown: Mapping[str, str],
    ) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._is_current = is_current
        self._deltas = writer
        self._messages, self._calls, self._subagents = _Messages(), _Calls(is_hidden, shown), Subagents()
        self._agent = ""

    @property
    def shown(self) -> Mapping[str, str]:
        """The ids of the calls that the client knows, by the ids of the run."""
        return self._calls.shown

    def begin(self, agent: str | None = None) -> list[_Event]:
        """Return the first events.

        Args:
            agent: the active agent of a run that goes on; the first event of any other run names it.
        """
        started = {"type": "RUN_STARTED", **self._ids, "protocolVersion": _VERSION}
        return [started, *([] if agent is None else self._step(agent))]

    def take(self, event: RunEvent) -> list[_Event]:
        """Return the events of an event of the run; many have none."""
        match event:
            case NestedEvent():
                return self._subagents.take(event, self.shown) if self._is_current else []
            case AgentUpdated(agent=agent):  # a reply that broke has no other end
                events = [*self._calls.break_off(), *self._messages.end_reply()]
                return [*events, *self._step(agent)]
            case ToolCallDelta():
                events = self._calls.add(event, self._messages.reply)
                return [*self._messages.close(), *events] if events else []
            case ToolOutput():
                return [*self._subagents.end(event.call_id), *self._calls.result(event)]
            case HandoffOccurred() | HandoffReturned() | HandoffFailed():
                return [_handoff_event(event)]
            case _:
                return self._reply_events(event)

    def finish(
        self, result: RunResult[Any], interrupts: Mapping[str, Interrupt], usage: Usage
    ) -> list[_Event]:
        """Return the last events of a run.

        Args:
            result: the result of the run.
            interrupts: the questions to the client, by id.
            usage: the usage of this run, without the run that it continues.
        """
        last, _ = self._deltas.finish(result)
        events = [*self._messages.add(last, self._agent), *self._messages.end_reply()]
        events += [*self._subagents.end_all(), *self._step("")]
        ended: _Event = {"type": "RUN_FINISHED", **self._ids}
        outcome = self._outcome(result, interrupts)
        if outcome is not None:
            ended["outcome"] = outcome
        if result.stop_reason == "done" and result.last_agent.output is not None:
            ended["result"] = to_jsonable_python(result.final_output, fallback=str, inf_nan_mode="strings")
        if usage.total_tokens:
            ended["usage"] = [_usage(usage)]
        return [*events, ended]

    def ask_again(self, interrupts: Mapping[str, Interrupt]) -> list[_Event]:
        """Return the events of a run that only repeats the questions of an earlier run."""
        outcome = {"type": "interrupt", "interrupts": _bodies(interrupts)}
        return [*self.begin(), {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}]

    def fail(self, refusal: Refusal, request_id: str) -> list[_Event]:
        """Return the event that ends a run that failed. The protocol has no place for the request's id."""
        return [{"type": "RUN_ERROR", "message": refusal.message, "code": refusal.code}]

    def _reply_events(self, event: RunEvent) -> list[_Event]:
        events = self._messages.add(self._deltas.take(event), self._agent)
        if isinstance(event, MessageDone):
            if calls := self._calls.end_reply(event.message, self._messages.reply):
                events += [*self._messages.close(), *calls]
            return [*events, *self._messages.end_reply()]
        return [*events, *self._messages.end_reply()] if isinstance(event, AttemptFailed) else events

    def _step(self, agent: str) -> list[_Event]:
        """End the step of the agent before, and begin that of an agent; none if it has no name."""
        ended, self._agent = self._agent, agent
        events = [{"type": "STEP_FINISHED", "stepName": ended}] if ended else []
        return [*events, *([{"type": "STEP_STARTED", "stepName": agent}] if agent else [])]

    def _outcome(self, result: RunResult[Any], interrupts: Mapping[str, Interrupt]) -> _Event | None:
        if interrupts:
            return {"type": "interrupt", "interrupts": _bodies(interrupts)}
        if not self._is_current:
            return None
        if result.stop_reason in ("limit", "stopped"):
            return {"type": "cancelled"}
        waiting = {"pendingToolCallIds": [*self._calls.open]} if self._calls.open else {}
        return {"type": "success", **waiting}


def _bodies(interrupts: Mapping[str, Interrupt]) -> list[_Event]:
    return [one.body(name) for name, one in interrupts.items()]


def _handoff_event(event: HandoffOccurred | HandoffReturned | HandoffFailed) -> _Event:
    status = {HandoffOccurred: "occurred", HandoffReturned: "returned", HandoffFailed: "failed"}[type(event)]
    # why one failed may be the server's own business
    reason = event.reason if isinstance(event, HandoffOccurred) else None
    value = {"status": status, "source": event.source, "target": event.target}
    return {
        "type": "CUSTOM",
        "name": "routelock:handoff",
        "value": {**value, **({"reason": sendable(reason)} if reason else {})},
    }


def _usage(usage: Usage) -> _Event:
    parts = {"cachedInputTokens": usage.cached_tokens, "reasoningTokens": usage.reasoning_tokens}
    return {
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": usage.total_tokens,
        **{name: count for name, count in parts.items() if count},
    }
