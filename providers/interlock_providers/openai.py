"""Chat completions through the openai library: OpenAI, Azure, and every endpoint that speaks like them.

The library carries the request and maps nothing: the body goes out as it is and chunks are read as
plain dicts. Its typed layer walks every message on every call and builds a model of every chunk;
measured without it, a call with 101 messages took a fifteenth of the CPU, a chunk a twelfth.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import RunVar

from interlock.assembly import Assembler, completion_done, why_incomplete
from interlock.errors import IncompleteResponse, ProviderError, UnreadableResponse
from interlock.events import HandlerEvent, MessageDone
from interlock.port import Request, ToolChoice
from interlock.usage import Usage
from interlock_providers.answers import Answer, error_from_answer, shortened
from interlock_providers.chunks import Chunks, parsed
from interlock_providers.deadlines import Deadline
from interlock_providers.failures import to_provider_error
from interlock_providers.structured import Plan, as_answer, as_answer_event, plan_for
from interlock_providers.vendors import takes_schema_with_tools
from interlock_providers.wire import Shape, prepare, shape_of, tools_for

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

__all__ = ["OpenAI"]

T = TypeVar("T")
_Json = Mapping[str, Any]

_NOT_IN_THE_BODY = frozenset(("extra_headers", "extra_body", "tool_choice"))
_OPENAI_KEYS = frozenset(
    "role content name tool_calls tool_call_id refusal audio function_call annotations".split()
)
"""What OpenAI's own messages have; LiteLLM, whose family is the same, may have kept more in them."""

_PATH = "/chat/completions"
_CLOSING = 5.0  # seconds after which a connection that does not close is given up


