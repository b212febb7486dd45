"""Chat-completion bodies made from the events of a run. This module does no input or output.

A run can write several texts: before tool calls, before a handoff, and the answer. A client sees one message,
so its content is all of them, separated by blank lines. An answer that a guardrail or the output type refused
is left out, unless it was streamed before that. Agents with an ``output_type`` are an exception,
because their clients parse the content: if any agent of the graph has one, text is held until the end of the
run, and if the agent that answers has one, the content is its output alone.

Streamed and whole replies are made of the same deltas, so they differ in nothing else. Tool calls of the
server and handoffs make no deltas, because a client would try to run them. The extra key ``x_agent`` names
the agent that writes. Clients ignore an unknown key, but fail on events with an unknown name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from routelock._json import dicts_in
from routelock._sendable import is_utf8, sendable
from routelock.handlers.events import AttemptFailed, MessageDone, ReasoningDelta, TextDelta
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handlers.structured_output import json_in
from routelock.history.messages import Message, ToolCall, text_of
from routelock.run.events import (
    AgentUpdated,
    HandlerFallback,
    HandoffFailed,
    HandoffOccurred,
    HandoffReturned,
    RunEvent,
)
from routelock.run.result import RunResult
from routelock.run.unusable_output import is_output_of_app
from routelock.serving.errors import Refusal
from routelock.serving.message_annotations import MessageAnnotations
from routelock.usage import Usage

if TYPE_CHECKING:
    from routelock.serving.served_run import RunEnd

__all__ = ["ChatReply", "Completion", "Delta", "DeltaWriter", "refused_turns", "usage_body"]


Delta = dict[str, Any]
"""An addition to a reply, with the keys of a chat-completions message."""

_HALF, _LAST_HALF = "\ud800", "\udbff"
"""The first halves of characters that UTF-16 writes as two."""

_BLOCKS = (("thinking_blocks", "thinking"), ("reasoning_details", "text"))
"""Keys of lists of reasoning blocks, each with the key of the text in a block."""


@dataclass(slots=True)
class _Texts:
    """Joins texts with blank lines between them. White space alone is not a text."""

    begun: bool = False
    open: bool = False
    """Whether the current text has content."""
    blank: list[str] = field(default_factory=lambda: [])
    half: str = ""
    """The first half of a character whose second half has not come yet."""
    length: int = 0
    """How many characters were returned."""
    start: int = 0
    """The place where the current text begins among them, with the white space that was left out."""

    def add(self, piece: str) -> str:
        """Return the addition of a piece of the current text."""
        if self.half or not is_utf8(piece):
            piece = join_surrogates((self.half, piece))
            self.half = piece[-1] if _HALF <= piece[-1:] <= _LAST_HALF else ""
            piece = sendable(piece[:-1] if self.half else piece)
        return self._added(piece)

    def _added(self, piece: str) -> str:
        if self.open:
            self.length += len(piece)
            return piece
        self.blank.append(piece)
        if not piece or piece.isspace():
            return ""
        text = "".join(self.blank)
        said = "\n\n" + text.lstrip() if self.begun else text
        self.begun = self.open = True
        self.start = self.length + len(said) - len(text)
        self.length += len(said)
        return said

    def flush(self) -> str:
        """Return the held half of a character. Its other half does not come any more."""
        if not self.half:
            return ""
        half, self.half = self.half, ""
        return self._added(sendable(half))

    def close(self) -> str:
        """End the current text, and return the text that was held."""
        rest = self.flush()
        self.open = False
        self.blank.clear()
        return rest


class DeltaWriter:
    """Makes the deltas of one run.

    Args:
        agents: the names of the agents in the graph. The target of any other handoff is a handler.
        hold: whether to hold text until the end of the run, see the module.
        json_only: whether only the text of the last reply is sent, as the JSON that the client asked for.
            This needs ``hold``.
    """

    def __init__(self, *, agents: Collection[str] = (), hold: bool = False, json_only: bool = False) -> None:
        self._agents, self._json_only = agents, json_only
        self._hold = hold
        self._held: list[str] = []
        self._text = _Texts()
        self._reasoning = _Texts()
        self._annotations = MessageAnnotations()
        self._pieces: list[str] = []
        """The pieces of the current reply's text."""
        self._has_reasoning = False
        self._refusals: list[str] = []
        """The refusals of models; the app may have put an output in place of the last one."""
        self._agent = ""
        self._handler = ""
        """The handler of the agent, if it is known."""

    def take(self, event: RunEvent, now: Callable[[], RunResult[Any]] | None = None) -> list[Delta]:
        """Return the deltas of an event of the run; most events have none.

        Args:
            event: the event.
            now: returns the result so far. An event does not name the handler of an agent that becomes active
                again.
        """
        match event:
            case TextDelta(text=text):
                self._pieces.append(text)
                return _delta("reasoning_content", self._reasoning.flush()) + self._text_deltas(text)
            case ReasoningDelta(text=text):
                self._has_reasoning = True
                said = _delta("reasoning_content", self._reasoning.add(text))
                return _delta("content", self._text.flush()) + said
            case MessageDone(message=message):
                return self._reply_deltas(message)
            case AttemptFailed():
                return self._next_reply()
            case _:
                return self._speaker_deltas(event, now)

    def _speaker_deltas(self, event: RunEvent, now: Callable[[], RunResult[Any]] | None) -> list[Delta]:
        """Return a delta that names the agent and handler, if they have changed."""
        handler = self._handler
        match event:
            case AgentUpdated(agent=agent):
                broken = self._next_reply()  # no other event ends a reply that failed its agent
                self._agent, self._handler = agent, "" if now is None else now().last_handler
                return [*broken, {"content": "", "x_agent": {"agent": agent}}]
            case HandoffOccurred(target=target) if target not in self._agents:
                handler = target
            case HandlerFallback(next_handler=after):
                handler = after
            case HandoffReturned() | HandoffFailed() if now is not None:
                result = now()
                if result.last_agent.name != self._agent:  # the next event names it
                    return []
                handler = result.last_handler
            case _:
                pass
        if handler == self._handler:
            return []
        self._handler = handler
        return [{"content": "", "x_agent": {"agent": self._agent, "handler": handler}}]

    def replies(self, result: RunResult[Any]) -> Iterator[list[Delta]]:
        """Yield the deltas of each reply of a run that was not streamed, except those of `finish`."""
        handler, refused = "", refused_turns(result)
        for call in result.calls:
            deltas: list[Delta] = []
            if call.agent != self._agent:
                deltas += self.take(AgentUpdated(call.agent))
            elif call.handler != handler:
                deltas.append({"content": "", "x_agent": {"agent": call.agent, "handler": call.handler}})
            handler = call.handler
            if call.reply is not None and call.turn not in refused:
                deltas += self.take(call.reply)
            yield deltas
        if result.last_agent.name != self._agent:  # a limit ended the run before its first call
            yield self.take(AgentUpdated(result.last_agent.name))
        elif handler and result.last_handler != handler:
            yield [{"content": "", "x_agent": {"agent": self._agent, "handler": result.last_handler}}]

    def finish(self, result: RunResult[Any], calls: Sequence[ToolCall] = ()) -> tuple[list[Delta], str]:
        """Return the last deltas of a run and its finish reason.

        Args:
            result: the result of the run.
            calls: the calls of the client's own tools, with the ids for the client.
        """
        deltas: list[Delta] = []
        self._drop_refused(result)
        is_json = self._json_only or result.last_agent.output is not None
        if self._hold and result.stop_reason == "done" and is_json:
            self._held = [json_in(text) for text in self._held[-1:]]
        held, self._hold = self._held, False
        if is_output_of_app(result):
            before = held if result.last_agent.output is None else []
            held = [*before, _text_of_app(result)]
            if result.stop_reason == "done":
                del self._refusals[-1:]
        deltas += [{"refusal": refusal} for refusal in self._refusals]
        for text in held:
            deltas += self._text_deltas(text)
            self._annotations.add_held(text, self._text.start, self._text.length)
            deltas += _delta("content", self._text.close())
        deltas += self._annotations.deltas()
        for index, call in enumerate(calls):
            deltas += _call_deltas(index, call)
        return deltas, _finish_reason(result, calls)

    def _drop_refused(self, result: RunResult[Any]) -> None:
        """Drop the held answers of a stream after which the model was told to answer again."""
        refused = refused_turns(result)
        turns = [call.turn for call in result.calls if call.reply is not None]
        if refused and len(turns) == len(self._held):
            pairs = zip(turns, self._held, strict=True)
            self._held = [text for turn, text in pairs if turn not in refused]

    def _text_deltas(self, text: str) -> list[Delta]:
        return [] if self._hold else _delta("content", self._text.add(text))

    def _reply_deltas(self, message: Message) -> list[Delta]:
        """Return the deltas of a complete reply whose parts were not streamed."""
        deltas: list[Delta] = []
        if not self._has_reasoning:
            deltas += _delta("reasoning_content", self._reasoning.add(_reasoning_of(message)))
        if not self._pieces:
            deltas += self._text_deltas(text_of(message))
        if refusal := message.get("refusal"):
            self._refusals.append(str(refusal))
        if self._hold:
            self._held.append(text_of(message))
            self._annotations.hold(message)
            return deltas + self._next_reply()
        deltas += _delta("content", self._text.flush())
        if self._text.open:
            self._annotations.add(message, self._text.start, self._text.length)
            deltas += self._annotations.deltas()
        return deltas + self._next_reply()

    def _next_reply(self) -> list[Delta]:
        self._pieces.clear()
        self._has_reasoning = False
        rest = _delta("content", self._text.close())
        return rest + _delta("reasoning_content", self._reasoning.close())


