"""Makes the body of one chat-completions request, and turns the answer into events.

`OpenAICompatible`, `OpenAI` and `RemoteAgent` share this module. It depends on no HTTP library: each handler
passes a function that sends the body.
"""

from __future__ import annotations

import codecs
import json
import re
import reprlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import anyio

from routelock._sendable import sendable
from routelock.errors import IncompleteResponse, ProviderError, ProviderTimeout, UnreadableResponse
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.handlers.port import Request, ToolChoice, ToolSpec, about_to_ask, vendor_specs
from routelock.handlers.stream_assembler import completion_done, why_incomplete
from routelock.history.messages import Message, calls_of
from routelock_providers.chat_completions.request_cache import MessageCache, ToolCache
from routelock_providers.chat_completions.stream_reader import (
    MISSHAPEN,
    FailedReply,
    StreamReader,
    UnreadableEvent,
    failure_in,
)
from routelock_providers.deadlines import deadline_for
from routelock_providers.errors import to_provider_error
from routelock_providers.http.body import MOST_BYTES, BodyReader
from routelock_providers.http_errors import Answer, error_from_answer, shorten, vendor_label
from routelock_providers.request_shape import prepare, tool_choice
from routelock_providers.structured_output import AnswerEvents, Plan, as_answer, plan_for
from routelock_providers.usage_estimates import completed_usage
from routelock_providers.vendor_items import Collector, collector_for, noted
from routelock_providers.vendor_json import json_object
from routelock_providers.vendor_tools import AddedTools, AskedModel, added_tools, check_settings
from routelock_providers.vendors import VendorRules, can_be_forced, takes_schema

__all__ = ["Chat", "Incoming", "Post", "Response", "Wait"]


T = TypeVar("T")

_Json = Mapping[str, Any]

_NOT_IN_THE_BODY = frozenset(("extra_headers", "extra_body", "tool_choice"))

