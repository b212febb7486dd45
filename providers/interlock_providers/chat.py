"""One chat completion: the body goes out, what comes back becomes events. Carrying it is another's work.

Both handlers that speak to an HTTP API share this: `interlock_providers.openai.OpenAI` and
`interlock_providers.remote.RemoteAgent`. It knows no HTTP library: it is given a function that sends.
"""

from __future__ import annotations

import codecs
import json
import re
import reprlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import anyio

from interlock.assembly import Assembler, completion_done, why_incomplete
from interlock.errors import IncompleteResponse, ProviderError, ProviderTimeout, UnreadableResponse
from interlock.events import HandlerEvent, MessageDone
from interlock.port import Request, ToolChoice
from interlock.usage import Usage
from interlock_providers.answers import Answer, error_from_answer, shortened
from interlock_providers.bodies import MOST_BYTES, body_of
from interlock_providers.chunks import Chunks, UnreadableEvent, parsed
from interlock_providers.deadlines import Deadline
from interlock_providers.failures import to_provider_error
from interlock_providers.shapes import Shape
from interlock_providers.structured import Plan, as_answer, as_answer_event, plan_for
from interlock_providers.vendors import takes_schema_with_tools
from interlock_providers.wire import prepare, tools_for

__all__ = ["Chat", "Incoming", "Post", "Response"]

S = TypeVar("S")
T = TypeVar("T")
_Json = Mapping[str, Any]

_NOT_IN_THE_BODY = frozenset(("extra_headers", "extra_body", "tool_choice"))
_EVENTS = re.compile(rb"\s*(data:|event:|:)")
_CLOSING = 5.0  # seconds after which a connection that does not close is given up


class Response(Protocol):
    """What is needed of an answer of httpx or httpx2."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case find their value."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...


class Incoming(Protocol):
    """An answer whose body has not been read: an ``openai.AsyncStream`` that nobody iterates."""

    @property
    def response(self) -> Response:
        """Its status and headers, and the body to come."""
        ...

    async def close(self) -> None:
        """Give back the connection, or end it when something is left unread."""
        ...


Post = Callable[[_Json], Awaitable[Incoming]]
"""Sends a body, and returns the answer as soon as its headers are there."""


class Chat:
    """Asks one model at one endpoint, streamed or not, and reads what it says.

    Args:
        provider: who is asked, as errors are to name it.
        model: the model's name as the endpoint knows it.
        shape: what the endpoint demands of messages.
        timeout: seconds for one whole reply; None for no limit.
        chunk_timeout: seconds that a stream may be silent once it has begun; None for no limit.
        max_bytes: what one reply may have at most; None for no limit.
        needs_finish: whether a streamed reply is complete only with a finish reason, whatever else came.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        shape: Shape,
        timeout: float | None,
        chunk_timeout: float | None,
        max_bytes: int | None = MOST_BYTES,
        needs_finish: bool = False,
    ) -> None:
        self.provider = provider
        self.model = model
        self._shape = shape
        self._limits = (timeout, chunk_timeout)
        self._max_bytes = max_bytes
        self._needs_finish = needs_finish

    async def stream(self, request: Request, post: Post) -> AsyncGenerator[HandlerEvent]:
        """Send the request and yield the reply, its pieces first if it comes in pieces.

        Raises:
            ProviderError: whatever went wrong.
        """
        deadline = Deadline(*self._limits, provider=self.provider, model=self.model)
        native = not request.tools or takes_schema_with_tools(self.provider, self.model)
        plan = plan_for(request, native=native)
        body = self._body(request, plan)
        async with aclosing(self._exchange(body, request.stream, deadline, post)) as events:
            async for event in events:
                if isinstance(event, MessageDone):
                    yield as_answer(event, plan.answer_tool)
                elif (shown := as_answer_event(event, plan.answer_tool)) is not None:
                    yield shown

    async def _exchange(
        self, body: _Json, streams: bool, deadline: Deadline, post: Post
    ) -> AsyncGenerator[HandlerEvent]:
        incoming = await self._guarded(deadline.first, lambda: post(body), began=False)
        try:
            unknown = "event-stream" if streams and incoming.response.status_code == 200 else ""
            unpacked = body_of(incoming.response, self._unreadably_packed)
            received = _Received(unpacked, self._max_bytes, self._too_much)
            pieces: AsyncIterator[bytes] = received
            if "event-stream" not in incoming.response.headers.get("content-type", unknown):
                # not asked to stream, or the endpoint does not, or a proxy answers in its place
                answer = await self._guarded(deadline.first, received.all)
                if not _EVENTS.match(answer):
                    yield self._completion(answer)
                    return
                pieces = _once(answer)  # a stream under a wrong name
            async with aclosing(self._streamed(pieces, deadline)) as events:
                async for event in events:
                    yield event
        finally:
            with anyio.move_on_after(_CLOSING, shield=True):
                await incoming.close()

    async def _streamed(
        self, received: AsyncIterator[bytes], deadline: Deadline
    ) -> AsyncGenerator[HandlerEvent]:
        assembler = Assembler()
        wait = deadline.first
        async with aclosing(Chunks(received)) as chunks:
            while not chunks.ended:
                try:
                    more = await self._guarded(wait, chunks.more)
                except (IncompleteResponse, ProviderTimeout):
                    if not assembler.finished:
                        raise
                    break  # the message is whole: what is missing is how many tokens it had
                for chunk in more:
                    self._raise_if_failed(chunk)
                    for event in self._read(assembler.feed, chunk):
                        yield event
                wait = deadline.next
            if chunks.strange is not None:
                raise self._unreadable(chunks.strange)
            await chunks.drain()
            done = self._read(lambda _: assembler.done(), "its pieces together")
            yield self._checked(done, ended=chunks.marked, needs_finish=self._needs_finish)

    def _body(self, request: Request, plan: Plan) -> _Json:
        messages = prepare(request.messages, self._shape)
        tools = tools_for(messages, plan.tools, self._shape)
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if tools:
            body["tools"] = tools
            body["tool_choice"] = _tool_choice(plan.tool_choice)
        body["response_format"] = plan.response_format
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= {key: value for key, value in request.settings.items() if key not in _NOT_IN_THE_BODY}
        if not tools:
            body.pop("parallel_tool_calls", None)  # OpenAI refuses it without tools
        body |= request.settings.get("extra_body") or {}
        return {key: value for key, value in body.items() if value is not None}

    async def _guarded(
        self,
        wait: Callable[[Callable[[], Awaitable[T]]], Awaitable[T]],
        work: Callable[[], Awaitable[T]],
        *,
        began: bool = True,
    ) -> T:
        """Await one step of the call within its time; the library's errors become ours."""
        try:
            return await wait(work)
        except ProviderError:
            raise
        except UnreadableEvent as error:
            raise self._unreadable(error.said) from error
        except Exception as error:
            raise to_provider_error(error, provider=self.provider, model=self.model, began=began) from error

    def _completion(self, answer: bytes) -> MessageDone:
        completion = parsed(answer.removeprefix(codecs.BOM_UTF8))
        if not isinstance(completion, Mapping) or not completion:
            raise self._unreadable(answer)
        whole = cast("_Json", completion)
        self._raise_if_failed(whole)
        return self._checked(self._read(completion_done, whole), ended=True)

    def _read(self, work: Callable[[S], T], said: S) -> T:
        """Return what ``work`` makes of something that was said; it may have any shape."""
        try:
            return work(said)
        except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
            raise self._unreadable(said) from error

    def _raise_if_failed(self, said: _Json) -> None:
        """Find the error inside an answer that claimed success (OpenRouter and others)."""
        if error := self._read(_error_in, said):
            body = json.dumps({"error": error})
            raise error_from_answer(Answer(200, {}, body), provider=self.provider, model=self.model)

    def _checked(self, done: MessageDone, *, ended: bool, needs_finish: bool = False) -> MessageDone:
        missing = why_incomplete(done, ended=ended)
        if needs_finish and not missing and not done.finish_reason:
            missing = "no finish reason"
        if missing:
            raise IncompleteResponse(
                f"The reply of {self.provider} for model {self.model!r} ended too early: it holds {missing}. "
                "It is not a shorter answer but a part of one; the run may ask again.",
                provider=self.provider,
                model=self.model,
            )
        return done if done.usage else replace(done, usage=Usage(requests=1, estimated=True))

    def _unreadable(self, said: object) -> UnreadableResponse:
        if isinstance(said, bytes):
            said = said[:2000].decode("utf-8", "replace")
        text = said[:2000] if isinstance(said, str) else reprlib.repr(said)
        what = f"something that is not a chat completion: {shortened(text, 200)!r}" if text else "nothing"
        return UnreadableResponse(
            f"Asked for model {self.model!r}, {self.provider} sent {what}. Check that the URL is that of the "
            "API; the same request may pass later.",
            provider=self.provider,
            model=self.model,
        )

    def _unreadably_packed(self, why: str) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self.provider} for model {self.model!r} cannot be unpacked: {why}. Switch "
            "compression off for this URL.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )

    def _too_much(self) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self.provider} for model {self.model!r} has more than {self._max_bytes} bytes, "
            "so it was not read to its end. Raise max_bytes= if it may be that long.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )


