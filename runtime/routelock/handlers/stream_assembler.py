"""Assembly of chat-completions chunks into events and one complete message; no I/O, no vendor imports.

Streams differ more between vendors than their documentation says. These rules come from 202 recorded streams
with tool calls, and from the public issues named beside them:

1. A delta belongs to the call with its index; without an index, to the call of the delta before. The index
   may be missing at first (SamSaffron/term-llm pull 314).
2. A delta whose id is known already belongs to the call with that id, so interleaved calls need no index.
3. A delta with a name and a new id opens another call even if the index is the same (litellm gives
   every call index 0 when the vendor sends none; BerriAI/litellm pull 37792).
4. Where ids are missing, a delta with another name, or with a second JSON object, opens another
   call (Ollama sends whole calls without ids: ollama/ollama 6708, google/adk-python 665).
5. The first id that is not empty counts; arguments are appended, an object as JSON text. A name is often
   repeated (NousResearch/hermes-agent 8259). It seldom comes in pieces, and then before the arguments
   (continuedev/continue pull 5849). ``{}`` before the arguments is dropped (BerriAI/litellm 4537).
6. All other keys are kept, because a provider must get back what it sent.

Whether a reply has calls is read from the calls alone; the finish reason is passed on and not relied on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, cast

from routelock._sendable import is_utf8, sendable
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.history.messages import Message, ToolCall, text_of
from routelock.usage import to_usage

__all__ = [
    "Assembler",
    "Pieces",
    "add_blocks",
    "completion_done",
    "join_surrogates",
    "joined",
    "merge",
    "why_incomplete",
]


_Json = Mapping[str, Any]

_REPEATED_KEYS = frozenset(
    ("id", "type", "role", "name", "index", "format", "status", "signature", "channel", "phase", "object")
)
"""A vendor repeats the strings under these keys in each piece; it does not continue them."""

_STREAMED_TYPES = frozenset(("thinking", "reasoning.text", "reasoning.summary"))
"""Blocks of these types arrive in pieces; a block of any other type arrives complete."""


class Pieces(list[str]):
    """Text that arrives in pieces. It is joined once, at the end, so long streams stay linear."""

    __slots__ = ()


def merge(into: dict[str, Any], key: str, value: object) -> None:
    """Add the next piece of a value to ``into[key]``; an empty piece adds nothing."""
    if not value and value in (None, "", [], {}):
        return
    held: object = into.get(key)
    if isinstance(value, Mapping):
        branch = dict(cast("_Json", held)) if isinstance(held, dict) else {}
        _merge_others(branch, cast("_Json", value))
        if not branch:  # {"refusal": None}, which litellm adds to whole replies and not to streamed ones
            return
        value = branch
    elif _is_list(value):
        if _is_list(held):
            held.extend(value)
            return
        value = [*value]
    elif isinstance(value, str) and key not in _REPEATED_KEYS and isinstance(held, str | Pieces):
        value = _extended(held, value)
    into[key] = value


def _merge_others(into: dict[str, Any], source: _Json, known: Collection[str] = ()) -> None:
    """Merge every key of ``source`` except the ``known`` ones."""
    for key, value in source.items():
        if key not in known:
            merge(into, key, value)


def add_blocks(blocks: list[dict[str, Any]], more: Iterable[_Json] | None, text: str) -> str:
    """Add reasoning blocks to ``blocks``; a piece of the last block is merged into it.

    Args:
        blocks: the blocks so far; the list grows.
        more: the new blocks, or None.
        text: the key of a block's text, such as ``"thinking"``.

    Returns:
        The new text.
    """
    fresh = ""
    for block in more or ():
        fresh += str(block.get(text) or "")
        if blocks and _continues(blocks[-1], block):
            _merge_others(blocks[-1], block)
        else:
            blocks.append(_growing_copy(block))
    return fresh


def _continues(last: _Json, block: _Json) -> bool:
    """Whether ``block`` is the next piece of ``last``. A signature closes its block."""
    same = last.get("type") == block.get("type") and last.get("index") == block.get("index")
    return same and block.get("type") in _STREAMED_TYPES and not last.get("signature")


def _growing_copy(block: _Json) -> dict[str, Any]:
    """Return a copy of a block whose lists may grow; the chunk's own lists stay as they are."""
    return {key: [*part] if isinstance(part, list) else part for key, part in block.items()}


