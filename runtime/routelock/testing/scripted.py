"""A handler that answers from a list: tests of agents need no model, no network and no patching."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast

from typing_extensions import TypeIs

from routelock._callables import resolve
from routelock.handlers.events import HandlerEvent, MessageDone, ReasoningDelta, TextDelta, ToolCallDelta
from routelock.handlers.port import Request
from routelock.handlers.retry import REQUEST_OBSERVER
from routelock.handlers.stream_assembler import Assembler
from routelock.history.messages import Message, ToolCall, calls_of, text_of
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
    """Show every request of every run to a function, too, whatever handler answers it.

    It is one place to check all that a suite sends. A call that is tried again is shown again. It holds for
    this task and those that it starts from now on; in a ``pytest_configure``, for all tests. What the
    function raises is raised in the run, where it may be taken for a handler's error: let it take notes, and
    look at them after each test.

    Args:
        look: what is called with each request before it is answered; None for nothing any more.
    """
    REQUEST_OBSERVER.set(look)


DEFAULT_USAGE = Usage(requests=1, input_tokens=10, output_tokens=5)
"""What a scripted reply is said to have consumed: round numbers that are easy to add up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """A reply whose details matter to the test; `reply` writes one in a line."""

    message: Message
    usage: Usage = DEFAULT_USAGE
    finish_reason: str | None = None
    """None: ``"tool_calls"`` when there are calls, else ``"stop"``."""
    model: str | None = None
    """None: the handler's name."""


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
"""What a `ScriptedHandler` can be told to answer; its docstring says what each of them does."""


class UnexpectedModelCall(AssertionError):
    """The code under test called the model more often than the script has replies."""


class UnusedReplies(AssertionError):
    """The script has replies left, or a model call came that it had no reply for."""


def call(name: str, arguments: Mapping[str, Any] | str | None = None, *, id: str = "") -> ToolCall:
    """Write one tool call as a model would.

    Args:
        name: the tool's name, such as ``"transfer_to_billing"``.
        arguments: an object, or text that is sent as it stands (so it may be broken JSON).
        id: the call's id; when empty, the handler gives it one that the run has not seen yet.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}))
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def reply(
    text: str | None = None,
    *,
    calls: Iterable[ToolCall] = (),
    reasoning: str = "",
    usage: Usage = DEFAULT_USAGE,
    finish_reason: str | None = None,
    model: str | None = None,
) -> ScriptedReply:
    """Write one assistant reply: ``reply("One moment.", calls=[call("look_up", {"id": 7})])``."""
    message: Message = {"role": "assistant", "content": text}
    if reasoning:
        message["reasoning_content"] = reasoning
    if listed := list(calls):
        message["tool_calls"] = listed
    return ScriptedReply(message=message, usage=usage, finish_reason=finish_reason, model=model)


def words(text: str) -> list[str]:
    """Split a text as a streaming model might: word by word, the white space kept."""
    return re.findall(r"\s*\S+|\s+$", text)


class ScriptedHandler:
    """Answers each `Request` with the next of its replies, on asyncio and on trio.

    A reply may be:

    * a ``str``: the text of the answer;
    * a tool call from `call`, or a list of them;
    * a message dict, or what `reply` returns. Call ids that are empty are filled in: the same run
      always gets the same ids;
    * an ``Exception``: it is raised;
    * a `MessageDone`: it is passed on as it is, with nothing filled in;
    * a list of handler events: they are passed on as they are, also without a `MessageDone`. An
      exception among them is raised at its place;
    * a list of chat-completions chunks: they are assembled as a provider's would be;
    * a function of the `Request` that returns any of these, or something to await for one, or an
      async iterator of events.

    When the request's ``stream`` is true, a reply of the first three kinds comes in pieces before
    its `MessageDone`.

    Args:
        replies: what to answer, in order.
        name: the handler's name, and the model's in results.
        family: whose private fields this handler can read, see `routelock.handlers.family_of`.
        pieces: how the text of a streamed reply is cut.
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
        self.requests: list[Request] = []
        """Every request so far, oldest first, with the messages as they were then."""
        self._pieces = pieces
        self._given: set[str] = set()
        """Call ids that it has filled in: a call of another run may not be shown any more."""

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
        """Check that the script was played to its end and no further.

        Raises:
            UnusedReplies: with the replies that were not used, or the number of calls too many.
        """
        if left := self.replies[len(self.requests) :]:
            shown = "".join(f"\n  {_brief(scripted)}" for scripted in left)
            raise UnusedReplies(f"{len(left)} of {len(self.replies)} replies of {self.name!r} unused:{shown}")
        if surplus := len(self.requests) - len(self.replies):
            raise UnusedReplies(f"{self.name!r} was called {surplus} times after its last reply was used.")

    def _next(self, request: Request) -> Reply:
        place = len(self.requests)
        snapshot = replace(request, messages=tuple(request.messages), tools=tuple(request.tools))
        self.requests.append(snapshot)
        if place >= len(self.replies):
            raise UnexpectedModelCall(_unexpected(self, request))
        return self.replies[place]

    def _events(self, scripted: Reply, request: Request) -> Iterable[HandlerEvent | Exception]:
        if isinstance(scripted, MessageDone | Exception):
            return (scripted,)
        as_it_stands = _listed(scripted)
        if as_it_stands is not None:
            return as_it_stands
        done = self._done(_as_reply(scripted), request)
        return self._streamed(done) if request.stream else (done,)

    def _done(self, scripted: ScriptedReply, request: Request) -> MessageDone:
        message = _with_ids(scripted.message, request, self._given)
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
        for index, made in enumerate(calls_of(message)):
            function = made["function"]
            yield ToolCallDelta(index, made["id"], function["name"], function["arguments"])
        yield done


def _is_stream(scripted: Reply) -> TypeIs[AsyncIterable[HandlerEvent]]:
    return isinstance(scripted, AsyncIterable)


async def _as_generator(events: AsyncIterable[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
    if isinstance(events, AsyncGenerator):  # close what the user wrote as soon as the reader leaves
        async with aclosing(cast("AsyncGenerator[HandlerEvent]", events)) as source:
            async for event in source:
                yield event
        return
    async for event in events:
        yield event


def _listed(scripted: Reply) -> Iterable[HandlerEvent | Exception] | None:
    """Return the events of a reply that is a list of events or of chunks, else None."""
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


def _with_ids(message: Message, request: Request, given: set[str]) -> Message:
    """Fill in call ids: by turn, which counts over all agents, and past those of earlier runs."""
    calls = calls_of(message)
    if all(made["id"] for made in calls):
        return message
    seen = given.union(str(made.get("id")) for earlier in request.messages for made in calls_of(earlier))
    batch = request.turn
    while any(f"call_{batch}_{index}" in seen for index in range(len(calls))):
        batch += 1
    filled = [{**made, "id": made["id"] or f"call_{batch}_{index}"} for index, made in enumerate(calls)]
    given.update(str(made["id"]) for made in filled)
    return cast(Message, {**message, "tool_calls": filled})


def _unexpected(handler: ScriptedHandler, request: Request) -> str:
    last = request.messages[-1] if request.messages else {"role": "nobody"}
    tools = [str(tool.get("function", {}).get("name", "?")) for tool in request.tools]
    return (
        f"Model call {len(handler.requests)} of {handler.name!r}, which has {len(handler.replies)} replies. "
        f"Agent {request.agent!r} asked in turn {request.turn}, after {_brief(last)}; tools offered: "
        f"{', '.join(tools) or 'none'}. Add a reply, or find out why the run goes on."
    )


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
