"""`ScriptedHandler`: a handler that answers from a list, for tests without a model or a network."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from typing_extensions import TypeIs

from routelock._callables import resolve
from routelock._text import clip
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import REQUEST_OBSERVER, Request, tool_name
from routelock.handlers.stream_assembler import Assembler
from routelock.history.messages import Message, ToolCall, calls_of, text_of
from routelock.history.vendor_calls import Citation, VendorCall, annotation_of, recorded_call
from routelock.usage import Usage

__all__ = [
    "Reply",
    "ScriptedHandler",
    "ScriptedReply",
    "UnexpectedModelCall",
    "UnusedReplies",
    "call",
    "reply",
    "watch_requests",
    "words",
]


def watch_requests(look: Callable[[Request], None] | None) -> None:
    """Call a function with every request of every run, for all handlers.

    It is one place to check all requests of a test suite. A retried call is shown again. The function is
    called for this task and for the tasks that it starts from now on; if it was set in ``pytest_configure``,
    for all tests. An exception of the function is raised in the run, where it may count as an error of the
    handler. So let the function collect the requests, and check them after each test.

    Args:
        look: called with each request before it is answered; None to stop.
    """
    REQUEST_OBSERVER.set(look)


DEFAULT_USAGE = Usage(requests=1, input_tokens=10, output_tokens=5)
"""The usage of a scripted reply: round numbers that are easy to add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """A reply with all its details; `reply` makes one in a line."""

    message: Message
    usage: Usage = DEFAULT_USAGE
    finish_reason: str | None = None
    """The finish reason; None for ``"tool_calls"`` if there are calls, else ``"stop"``."""
    model: str | None = None
    """The name of the model; None for the handler's name."""


Reply = (
    str
    | ScriptedReply
    | MessageDone
    | Exception
    | Mapping[str, Any]
    | Iterable[HandlerEvent | Exception | Mapping[str, Any]]
    | AsyncIterable[HandlerEvent]
    | Callable[[Request], Any]
)
"""A reply of a `ScriptedHandler`; its docstring explains each kind."""


class UnexpectedModelCall(AssertionError):
    """The code under test called the model more often than the script has replies."""


class UnusedReplies(AssertionError):
    """The script has replies left, or the model was called more often than it has replies."""


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str = "") -> ToolCall:
    """Return a tool call as a model would send it.

    Args:
        name: the tool's name, such as ``"transfer_to_billing"``.
        arguments: an object, or text that is sent unchanged (so it may be broken JSON).
        id: the call's id; if empty, the handler gives it an id that is new in the run.

    Raises:
        TypeError: ``arguments`` is neither.
    """
    given = cast(object, arguments)
    if not isinstance(given, Mapping | str | None):
        kind = type(given).__name__
        raise TypeError(f"call({name!r}, ...) takes an object or text, not {kind}: {{'name': value}}.")
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}))
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def reply(
    text: str | None = None,
    *,
    calls: Iterable[ToolCall] = (),
    vendor_calls: Iterable[VendorCall] = (),
    citations: Iterable[Citation] = (),
    reasoning: str = "",
    usage: Usage = DEFAULT_USAGE,
    finish_reason: str | None = None,
    model: str | None = None,
) -> ScriptedReply:
    """Return an assistant reply: ``reply("One moment.", calls=[call("look_up", {"id": 7})])``.

    Args:
        text: the text; None for a reply of calls only.
        calls: tool calls, each made by `call`.
        vendor_calls: calls of tools that the vendor runs, as its provider would report them.
        citations: sources of the text, as the provider would report them.
        reasoning: the text of the model's reasoning.
        usage: the tokens and the cost of the call.
        finish_reason: None for ``"tool_calls"`` if there are calls, else ``"stop"``.
        model: the name of the model; None for the handler's name.
    """
    message: Message = {"role": "assistant", "content": text}
    if ran := [recorded_call(each) for each in vendor_calls]:
        message["vendor_calls"] = ran
    if cited := [annotation_of(each) for each in citations]:
        message["annotations"] = cited
    if reasoning:
        message["reasoning_content"] = reasoning
    if listed := list(calls):
        message["tool_calls"] = listed
    return ScriptedReply(message=message, usage=usage, finish_reason=finish_reason, model=model)