_EVENTS = re.compile(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:")

_CLOSE_SECONDS = 5.0
"""How long closing a connection may take."""


class Response(Protocol):
    """The part of an answer of httpx or httpx2 that is used here."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names are found in any case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...


class Incoming(Protocol):
    """An answer whose body has not been read, such as an ``openai.AsyncStream`` before its first event."""

    @property
    def response(self) -> Response:
        """The status, the headers and the unread body."""
        ...

    async def close(self) -> None:
        """Release the connection, or end it if part of the body is unread."""
        ...


Wait = Callable[[Callable[[], Awaitable[T]]], Awaitable[T]]
"""Awaits a call within a time limit, see `routelock_providers.deadlines.Deadline`."""

Post = Callable[[_Json], Awaitable[Incoming]]
"""Sends a body and returns the answer when its headers have arrived."""


class Chat:
    """Asks one model at one endpoint, streamed or not, and reads its reply.

    Args:
        provider: the vendor's short name, for errors.
        model: the model's name as the endpoint knows it.
        rules: the rules of the endpoint for messages.
        timeout: seconds for one whole reply; None for no limit.
        chunk_timeout: seconds that a stream may be silent once it has begun; None for no limit.
        max_bytes: the largest size of one reply; None for no limit.
        needs_finish: whether a streamed reply is complete only with a finish reason.
        url: the address of the endpoint, for errors.
    """

    def __init__(
        self,
        *,
        provider: str,
        model: str,
        rules: VendorRules,
        timeout: float | None,
        chunk_timeout: float | None,
        max_bytes: int | None = MOST_BYTES,
        needs_finish: bool = False,
        url: str = "",
    ) -> None:
        self.provider = provider
        self.model = model
        self._rules = rules
        self._messages = MessageCache(rules)
        self._tools = ToolCache(rules)
        self._limits = (timeout, chunk_timeout)
        self._max_bytes = max_bytes
        self._needs_finish = needs_finish
        self._url = url
        self._vendor = vendor_label(provider, url)

    async def stream(self, request: Request, post: Post) -> AsyncGenerator[HandlerEvent]:
        """Send the request and yield the events of the reply; the last one is the whole message.

        Raises:
            ProviderError: the call failed, see `routelock.errors`.
        """
        about_to_ask(f"{self.provider}/{self.model}", request)
        added: AddedTools | None = None
        if request.tools and "function" not in request.tools[-1]:
            request, added = self._without_vendor_tools(request)
        collector = None if added is None else collector_for("chat")
        plan = self._plan(request, has_vendor_tools=added is not None)
        # without tools there is no later request that continues this one
        run_id = "" if request.context is None else request.context.run_id
        cached = self._messages.take(run_id, request.messages) if plan.tools else None
        messages = prepare(request.messages, self._rules) if cached is None else cached
        body = self._body(request, plan, messages)
        if added is not None:
            tools = [*body.get("tools", ()), *added.tools]
            body = {**body, **added.fields, **({"tools": tools} if tools else {})}
        answer = _Answer(post, body, self._body_reader, asked_to_stream=request.stream)
        deadline = deadline_for(*self._limits, provider=self.provider, model=self.model)
        try:
            await self._guarded(deadline.first, answer.begin, answer)
            if answer.streams:
                reader, wait, events = StreamReader(collector), deadline.first, AnswerEvents(plan.answer_tool)
                while not reader.ended:
                    for event in await self._next_events(reader, answer, wait):
                        if (shown := events.convert(event)) is not None:
                            yield shown
                    wait = deadline.next
                await answer.drain()
                done = self._finish(reader)
            else:
                done = self._completion(answer.whole, collector)
            if collector is not None:
                done = replace(done, message=noted(done.message, [collector]))
            if (usage := completed_usage(done.usage, messages, plan.tools, done.message)) is not done.usage:
                done = replace(done, usage=usage)
            if cached is not None and calls_of(done.message):
                self._messages.put_back(run_id, cached)
            yield done if plan.answer_tool is None else as_answer(done, plan.answer_tool)
        finally:
            deadline.close()
            await answer.aclose()

    async def _next_events(
        self, reader: StreamReader, answer: _Answer, wait: Wait[list[HandlerEvent]]
    ) -> list[HandlerEvent]:
        """Wait for the next event of the stream, or its end. Comments do not count as events."""

        async def next_events() -> list[HandlerEvent]:
            reader.check()  # the last bytes may have held an error, and nothing follows an error
            before, events = reader.count, reader.feed(await answer.read())
            while reader.count == before and not reader.ended:
                events = reader.feed(await answer.read())
            return events

        try:
            return await self._guarded(wait, next_events, answer)
        except (IncompleteResponse, ProviderTimeout):
            if not reader.has_finish:
                raise
            reader.ended = True  # the message is whole: only its usage is missing
            return []

    def _finish(self, reader: StreamReader) -> MessageDone:
        try:
            done = reader.done()
        except UnreadableEvent as error:
            raise self._unreadable(error.content) from error
        except FailedReply as error:  # an error after the finish reason
            raise self._failed(error.error) from error
        missing = why_incomplete(done, ended=reader.saw_done, counted=reader.usage_came_last)
        if self._needs_finish and not missing and not done.finish_reason:
            missing = "no finish reason"
        return self._complete(done, missing)

    def _without_vendor_tools(self, request: Request) -> tuple[Request, AddedTools]:
        """Return the request without the vendor's own tools, and the additions that these tools need.

        Raises:
            ConfigError: the vendor has no such tool, or a setting asks for the same tool.
        """
        vendor_tools = vendor_specs(request.tools)
        functions, choice = request.tools[: len(request.tools) - len(vendor_tools)], request.tool_choice
        added = self._added(vendor_tools, request.settings, functions=bool(functions), choice=choice)
        return replace(request, tools=functions), added

    def check_vendor_tools(
        self, specs: Sequence[ToolSpec], settings: Mapping[str, Any], *, functions: bool
    ) -> None:
        """Check the vendor's own tools of an agent before a run, see `routelock.Handler`.

        Raises:
            ConfigError: the vendor has no such tool, or a setting asks for the same tool.
        """
        self._added(specs, settings, functions=functions)

    def _added(
        self,
        specs: Sequence[ToolSpec],
        settings: Mapping[str, Any],
        *,
        functions: bool,
        choice: ToolChoice | None = None,
    ) -> AddedTools:
        to = AskedModel(api="chat", provider=self.provider, model=self.model)
        added = added_tools(specs, to, functions=functions, choice=choice)
        check_settings(specs, added, settings)
        return added

    def _plan(self, request: Request, *, has_vendor_tools: bool) -> Plan:
        if request.output_schema is None:
            return Plan(tools=request.tools, tool_choice=request.tool_choice)
        native = takes_schema(self.provider, self.model, with_tools=bool(request.tools or has_vendor_tools))
        return plan_for(request, native=native, can_force=can_be_forced(self.model, request.settings))

    def _body(self, request: Request, plan: Plan, messages: Sequence[Message]) -> _Json:
        tools = self._tools.take(messages, plan.tools)
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
        answer: _Answer,
    ) -> T:
        """Await one step of the call within its time limit, and raise its errors as errors of routelock."""
        try:
            return await wait(work)
        except ProviderError:
            raise
        except UnreadableEvent as error:
            raise self._unreadable(error.content) from error
        except FailedReply as error:
            raise self._failed(error.error) from error
        except Exception as error:
            raise to_provider_error(
                error, provider=self.provider, model=self.model, began=answer.began, url=self._url
            ) from error

    def _body_reader(self, response: Response) -> BodyReader:
        return BodyReader(response, self._max_bytes, too_long=self._too_long, refuse=self._not_unpacked)

    def _completion(self, answer: bytes, collector: Collector | None) -> MessageDone:
        completion = json_object(answer.removeprefix(codecs.BOM_UTF8))
        try:
            if error := failure_in(completion):
                raise self._failed(error)
            if "choices" not in completion:
                raise self._unreadable(answer)
            if collector is not None:
                collector.take(completion)
            done = completion_done(completion)
            return self._complete(done, why_incomplete(done, ended=True))
        except MISSHAPEN as error:
            raise self._unreadable(completion) from error

    def _failed(self, error: object) -> ProviderError:
        """Return the error for an error object inside an answer that claimed success."""
        answer = Answer(200, {}, json.dumps({"error": error}))
        return error_from_answer(answer, provider=self.provider, model=self.model, url=self._url)

    def _complete(self, done: MessageDone, missing: str | None) -> MessageDone:
        """Return the message if nothing of it is missing."""
        if missing:
            raise IncompleteResponse(
                f"The reply of {self._vendor} for model {self.model!r} ended too early: it holds {missing}. "
                "What arrived is only a part of the reply; the run may ask again.",
                provider=self.provider,
                model=self.model,
            )
        return done

    def _unreadable(self, content: object) -> UnreadableResponse:
        if isinstance(content, bytes):
            content = content[:2000].decode("utf-8", "replace")
        text = content[:2000] if isinstance(content, str) else reprlib.repr(content)
        what = f"something that is not a chat completion: {shorten(text, 200)!r}" if text else "nothing"
        return UnreadableResponse(
            f"Asked for model {self.model!r}, {self._vendor} sent {what}. Check that the URL is that of the "
            "API; the same request may pass later.",
            provider=self.provider,
            model=self.model,
        )

    def _not_unpacked(self, why: str) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self._vendor} for model {self.model!r} cannot be unpacked: {why}. Switch "
            "compression off for this URL.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )

    def _too_long(self) -> UnreadableResponse:
        return UnreadableResponse(
            f"The reply of {self._vendor} for model {self.model!r} has more than {self._max_bytes} bytes, "
            "so it was not read to its end. Raise max_bytes= if it may be that long.",
            provider=self.provider,
            model=self.model,
            retryable=False,
        )


class _Answer:
    """The answer to one request: first its head, then its body, whole or in pieces.

    Args:
        post: sends the request.
        body: the body of the request.
        read: makes the reader of the answer's body.
        asked_to_stream: whether the request asks for a stream.
    """

    def __init__(
        self,
        post: Post,
        body: _Json,
        read: Callable[[Response], BodyReader],
        *,
        asked_to_stream: bool,
    ) -> None:
        self.began = False
        """Whether the head has arrived."""
        self.streams = False
        """Whether the answer is a stream, known when `begin` has returned."""
        self.whole = b""
        """The body of an answer that does not stream."""
        self._post = post
        self._body = body
        self._make_reader = read
        self._asked_to_stream = asked_to_stream
        self._incoming: Incoming | None = None
        self._reader: BodyReader | None = None

    async def begin(self) -> None:
        """Send the request and wait for the head of the answer.

        If the answer does not stream, wait for the whole body too.
        """
        self._incoming = await self._post(self._body)
        response = self._incoming.response
        self.began = True
        reader = self._reader = self._make_reader(response)
        unknown = "event-stream" if self._asked_to_stream and response.status_code == 200 else ""
        self.streams = "event-stream" in response.headers.get("content-type", unknown)
        if not self.streams:
            # no stream was asked for, or the endpoint cannot stream, or a proxy answers in its place
            self.whole = await reader.read_all()
            self.streams = bool(_EVENTS.match(self.whole))  # a stream with another content type

    async def read(self) -> bytes:
        """Wait for the next bytes of a stream; none at its end."""
        if self.whole:
            whole, self.whole = self.whole, b""
            return whole
        assert self._reader is not None
        return await self._reader.read()

    async def drain(self) -> None:
        """Read what follows the reply, so that the connection can be used again."""
        if self._reader is not None:
            await self._reader.drain()

    async def aclose(self) -> None:
        """Release the connection, or end it if part of the body is unread."""
        if self._incoming is None:
            return
        if self._reader is not None and self._reader.is_over:
            await self._incoming.close()
            return
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            if self._reader is not None:
                await self._reader.aclose()
            await self._incoming.close()


def _with_settings(body: dict[str, Any], settings: _Json) -> _Json:
    settings = sendable({**settings})  # vendors refuse half a surrogate pair
    body |= {key: value for key, value in settings.items() if key not in _NOT_IN_THE_BODY}
    if "tools" not in body:
        body.pop("parallel_tool_calls", None)  # OpenAI refuses this key without tools
    body |= settings.get("extra_body") or {}
    return {key: value for key, value in body.items() if value is not None}