def join_surrogates(pieces: Iterable[str]) -> str:
    """Join pieces of text, and both halves of a character that was split between two pieces.

    Servers that split by UTF-16 units send one half of an emoji (U+D83D) and the other half with the next
    piece. A half without its other half stays as it is.
    """
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def joined(value: _Json) -> dict[str, Any]:
    """Return a plain dict in which every `Pieces` is one text."""
    return {key: _join(part) for key, part in value.items()}


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and not isinstance(value, Pieces)


def _join(value: object) -> object:
    if isinstance(value, Pieces):
        return join_surrogates(value)
    return joined(cast("_Json", value)) if isinstance(value, dict) else value


def _extended(held: str | Pieces, value: str) -> Pieces:
    pieces = held if isinstance(held, Pieces) else Pieces((held,))
    pieces.append(value)
    return pieces


_decoder = json.JSONDecoder()


def _as_text(arguments: object) -> str:
    """Return tool-call arguments as text; some vendors send an object."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def _begins_another_object(written: list[str], more: str) -> bool:
    """Whether ``more`` begins another JSON object, after a complete one."""
    # checking both ends first keeps calls that repeat their name linear
    if not written or not more.lstrip().startswith("{") or not written[-1].rstrip().endswith("}"):
        return False
    return _is_json("".join(written))


def _complete_arguments(pieces: list[str]) -> str:
    """Join the arguments of one call, without repetitions of the vendor; broken JSON stays as it came.

    * An empty object before another object is dropped: an Anthropic block begins with it, and some gateways
      pass that on (BerriAI/litellm 4537).
    * One object that is sent several times, complete or in pieces, counts once; no valid JSON text is another
      text repeated. litellm 1.105 repeats the object where it simulates a stream (xAI's Responses), see also
      google/adk-python 665.
    """
    if len(pieces) > 1 and pieces[0].strip() == "{}" and pieces[1].lstrip().startswith("{"):
        pieces = pieces[1:]
    text = join_surrogates(pieces)
    if "}{" not in text:
        return text
    try:
        _, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return text
    times, rest = divmod(len(text), end)
    return text[:end] if not rest and text == text[:end] * times else text


def _is_json(text: str) -> bool:
    """Whether Python can parse the text as JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # JSON that is nested too deep cannot be used either
        return False
    return True


_MESSAGE_KEYS = frozenset(("role", "content", "tool_calls", "function_call"))

_ASSEMBLED_KEYS = _MESSAGE_KEYS | {"thinking_blocks", "reasoning_details"}

_FIRST_HALF, _LAST_FIRST_HALF = "\ud800", "\udbff"
"""The range of UTF-16's high surrogates, the first halves of characters."""

_SIGNATURE_MARK = "__thought__"
"""litellm hides a Gemini thought signature in the call id behind this mark."""


@dataclass(slots=True)
class _Call:
    """A tool call of which pieces are still arriving."""

    place: int
    numbered: bool
    """Whether the vendor gave the call an index."""
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=lambda: [])
    extra: dict[str, Any] = field(default_factory=lambda: {})
    function_extra: dict[str, Any] = field(default_factory=lambda: {})
    signature: str = ""

    @property
    def server_side(self) -> bool:
        """Whether Anthropic runs this call itself; the run must not answer it (litellm passes it on)."""
        return self.id.startswith("srvtoolu_")

    def set_id(self, call_id: str) -> None:
        self.id, _, self.signature = call_id.partition(_SIGNATURE_MARK)

    def add_name(self, name: str) -> None:
        """Add a name, or the next piece of one."""
        if not self.name or (self.id and name != self.name and not self.arguments):
            self.name += name

    def is_followed_by(self, name: str, arguments: str) -> bool:
        """Whether a delta without an id of its own begins another call."""
        if not name or not self.name:
            return False
        if self.id and self.numbered and not self.arguments:
            return False  # the next piece of this call's name
        if name != self.name:
            return not self.arguments or _is_json("".join(self.arguments))
        return _begins_another_object(self.arguments, arguments)

    def append(self, arguments: str) -> None:
        again = _begins_another_object(self.arguments, arguments)
        if not (again and "".join(self.arguments) == arguments):
            self.arguments.append(arguments)

    def done(self) -> ToolCall:
        function = {"name": self.name, "arguments": _complete_arguments(self.arguments) or "{}"}
        call = {"id": self.id, "type": "function", "function": function | joined(self.function_extra)}
        call |= joined(self.extra)
        if self.signature:
            fields = cast("_Json", call.get("provider_specific_fields") or {})
            call["provider_specific_fields"] = {"thought_signature": self.signature, **fields}
        return cast(ToolCall, call)