def refused_turns(result: RunResult[Any]) -> Collection[int]:
    """Return the turns whose reply is no answer, because a guardrail or the output type refused it."""
    return {problem.turn for problem in result.errors if problem.kind == "output"}


def _reasoning_of(message: Message) -> str:
    """Return the reasoning text of a reply. An app's handler may put any value under these keys."""
    fields = cast("Mapping[str, Any]", message)
    texts = [said for key in ("reasoning_content", "reasoning") if isinstance(said := fields.get(key), str)]
    texts += [_text_in(fields.get(key), inside) for key, inside in _BLOCKS]
    # the same reasoning often comes under two keys; it is shown once
    first = next((text for text in texts if text), "")
    return first + _text_in(fields.get("content"), "thinking")


def _text_in(blocks: object, key: str) -> str:
    """Return the text of blocks under a key; a value may be a list of blocks."""
    found = [each.get(key) for each in dicts_in(blocks)]
    return "".join(each if isinstance(each, str) else _text_in(each, "text") for each in found)


def _delta(key: str, text: str) -> list[Delta]:
    return [{key: text}] if text else []


def _text_of_app(result: RunResult[Any]) -> str:
    """Return the app's output as a model would have written it."""
    if isinstance(output := result.final_output, str):
        return output
    plain: JsonValue = to_jsonable_python(output, fallback=str, inf_nan_mode="strings")
    wrapped = result.last_agent.output is not None and not isinstance(plain, dict)
    return json.dumps({"response": plain} if wrapped else plain)