def words(text: str) -> list[str]:
    """Split a text into words with the white space before them, as a streaming model might."""
    return re.findall(r"\s*\S+|\s+$", text)


class ScriptedHandler:
    """Answers each `Request` with the next of its replies, on asyncio and on trio.

    A reply may be:

    * a ``str``: the text of the answer;
    * a tool call from `call`, or a list of them;
    * a message dict, or what `reply` returns. Empty call ids are filled in: the same run always gets the
      same ids;
    * an ``Exception``: it is raised;
    * a `MessageDone`: it is yielded unchanged, with nothing filled in;
    * a list of handler events: they are yielded unchanged, even without a `MessageDone`. An exception in the
      list is raised at its position;
    * a list of chat-completions chunks: they are assembled like those of a provider;
    * a function of the `Request` that returns any of these, an awaitable of one, or an async iterator of
      events.

    If the request's ``stream`` is true, a reply of the first three kinds comes in pieces before its
    `MessageDone`.

    Args:
        replies: the replies, in order.
        name: the handler's name, and the model's name in results.
        family: the provider family whose private fields it can read, see `routelock.handlers.family_of`.
        pieces: splits the text of a streamed reply.
    """

    def __init__(
        self,
        replies: Iterable[Reply],
        *,
        name: str = "scripted",
        family: str | None = None,
        pieces: Callable[[str], Iterable[str]] = words,
    ) -> None:
        if isinstance(replies, str | Mapping):
            raise TypeError("ScriptedHandler takes a list of replies: write [reply] for a single one.")
        self.name = name
        self.family = family
        self.replies: list[Reply] = list(replies)
        for number, each in enumerate(self.replies, 1):
            _check_kind(number, each)
        self.requests: list[Request] = []
        """All requests so far, oldest first, with the messages as they were then."""
        self._pieces = pieces
        self._used_ids: set[str] = set()
        """The call ids that this handler has filled in; later requests may not show those of other runs."""

    def __repr__(self) -> str:
        used = min(len(self.requests), len(self.replies))
        return f"<ScriptedHandler {self.name!r}: {used} of {len(self.replies)} replies used>"

    async def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Answer one request.

        Raises:
            UnexpectedModelCall: the script has no reply left.
        """
        scripted = self._next(request)
        if callable(scripted):
            scripted = await resolve(scripted(request))
        if _is_stream(scripted):
            async with aclosing(_as_generator(scripted)) as events:
                async for event in events:
                    yield event
            return
        for scripted_event in self._events(scripted, request):
            if isinstance(scripted_event, Exception):
                raise scripted_event
            yield scripted_event

    def assert_complete(self) -> None:
        """Check that each reply was used, and that no call found the script empty.

        Raises:
            UnusedReplies: with the unused replies, or the number of surplus calls.
        """
        if left := self.replies[len(self.requests) :]:
            shown = "".join(f"\n  {_brief(scripted)}" for scripted in left)
            raise UnusedReplies(f"{len(left)} of {len(self.replies)} replies of {self.name!r} unused:{shown}")
        if surplus := len(self.requests) - len(self.replies):
            raise UnusedReplies(
                f"{self.name!r} was called {surplus} times after its last reply was used: script more."
            )

    def _next(self, request: Request) -> Reply:
        index = len(self.requests)
        snapshot = replace(request, messages=tuple(request.messages), tools=tuple(request.tools))
        self.requests.append(snapshot)
        if index >= len(self.replies):
            raise UnexpectedModelCall(_unexpected(self, request))
        return self.replies[index]

    def _events(self, scripted: Reply, request: Request) -> Iterable[HandlerEvent | Exception]:
        if isinstance(scripted, MessageDone | Exception):
            return (scripted,)
        if (events := _events_in(scripted)) is not None:
            return events
        done = self._done(_as_reply(scripted), request)
        return self._streamed(done) if request.stream else (done,)

    def _done(self, scripted: ScriptedReply, request: Request) -> MessageDone:
        message = _with_ids(scripted.message, request, self._used_ids)
        return MessageDone(
            message=message,
            usage=scripted.usage,
            finish_reason=scripted.finish_reason or ("tool_calls" if calls_of(message) else "stop"),
            model=scripted.model or self.name,
            response_id=f"{self.name}-{len(self.requests)}",
        )

    def _streamed(self, done: MessageDone) -> Iterator[HandlerEvent]:
        message = done.message
        if reasoning := message.get("reasoning_content"):
            yield ReasoningDelta(reasoning)
        for piece in self._pieces(text_of(message)):
            yield TextDelta(piece)
        for index, each in enumerate(calls_of(message)):
            function = each["function"]
            yield ToolCallDelta(index, each["id"], function["name"], function.get("arguments") or "")
        yield done


def _check_kind(number: int, scripted: object) -> None:
    if callable(scripted) or isinstance(scripted, _KINDS):
        return
    raise TypeError(
        f"Reply {number} of a ScriptedHandler is {type(scripted).__name__}: write a text, call(...), "
        "reply(...), a message, an error to raise, a list of calls or events, or a function "
        "that returns one of these."
    )


_KINDS = (str, Mapping, ScriptedReply, MessageDone, Exception, Iterable, AsyncIterable)


def _is_stream(scripted: Reply) -> TypeIs[AsyncIterable[HandlerEvent]]:
    return isinstance(scripted, AsyncIterable)


async def _as_generator(events: AsyncIterable[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
    if isinstance(events, AsyncGenerator):  # close the test's generator as soon as the reader leaves
        async with aclosing(cast("AsyncGenerator[HandlerEvent]", events)) as source:
            async for event in source:
                yield event
        return
    async for event in events:
        yield event


def _events_in(scripted: Reply) -> Iterable[HandlerEvent | Exception] | None:
    """Return the events of a reply that is a list of events or of chunks; None for other replies."""
    if isinstance(scripted, str | ScriptedReply | Mapping):
        return None
    items = list(cast("Iterable[Any]", scripted))
    if items and all(isinstance(item, Mapping) and "function" in item for item in items):
        return None
    if any(isinstance(item, Mapping) for item in items):
        return _assembled(items)
    return items


def _assembled(chunks: Sequence[Any]) -> Iterator[HandlerEvent | Exception]:
    assembler = Assembler()
    for chunk in chunks:
        if isinstance(chunk, Mapping):
            yield from assembler.feed(cast("Mapping[str, Any]", chunk))
        else:
            yield chunk
    yield assembler.done()


def _as_reply(scripted: Reply) -> ScriptedReply:
    if isinstance(scripted, ScriptedReply):
        return scripted
    if isinstance(scripted, str):
        return reply(scripted)
    if not isinstance(scripted, Mapping):
        return reply(calls=cast("Iterable[ToolCall]", scripted))
    message = cast("Mapping[str, Any]", scripted)
    if "function" in message:
        return reply(calls=[cast(ToolCall, scripted)])
    return ScriptedReply(message=cast(Message, {"role": "assistant", **message}))


def _with_ids(message: Message, request: Request, used_ids: set[str]) -> Message:
    """Return a message with ids for calls without one, such as ``call_3_0`` for the first call of turn 3.

    If an earlier call has such an id, the next free number takes the place of the turn.
    """
    calls = calls_of(message)
    if all(each.get("id") for each in calls):
        return message
    seen = used_ids.union(str(each.get("id")) for earlier in request.messages for each in calls_of(earlier))
    batch = request.turn
    while any(f"call_{batch}_{index}" in seen for index in range(len(calls))):
        batch += 1
    filled = [{**each, "id": each.get("id") or f"call_{batch}_{index}"} for index, each in enumerate(calls)]
    used_ids.update(str(each["id"]) for each in filled)
    return cast(Message, {**message, "tool_calls": filled})


def _unexpected(handler: ScriptedHandler, request: Request) -> str:
    last = _brief(request.messages[-1]) if request.messages else "no message"
    tools = [tool_name(tool) or str(tool.get("type", "?")) for tool in request.tools]
    count = len(handler.replies)
    replies = "reply" if count == 1 else "replies"
    return (
        f"Model call {len(handler.requests)} of {handler.name!r}, which has {count} {replies}. "
        f"Agent {request.agent!r} asked in turn {request.turn}, after {last}; tools offered: "
        f"{', '.join(tools) or 'none'}. Add a reply, or find out why the run goes on."
    )


def _brief(value: object) -> str:
    return clip(repr(value), 200)