class Assembler:
    """Assembles the chunks of one streamed reply into events and one complete message.

    Pass every chunk to `feed` in order, then call `done`. Use one assembler per reply. Arguments that are not
    valid JSON stay as they came: the run reports them to the model.
    """

    def __init__(self) -> None:
        self._content: list[Pieces | dict[str, Any]] = []
        self._text: Pieces | None = None
        """The last part of the content, if it is text."""
        self._half = ""
        """The first half of a character whose second half has not arrived yet."""
        self._extra: dict[str, Any] = {}
        self._thinking: list[dict[str, Any]] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_Call] = []
        self._client_calls = 0
        """How many of the calls are not `_Call.server_side`."""
        self._by_index: dict[object, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._usage: _Json | None = None
        self._parts = 0
        """How many chunks carried a part of the message so far."""
        self._parts_before_usage = -1
        """The value of ``_parts`` when the usage arrived."""
        self._finish: str | None = None
        self._model: str | None = None
        self._id: str | None = None

    @property
    def finished(self) -> bool:
        """Whether a finish reason has arrived."""
        return self._finish is not None

    @property
    def counted(self) -> bool:
        """Whether usage arrived, and no part of the message after it: then the message is whole."""
        return self._parts == self._parts_before_usage

    def feed(self, chunk: _Json) -> list[HandlerEvent]:
        """Add the next chunk and return its events.

        Args:
            chunk: a ``chat.completion.chunk`` as a dict, or a whole ``chat.completion``. ``choices`` may be
                empty or missing; choices after the first are ignored.
        """
        events: list[HandlerEvent] = []
        self.take(chunk, events)
        return events

    def take(self, chunk: _Json, events: list[HandlerEvent]) -> None:
        """Add the next chunk and append its events to ``events``; see `feed`."""
        if (choice := self._take_head(chunk)) is not None:
            delta = choice["delta"] if "delta" in choice else _as_delta(choice.get("message"))
            self._take_delta(delta, events)

    def take_whole(self, completion: _Json) -> None:
        """Add a whole ``chat.completion``."""
        if (choice := self._take_head(completion)) is not None:
            # Perplexity sends an empty delta beside the message
            self._take_delta(_as_delta(choice.get("message")) or choice.get("delta"), [])

    def _take_head(self, chunk: _Json) -> _Json | None:
        """Take in all but the message, and return the choice that holds the message."""
        if usage := chunk.get("usage"):
            self._usage, self._parts_before_usage = usage, self._parts
        if not self._model:
            self._model = chunk.get("model")
        if not self._id:
            self._id = chunk.get("id")
        choice = _first_choice(chunk.get("choices"))
        if choice is not None and (reason := choice.get("finish_reason")):
            self._finish = reason
        return choice

    def done(self) -> MessageDone:
        """Return the complete message of all chunks so far."""
        calls: list[ToolCall] = []
        server_calls: list[ToolCall] = []
        for call in self._calls:
            (server_calls if call.server_side else calls).append(call.done())
        content = self._joined_content()
        message: dict[str, Any] = {"role": "assistant", "content": None if calls and not content else content}
        if self._extra:
            message |= joined(self._extra)
        if self._thinking:
            message["thinking_blocks"] = [joined(block) for block in self._thinking]
        if self._details:
            message["reasoning_details"] = [joined(block) for block in self._details]
        if calls:
            message["tool_calls"] = calls
        if server_calls:
            fields = cast("_Json", message.get("provider_specific_fields") or {})
            message["provider_specific_fields"] = {**fields, "server_tool_calls": server_calls}
        return MessageDone(
            message=cast(Message, message),
            usage=to_usage(self._usage),
            finish_reason=self._finish,
            model=self._model or None,
            response_id=self._id or None,
        )

    def _take_delta(self, delta: _Json | None, events: list[HandlerEvent]) -> None:
        if not delta:
            return
        self._parts += 1
        self._take_other_keys(delta, events)
        if content := delta.get("content"):
            self._take_content(content, events)
        calls: Iterable[_Json] | None = delta.get("tool_calls")
        # Snowflake sends a function_call whose values are empty texts
        if not calls and (legacy := delta.get("function_call")) and any(legacy.values()):
            calls = ({"index": "function_call", "function": legacy},)
        for call in calls or ():
            self._take_call(call, events)

    def _take_other_keys(self, delta: _Json, events: list[HandlerEvent]) -> None:
        has_others = False
        for key, value in delta.items():
            if value and key not in _MESSAGE_KEYS:
                has_others = True
                if key not in _ASSEMBLED_KEYS:
                    merge(self._extra, key, value)
        if not has_others:
            return
        thoughts = add_blocks(self._thinking, delta.get("thinking_blocks"), "thinking")
        details = add_blocks(self._details, delta.get("reasoning_details"), "text")
        # vendors often send the same reasoning under two keys; it makes one event
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or thoughts or details
        if reasoning and isinstance(reasoning, str):
            events.append(ReasoningDelta(reasoning))

    def _take_content(self, content: str | Sequence[_Json], events: list[HandlerEvent]) -> None:
        if isinstance(content, str):
            self._add_visible_text(content, events)
            return
        for part in content:  # Mistral streams lists of parts when it thinks
            kind, text = part.get("type"), text_of(cast(Message, {"content": [part]}))
            if kind == "text" and len(part) == 2:
                self._add_text(text)
            else:
                self._add_part(part)
            if text:
                events.append(TextDelta(text=text))
            elif kind == "thinking":
                thought = text_of(cast(Message, {"content": part.get("thinking")}))
                events.append(ReasoningDelta(thought))

    def _add_visible_text(self, text: str, events: list[HandlerEvent]) -> None:
        """Add text and its event; half a character at the end waits for the other half."""
        self._add_text(text)
        if self._half or not is_utf8(text):
            text = join_surrogates((self._half, text))
            self._half = text[-1] if _FIRST_HALF <= text[-1] <= _LAST_FIRST_HALF else ""
            text = sendable(text[:-1] if self._half else text)
        if text:
            events.append(TextDelta(text=text))

    def _add_text(self, text: str) -> None:
        if self._text is None:
            self._text = Pieces()
            self._content.append(self._text)
        self._text.append(text)

    def _add_part(self, part: _Json) -> None:
        self._text = None
        last = self._content[-1] if self._content else None
        if isinstance(last, dict) and _continues(last, part):
            _merge_others(last, part)
        else:
            self._content.append(_growing_copy(part))

    def _joined_content(self) -> str | list[dict[str, Any]]:
        if not self._content:
            return ""
        first = self._content[0]
        if first is self._text and isinstance(first, Pieces):
            return join_surrogates(first)
        return [
            joined(part) if isinstance(part, dict) else {"type": "text", "text": join_surrogates(part)}
            for part in self._content
        ]

    def _take_call(self, delta: _Json, events: list[HandlerEvent]) -> None:
        function: _Json = delta.get("function") or {}
        arguments = _as_text(function.get("arguments"))
        call_id: str = delta.get("id") or ""
        name: str = function.get("name") or ""
        call = self._call_for(delta.get("index"), call_id.partition(_SIGNATURE_MARK)[0], name, arguments)
        if call_id and not call.id:
            call.set_id(call_id)
            self._client_calls -= call.server_side
            self._by_id.setdefault(call.id, call)
        if name:
            call.add_name(name)
        if arguments:
            call.append(arguments)
        _merge_others(call.extra, delta, ("index", "id", "type", "function"))
        _merge_others(call.function_extra, function, ("name", "arguments"))
        if not call.server_side:
            events.append(ToolCallDelta(call.place, call.id, call.name, arguments))

    def _call_for(self, index: object, call_id: str, name: str, arguments: str) -> _Call:
        call = self._by_index.get(index) if index is not None else self._last
        if call is None:
            return self._without_index(index, call_id, name) or self._open(index)
        if call_id and call.id:
            if call_id == call.id:
                return call
            return self._by_id.get(call_id) or (self._open(index) if name else call)
        return self._open(index) if call.is_followed_by(name, arguments) else call

    def _without_index(self, index: object, call_id: str, name: str) -> _Call | None:
        """Return the call that began without an index, if this delta continues it."""
        call = self._by_id.get(call_id) if call_id else None if name else self._last
        if call is None or call.numbered:
            return None
        self._by_index[index], call.numbered = call, True
        return call

    @property
    def _last(self) -> _Call | None:
        return self._calls[-1] if self._calls else None

    def _open(self, index: object) -> _Call:
        call = _Call(self._client_calls, numbered=index is not None)
        self._calls.append(call)
        self._client_calls += 1
        if index is not None:
            self._by_index[index] = call
        return call


def completion_done(completion: _Json) -> MessageDone:
    """Return the reply of a non-streaming ``chat.completion`` dict, assembled like a stream."""
    assembler = Assembler()
    assembler.take_whole(completion)
    return assembler.done()


def why_incomplete(done: MessageDone, *, ended: bool = False, counted: bool = True) -> str | None:
    """Return the reason why a streamed reply may be incomplete, or None if it is complete.

    A finish reason proves that a reply is complete. So does usage that comes last: some gateways send that
    and never a finish reason. Other gateways send usage with each chunk (vllm-project/vllm 6540), which
    proves nothing. Without either, the stream must say that it has ended. Otherwise cut text would pass for
    complete text, and a call whose arguments have not begun for a call without arguments.

    Args:
        done: the assembled reply.
        ended: whether the stream said that it has ended (``data: [DONE]``). Then text is complete, and so are
            calls whose arguments are valid JSON.
        counted: whether the usage came last, see `Assembler.counted`.
    """
    if done.finish_reason or (done.usage and counted):
        return None
    calls = done.message.get("tool_calls")
    if not calls:
        text = done.message.get("content")
        return None if ended and text else "text that may be cut" if text else "nothing"
    for call in calls:
        if not _is_json(call["function"]["arguments"]):
            return f"half of the arguments of {call['function']['name'] or 'a call'!r}"
    return None if ended else "calls that may be cut"


def _first_choice(choices: Sequence[_Json] | None) -> _Json | None:
    for choice in choices or ():
        if not choice.get("index"):
            return choice
    return None


def _as_delta(message: _Json | None) -> _Json | None:
    # the calls of a whole message have no index; their order is their index
    if not message or not message.get("tool_calls"):
        return message
    numbered = [{**call, "index": place} for place, call in enumerate(message["tool_calls"])]
    return {**message, "tool_calls": numbered}
