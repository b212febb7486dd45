"""One chat completion: the body goes out, what comes back becomes events. Carrying it is another's work.

Both handlers that speak to an HTTP API share this: `routelock_providers.OpenAI` and
`routelock_providers.RemoteAgent`. It knows no HTTP library: it is given a function that sends.
"""

from __future__ import annotations

import codecs
import json
import re
import reprlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import anyio

from routelock._json import sendable
from routelock.errors import IncompleteResponse, ProviderError, ProviderTimeout, UnreadableResponse
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request, about_to_ask
from routelock.handlers.stream_assembler import completion_done, why_incomplete
from routelock.history.messages import Message, calls_of
from routelock_providers.chat_completions.plain_replies import plain_reply
from routelock_providers.chat_completions.request_cache import Conversations, Toolboxes
from routelock_providers.chat_completions.stream_reader import (
    MISSHAPEN,
    FailedReply,
    Reading,
    UnreadableEvent,
    failure_in,
)
from routelock_providers.deadlines import deadline_for
from routelock_providers.errors import to_provider_error
from routelock_providers.http.body import MOST_BYTES, Received, body_of, parsed
from routelock_providers.http_errors import Answer, error_from_answer, shortened, who
from routelock_providers.request_shape import prepare, tool_choice
from routelock_providers.structured_output import AnswerEvents, Plan, as_answer, plan_for
from routelock_providers.usage_estimates import estimated_usage
from routelock_providers.vendors import Shape, can_be_forced, takes_schema

__all__ = ["Chat", "Incoming", "Post", "Response", "Wait"]


T = TypeVar("T")

_Json = Mapping[str, Any]

_NOT_IN_THE_BODY = frozenset(("extra_headers", "extra_body", "tool_choice"))

_EVENTS = re.compile(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:")

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


Wait = Callable[[Callable[[], Awaitable[T]]], Awaitable[T]]
"""Awaits something for so long."""

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
        url: where the endpoint is, for errors.
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
        url: str = "",
    ) -> None:
        self.provider = provider
        self.model = model
        self._shape = shape
        self._conversations = Conversations(shape)
        self._toolboxes = Toolboxes(shape)
        self._limits = (timeout, chunk_timeout)
        self._max_bytes = max_bytes
        self._needs_finish = needs_finish
        self._url = url
        self._who = who(provider, url)

    async def stream(self, request: Request, post: Post) -> AsyncGenerator[HandlerEvent]:
        """Send the request and yield the reply, its pieces first if it comes in pieces.

        Raises:
            ProviderError: whatever went wrong.
        """
        about_to_ask(f"{self.provider}/{self.model}", request)
        plan = self._plan(request)
        # without tools there is no next request that would go on from this one
        run_id = "" if request.context is None else request.context.run_id
        goes_on = self._conversations.take(run_id, request.messages) if plan.tools else None
        messages = prepare(request.messages, self._shape) if goes_on is None else goes_on
        body = self._body(request, plan, messages)
        coming = _Coming(post, body, self._received, asked=request.stream)
        deadline = deadline_for(*self._limits, provider=self.provider, model=self.model)
        try:
            await self._guarded(deadline.first, coming.begin, coming)
            if coming.streams:
                reading, wait, events = Reading(), deadline.first, AnswerEvents(plan.answer_tool)
                while not reading.ended:
                    for event in await self._more(reading, coming, wait):
                        if (shown := events.shown(event)) is not None:
                            yield shown
                    wait = deadline.next
                await coming.drain()
                done = self._end_of(reading)
            else:
                done = self._completion(coming.whole)
            if done.usage is None:
                done = replace(done, usage=estimated_usage(messages, plan.tools, done.message))
            if goes_on is not None and calls_of(done.message):
                self._conversations.put_back(run_id, goes_on)
            yield done if plan.answer_tool is None else as_answer(done, plan.answer_tool)
        finally:
            deadline.close()
            await coming.aclose()

    async def _more(
        self, reading: Reading, coming: _Coming, wait: Wait[list[HandlerEvent]]
    ) -> list[HandlerEvent]:
        """Wait until something of the reply has come, or its end. Comments are silence."""

        async def more() -> list[HandlerEvent]:
            reading.check()  # what came with the last bytes may be an error, and nothing follows it
            before, events = reading.count, reading.feed(await coming.more())
            while reading.count == before and not reading.ended:
                events = reading.feed(await coming.more())
            return events

        try:
            return await self._guarded(wait, more, coming)
        except (IncompleteResponse, ProviderTimeout):
            if not reading.finished:
                raise
            reading.ended = True  # the message is whole: what is missing is how many tokens it had
            return []

    def _end_of(self, reading: Reading) -> MessageDone:
        try:
            done = reading.done()
        except UnreadableEvent as error:
            raise self._unreadable(error.said) from error
        except FailedReply as error:
            raise self._failed(error.error) from error
        missing = why_incomplete(done, ended=reading.marked, counted=reading.counted)
        if self._needs_finish and not missing and not done.finish_reason:
            missing = "no finish reason"
        return self._checked(done, missing)

    def _plan(self, request: Request) -> Plan:
        if request.output_schema is None:
            return Plan(tools=request.tools, tool_choice=request.tool_choice)
        native = takes_schema(self.provider, self.model, with_tools=bool(request.tools))
        return plan_for(request, native=native, can_force=can_be_forced(self.model, request.settings))

    def _body(self, request: Request, plan: Plan, messages: Sequence[Message]) -> _Json:
        tools = self._toolboxes.fitted(messages, plan.tools)
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if tools:
            body["tools"] = tools
            if plan.tool_choice is not None:
                body["tool_choice"] = tool_choice(plan.tool_choice)
        if plan.response_format is not None:
            body["response_format"] = plan.response_format
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return _with_settings(body, request.settings) if request.settings else body

    async def _guarded(
        self,
        wait: Wait[T],
        work: Callable[[], Awaitable[T]],
        coming: _Coming,
    ) -> T:
        """Await one step of the call within its time; the library's errors become ours."""
        try:
            return await wait(work)
        except ProviderError:
            raise
        except UnreadableEvent as error:
            raise self._unreadable(error.said) from error
        except FailedReply as error:
            raise self._failed(error.error) from error
        except Exception as error:
            raise to_provider_error(
                error, provider=self.provider, model=self.model, began=coming.began, url=self._url
            ) from error

    def _received(self, response: Response) -> Received:
        return Received(body_of(response, self._unreadably_packed), self._max_bytes, self._too_much)

    def _completion(self, answer: bytes) -> MessageDone:
        completion = parsed(answer.removeprefix(codecs.BOM_UTF8))
        if not isinstance(completion, dict) or not completion:  # of JSON there is no other mapping
            raise self._unreadable(answer)
        whole = cast("_Json", completion)
        try:
            plain = plain_reply(whole)
            if plain is not None and plain.usage:
                return plain
            if error := failure_in(whole):
                raise self._failed(error)
            if "choices" not in whole:
                raise self._unreadable(answer)
            done = completion_done(whole)
            return self._checked(done, why_incomplete(done, ended=True))
        except MISSHAPEN as error:
            raise self._unreadable(whole) from error

    def _failed(self, error: object) -> ProviderError:
        """Return what an error inside an answer means that claimed success."""
        answer = Answer(200, {}, json.dumps({"error": error}))
        return error_from_answer(answer, provider=self.provider, model=self.model, url=self._url)

    def _checked(self, done: MessageDone, missing: str | None) -> MessageDone:
        if missing:
            raise IncompleteResponse(
                f"The reply of {self._who} for model {self.model!r} ended too early: it holds {missing}. "
                "It is not a shorter answer but a part of one; the run may ask again.",
                provider=self.provider,
                model=self.model,
            )
        return done

    def _unreadable(self, said: object) -> UnreadableResponse:
        if isinstance(said, bytes):
            said = said[:2000].decode("utf-8", "replace")
        text = said[:2000] if isinstance(said, str) else reprlib.repr(said)
        what = f"something that is not a chat completion: {shortened(text, 200)!r}" if text else "nothing"
        return UnreadableResponse(
            f"Asked for model {self.model!r}, {self._who} sent {what}. Check that the URL is that of the "
            "API; the same request may pass later.",
            provider=self.provider,
            model=self.model,
        )

    def _unreadably_packed(self, why: str) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self._who} for model {self.model!r} cannot be unpacked: {why}. Switch "
            "compression off for this URL.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )

    def _too_much(self) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self._who} for model {self.model!r} has more than {self._max_bytes} bytes, "
            "so it was not read to its end. Raise max_bytes= if it may be that long.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )


class _Coming:
    """An answer that is coming in: first its head, then its body, at once or in pieces."""

    def __init__(
        self,
        post: Post,
        body: _Json,
        received: Callable[[Response], Received],
        *,
        asked: bool,
    ) -> None:
        self.began = False
        """Whether the head has come."""
        self.streams = False
        self.whole = b""
        """The body of an answer that does not stream."""
        self._post = post
        self._body = body
        self._make = received
        self._asked = asked
        self._incoming: Incoming | None = None
        self._received: Received | None = None

    async def begin(self) -> None:
        """Send the request, and wait for the head of the answer, or for all of it."""
        self._incoming = await self._post(self._body)
        response = self._incoming.response
        self.began = True
        received = self._received = self._make(response)
        unknown = "event-stream" if self._asked and response.status_code == 200 else ""
        self.streams = "event-stream" in response.headers.get("content-type", unknown)
        if not self.streams:
            # not asked to stream, or the endpoint does not, or a proxy answers in its place
            self.whole = await received.all()
            self.streams = bool(_EVENTS.match(self.whole))  # a stream under a wrong name

    async def more(self) -> bytes:
        """Wait for the next bytes of a stream; none at its end."""
        if self.whole:
            whole, self.whole = self.whole, b""
            return whole
        assert self._received is not None
        return await self._received.more()

    async def drain(self) -> None:
        """Read what follows the reply, so that the connection can be used again."""
        if self._received is not None:
            await self._received.drain()

    async def aclose(self) -> None:
        """Give back the connection, or end it when something is left unread."""
        if self._incoming is None:
            return
        if self._received is not None and self._received.over:
            await self._incoming.close()
            return
        with anyio.move_on_after(_CLOSING, shield=True):
            if self._received is not None:
                await self._received.aclose()
            await self._incoming.close()


def _with_settings(body: dict[str, Any], settings: _Json) -> _Json:
    settings = sendable({**settings})  # whoever wrote them: vendors refuse half a surrogate pair
    body |= {key: value for key, value in settings.items() if key not in _NOT_IN_THE_BODY}
    if "tools" not in body:
        body.pop("parallel_tool_calls", None)  # OpenAI refuses it without tools
    body |= settings.get("extra_body") or {}
    return {key: value for key, value in body.items() if value is not None}