def _call_deltas(index: int, call: ToolCall) -> Iterable[Delta]:
    """Yield the deltas of a call. Only the first has id and name: some clients append those of every
    delta.
    """
    function = call["function"]
    opened = {"name": function["name"], "arguments": ""}
    yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": opened}]}
    yield {"tool_calls": [{"index": index, "function": {"arguments": function.get("arguments") or "{}"}}]}


def _finish_reason(result: RunResult[Any], calls: Sequence[ToolCall]) -> str:
    if calls:
        return "tool_calls"
    if result.stop_reason == "limit":
        return "length"
    replies = result.raw_replies
    last = replies[-1].finish_reason if replies else None
    return last if last in ("length", "content_filter") else "stop"


def usage_body(usage: Usage) -> dict[str, Any]:
    """Return the usage of a run in the form of chat completions."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The fields that all chunks of one reply have in common."""

    id: str
    model: str
    created: int
    """Unix time in seconds."""

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        """Return one streamed chunk."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._body("chat.completion.chunk", [choice])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """Return the last chunk, for clients that asked for it: it has no choices."""
        return {**self._body("chat.completion.chunk", []), "usage": usage_body(usage)}

    def whole(self, deltas: Iterable[Delta], finish: str, usage: Usage) -> dict[str, Any]:
        """Return the whole reply that the deltas make."""
        choice = {"index": 0, "message": _message(deltas), "finish_reason": finish}
        return {**self._body("chat.completion", [choice]), "usage": usage_body(usage)}

    def _body(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }


_OPENING: Delta = {"role": "assistant", "content": ""}


class ChatReply:
    """Makes the chunks or the body of one chat completion; see `routelock.serving.served_run.ReplyForm`.

    Args:
        completion: the fields that all chunks have in common.
        include_usage: whether the client asked for the usage at the end of a stream.
    """

    def __init__(self, completion: Completion, *, include_usage: bool) -> None:
        self._completion, self._include_usage = completion, include_usage
        self._annotations: list[Any] = []

    def begin(self) -> Sequence[Mapping[str, Any]]:
        """Return the chunk with the role."""
        return [self._completion.chunk(_OPENING)]

    def take(self, deltas: Sequence[Delta], *, ends: bool) -> Sequence[Mapping[str, Any]]:
        """Return a chunk for each delta. Annotations come at the end, all in one chunk: some clients cannot
        append to a list.
        """
        chunks: list[Mapping[str, Any]] = []
        for delta in deltas:
            if "annotations" in delta:
                self._annotations += delta["annotations"]
            else:
                chunks.append(self._completion.chunk(delta))
        return chunks

    def finish(self, end: RunEnd) -> Sequence[Mapping[str, Any] | str]:
        """Return the last chunks."""
        chunks = [*self.take(end.deltas, ends=True)]
        if self._annotations:
            chunks.append(self._completion.chunk({"annotations": self._annotations}))
        chunks.append(self._completion.chunk({}, end.finish))
        if self._include_usage:
            chunks.append(self._completion.usage_chunk(end.result.usage))
        return chunks

    def close(self) -> Sequence[str]:
        """Return ``[DONE]``."""
        return ["[DONE]"]

    def whole(self, replies: Iterable[Sequence[Delta]], end: RunEnd) -> Mapping[str, Any]:
        """Return the body of a completion that is not streamed."""
        deltas = [delta for reply in replies for delta in reply]
        return self._completion.whole([*deltas, *end.deltas], end.finish, end.result.usage)

    async def keep(self) -> None:
        """Keep nothing: a client sends the whole conversation."""

    def fail(self, refusal: Refusal, request_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the event that ends a stream that failed. Clients raise on it: no ``[DONE]`` follows."""
        return [refusal.body(request_id)]


def _message(deltas: Iterable[Delta]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for delta in deltas:
        for key, value in delta.items():
            found.setdefault(key, []).append(value)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(found.get("content", ()))}
    for key in ("reasoning_content", "refusal"):
        if text := "".join(found.get(key, ())):
            message[key] = text
    if speakers := found.get("x_agent"):
        message["x_agent"] = speakers[-1]
    if annotations := found.get("annotations"):
        message["annotations"] = [*chain.from_iterable(annotations)]
    if calls := _calls(chain.from_iterable(found.get("tool_calls", ()))):
        message["tool_calls"] = calls
    if not message["content"] and (calls or "refusal" in message):
        message["content"] = None
    return message


def _calls(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for piece in pieces:
        if "id" in piece:
            calls.append({key: piece[key] for key in ("id", "type", "function")})
        else:
            calls[-1]["function"] = {**calls[-1]["function"], **piece["function"]}
    return calls