class OpenAI:
    """A handler that asks one model of OpenAI's, or of any endpoint with the same API.

    A streamed reply is complete when a finish reason or the usage has come, or, for text, when the
    stream ended with ``[DONE]``. A stream that just ends, or that ends within the arguments of a
    call, raises `IncompleteResponse`: text that was cut looks like text that ended.

    Args:
        model: the model's name as the endpoint knows it, such as ``"gpt-4o-mini"``.
        base_url: another endpoint, such as ``"http://localhost:11434/v1"``; default: OpenAI's.
        api_key: the key. Default: the environment variable named after the endpoint, such as
            ``OPENAI_API_KEY`` or, for ``api.groq.com``, ``GROQ_API_KEY``. OpenAI's key is never
            sent to another endpoint unless it is passed here.
        client: a client of your own, such as an ``AsyncAzureOpenAI``. You close it.
        timeout: seconds for one whole reply, streamed or not; None for no limit.
        chunk_timeout: seconds that a stream may be silent once it has begun; comments that keep the
            connection alive are silence. None for no limit.
        name: the handler's name; default ``openai_<model>``.
        priority: where handlers are ranked, the lower number comes first.

    Settings pass through to the API, but ``None`` leaves a key out, ``stream_options=None``
    included, for endpoints that refuse it. ``extra_headers`` and ``extra_body`` work as in the
    openai library. Retrying is the run's: the library is told not to.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client: AsyncOpenAI | None = None,
        timeout: float | None = 600.0,
        chunk_timeout: float | None = 120.0,
        name: str | None = None,
        priority: int = 10,
    ) -> None:
        host = _host_of(base_url if client is None else str(client.base_url))
        self.model = model
        self.provider = _provider_of(host)
        self.family = "openai" if self.provider == "openai" else host
        self.name = name or f"{self.provider}_{model.replace('/', '_')}"
        self.priority = priority
        self._base_url = base_url
        self._api_key = api_key
        self._client = client
        self._limits = (timeout, chunk_timeout)
        self._shape = _shape(self.provider, model)
        self._clients: RunVar[AsyncOpenAI | None] = RunVar(f"interlock {self.name}", None)

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request is being watched.

        Raises:
            ProviderError: whatever went wrong, see `interlock.errors`.
        """
        deadline = Deadline(*self._limits, provider=self.provider, model=self.model)
        native = not request.tools or takes_schema_with_tools(self.provider, self.model)
        plan = plan_for(request, native=native)
        body = self._body(request, plan)
        events = (
            self._streamed(body, request, deadline)
            if request.stream
            else self._whole(body, request, deadline)
        )
        async with aclosing(events):
            async for event in events:
                if isinstance(event, MessageDone):
                    yield as_answer(event, plan.answer_tool)
                elif (shown := as_answer_event(event, plan.answer_tool)) is not None:
                    yield shown

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The handler may be used again."""
        client = self._clients.get()
        self._clients.set(None)
        if client is not None:
            await client.close()

    async def _whole(self, body: _Json, request: Request, deadline: Deadline) -> AsyncGenerator[HandlerEvent]:
        answer = await self._guarded(deadline.first, lambda: self._post(body, request))
        yield self._completion(answer)

    async def _streamed(
        self, body: _Json, request: Request, deadline: Deadline
    ) -> AsyncGenerator[HandlerEvent]:
        stream = await self._guarded(deadline.first, lambda: self._post_for_stream(body, request))
        try:
            if "event-stream" in stream.response.headers.get("content-type", "event-stream"):
                chunks = Chunks(stream.response.aiter_bytes())
                async with aclosing(chunks), aclosing(self._events(chunks, deadline)) as events:
                    async for event in events:
                        yield event
            else:  # the endpoint does not stream, or a proxy answers in its place
                answer = await self._guarded(deadline.first, stream.response.aread)
                yield self._completion(answer.decode("utf-8", "replace"))
        finally:
            with anyio.move_on_after(_CLOSING, shield=True):
                await stream.close()

    async def _events(self, chunks: Chunks, deadline: Deadline) -> AsyncGenerator[HandlerEvent]:
        assembler = Assembler()
        wait = deadline.first
        while not chunks.ended:
            for chunk in await self._guarded(wait, chunks.more):
                self._raise_if_failed(chunk)
                for event in assembler.feed(chunk):
                    yield event
            wait = deadline.next
        await chunks.drain()
        yield self._checked(assembler.done(), ended=chunks.marked)

    async def _post(self, body: _Json, request: Request) -> object:
        return await self._the_client().post(_PATH, cast_to=object, body=body, options=self._options(request))

    async def _post_for_stream(self, body: _Json, request: Request) -> AsyncStream[object]:
        from openai import AsyncStream  # noqa: PLC0415 - openai costs 0.7 s to import

        return await self._the_client().post(
            _PATH,
            cast_to=object,
            body=body,
            options=self._options(request),
            stream=True,
            stream_cls=AsyncStream[object],
        )

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

    def _options(self, request: Request) -> Any:
        headers: object = request.settings.get("extra_headers")
        return {"headers": headers or {}, "timeout": self._limits[0], "max_retries": 0}

    def _the_client(self) -> AsyncOpenAI:
        """Return the client of this event loop: connections cannot move from one loop to another."""
        client = self._client or self._clients.get()
        if client is None:
            from openai import AsyncOpenAI  # noqa: PLC0415 - openai costs 0.7 s to import

            key = self._api_key or os.environ.get(f"{self.provider.upper()}_API_KEY")
            if self._base_url is not None:
                key = key or "none"  # a local server needs no key; one that does says so
            client = AsyncOpenAI(api_key=key, base_url=self._base_url, max_retries=0)
            self._clients.set(client)
        return client

    async def _guarded(
        self, wait: Callable[[Callable[[], Awaitable[T]]], Awaitable[T]], work: Callable[[], Awaitable[T]]
    ) -> T:
        """Await one step of the call within its time; the library's errors become ours."""
        try:
            return await wait(work)
        except ProviderError:
            raise
        except Exception as error:
            raise to_provider_error(error, provider=self.provider, model=self.model) from error

    def _completion(self, answer: object) -> MessageDone:
        completion = parsed(answer) if isinstance(answer, str) else answer
        if not isinstance(completion, Mapping) or not completion:
            raise UnreadableResponse(
                f"{self.provider} sent something that is not a chat completion for model {self.model!r}: "
                f"{shortened(str(answer), 200)!r}. Check that base_url is that of the API.",
                provider=self.provider,
                model=self.model,
            )
        whole = cast("_Json", completion)
        self._raise_if_failed(whole)
        return self._checked(completion_done(whole), ended=True)

    def _raise_if_failed(self, said: _Json) -> None:
        """Find the error inside an answer that claimed success (OpenRouter and others)."""
        error = said.get("error")
        for choice in said.get("choices") or ():
            if choice.get("finish_reason") == "error":
                error = error or choice.get("error") or {"message": "The provider gave up on the reply."}
        if error:
            body = json.dumps({"error": error})
            raise error_from_answer(Answer(200, {}, body), provider=self.provider, model=self.model)

    def _checked(self, done: MessageDone, ended: bool) -> MessageDone:
        if missing := why_incomplete(done, ended=ended):
            raise IncompleteResponse(
                f"The reply of {self.provider} for model {self.model!r} ended too early: it holds {missing}.",
                provider=self.provider,
                model=self.model,
            )
        return done if done.usage else replace(done, usage=Usage(requests=1, estimated=True))


def _shape(provider: str, model: str) -> Shape:
    shape = shape_of(provider, model)
    return replace(shape, message_keys=_OPENAI_KEYS) if provider in ("openai", "azure") else shape


def _tool_choice(choice: ToolChoice | None) -> str | _Json | None:
    if choice in (None, "auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _host_of(base_url: str | None) -> str:
    return "api.openai.com" if base_url is None else urlsplit(base_url).hostname or base_url


def _provider_of(host: str) -> str:
    """Return the short name of the vendor at this host, such as ``"groq"`` for ``api.groq.com``."""
    known = {"azure": "azure", "googleapis": "gemini", "x": "xai"}
    labels = host.split(".")
    if len(labels) < 2 or _is_address(host):
        return "local"
    return known.get(labels[-2], labels[-2])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
