"""Making a handler of a function, once: afterwards nobody asks which kind of function it was."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from interlock.assembly import Assembler, completion_done
from interlock.callables import name_of
from interlock.errors import ConfigError, HandlerError
from interlock.events import (
    AttemptFailed,
    HandlerEvent,
    MessageDone,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from interlock.messages import Message, calls_of
from interlock.port import Handler, Request

__all__ = ["function_handler"]

_EVENTS = get_args(HandlerEvent)


def function_handler(
    function: Callable[[Request], Any], *, name: str | None = None, family: str | None = None
) -> Handler:
    """Return a handler that answers with an async function or async generator of the request.

    It may return or yield: text; a message dict; a chat-completions reply or its chunks, as dicts or
    as the objects of the openai and litellm packages; or interlock's own events. Text and chunks are
    put together into the complete message.

    Args:
        function: an ``async def``, with or without ``yield``; a partial or callable object of one.
        name: the handler's name; the function's own when left out.
        family: see `interlock.port.family_of`.

    Raises:
        ConfigError: the function is not async, so calling it would block every other run.
    """
    named = name or name_of(function)
    called = inspect.unwrap(getattr(function, "func", function))
    if not inspect.isroutine(called):
        called = type(called).__call__
    if not (inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)):
        raise ConfigError(f"Handler {named!r} must be an async function or async generator.")
    return _FunctionHandler(name=named, function=function, family=family or named)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FunctionHandler:
    name: str
    function: Callable[[Request], Any]
    family: str

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Yield what the function gives as events, and the complete message last."""
        reply = _Reply(self.name)
        async with aclosing(_pieces(self.function(request))) as pieces:
            async for piece in pieces:
                for event in reply.take(piece):
                    yield event
        if (done := reply.done()) is not None:
            yield done


async def _pieces(given: Any) -> AsyncGenerator[Any]:
    """Yield what a call of the function gives, one by one."""
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterable):
        yield given
        return
    iterator: AsyncIterator[Any] = aiter(cast(Any, given))
    try:
        async for piece in iterator:
            yield piece
    finally:
        await _close(iterator)


async def _close(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None) or getattr(iterator, "close", None)
    if close is not None:
        closing = close()
        if inspect.isawaitable(closing):
            await closing


@dataclass(slots=True)
class _Reply:
    """One reply of a function, whatever it is made of; all its pieces go into one message."""

    handler: str
    pieces: Assembler = field(default_factory=Assembler)
    begun: bool = False
    complete: bool = False
    """Whether the function gave the complete message itself."""

    def take(self, piece: Any) -> list[HandlerEvent]:
        """Return the events of one piece."""
        if isinstance(piece, str):
            self._feed({"content": piece})
            return [TextDelta(piece)]
        if isinstance(piece, _EVENTS):
            return self._take_event(cast(HandlerEvent, piece))
        if hasattr(piece, "model_dump"):
            piece = piece.model_dump(exclude_none=True)
        if isinstance(piece, Mapping) and any(key in piece for key in ("choices", "role", "usage")):
            return self._take_dict(cast("Mapping[str, Any]", piece))
        raise HandlerError(
            f"Handler {self.handler!r} gave {piece!r:.80}; give text, a message with a role, a "
            "chat-completions reply or chunk, or interlock's events."
        )

    def _feed(self, delta: Mapping[str, Any]) -> None:
        self.begun = True
        self.pieces.feed({"choices": [{"delta": delta}]})

    def _take_event(self, event: HandlerEvent) -> list[HandlerEvent]:
        match event:
            case TextDelta(text=text):
                self._feed({"content": text})
            case ReasoningDelta(text=text):
                self._feed({"reasoning_content": text})
            case ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments):
                function = {"name": name, "arguments": arguments}
                self._feed({"tool_calls": [{"index": index, "id": call_id, "function": function}]})
            case AttemptFailed():
                self.pieces, self.begun, self.complete = Assembler(), False, False
            case _:  # a MessageDone
                self.complete = True
        return [event]

    def _take_dict(self, piece: Mapping[str, Any]) -> list[HandlerEvent]:
        choices = piece.get("choices")
        if choices is None and "role" in piece:
            self.complete = True
            return [_message_done(cast(Message, piece))]
        if choices and "message" in choices[0]:
            self.complete = True
            return [completion_done(piece)]
        self.begun = True
        return self.pieces.feed(piece)

    def done(self) -> MessageDone | None:
        """Return the message that the pieces make, unless the function gave it itself."""
        if self.complete:
            return None
        if not self.begun:
            raise HandlerError(f"Handler {self.handler!r} ended without a reply.")
        return self.pieces.done()


def _message_done(message: Message) -> MessageDone:
    """Take a message as it is, unless its arguments are objects, as Ollama's own client gives them."""
    functions = [cast("Mapping[str, Any]", call.get("function") or {}) for call in calls_of(message)]
    if all(isinstance(function.get("arguments") or "", str) for function in functions):
        return MessageDone(message=message)
    return completion_done({"choices": [{"message": message}]})