class _Received:
    """The bytes of a body, counted, and handed on in whole lines as far as possible.

    A line that comes in a thousand pieces is put together once: reading an endless one stays linear.
    It is no generator, so that closing it always reaches the one inside, see `Chunks.aclose`.
    """

    def __init__(
        self, pieces: AsyncIterator[bytes], limit: int | None, too_much: Callable[[], Exception]
    ) -> None:
        self.inner = pieces
        self._limit = limit
        self._too_much = too_much
        self._count = 0

    def __aiter__(self) -> _Received:
        return self

    async def __anext__(self) -> bytes:
        held: list[bytes] = []
        while (piece := await self._piece()) is not None:
            held.append(piece)
            if b"\n" in piece or b"\r" in piece:
                break
        if not held:
            raise StopAsyncIteration
        return b"".join(held)

    async def all(self) -> bytes:
        """Return the whole body."""
        try:
            return b"".join([piece async for piece in self])
        finally:
            await Chunks(self).aclose()  # an httpx body that is left unread has to be unwound

    async def _piece(self) -> bytes | None:
        piece = await anext(self.inner, None)
        if piece is not None and self._limit is not None:
            self._count += len(piece)
            if self._count > self._limit:
                raise self._too_much()
        return piece


async def _once(piece: bytes) -> AsyncGenerator[bytes]:
    yield piece


def _error_in(said: _Json) -> object:
    error = said.get("error")
    for choice in said.get("choices") or ():
        if choice.get("finish_reason") == "error":
            error = error or choice.get("error") or {"message": "The provider gave up on the reply."}
    return error


def _tool_choice(choice: ToolChoice | None) -> str | _Json | None:
    if choice in (None, "auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}
