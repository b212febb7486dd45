"""Chat completions through the openai library: OpenAI, Azure, and every endpoint that speaks like them.

The library carries the request and maps nothing: the body goes out as it is and chunks are read as
plain dicts. Its typed layer walks every message on every call and builds a model of every chunk,
which costs six times the rest at 100 messages and twelve times the rest of a chunk (benchmarks).
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import anyio
from anyio.lowlevel import RunVar

from interlock.assembly import Assembler, completion_done, why_incomplete
from interlock.errors import IncompleteResponse, ProviderError, ProviderTimeout, UnreadableResponse
from interlock.events import HandlerEvent, MessageDone
from interlock.port import Request
from interlock_providers.answers import Answer, error_from_answer, shortened
from interlock_providers.failures import to_provider_error
from interlock_providers.sse import EventDecoder
from interlock_providers.wire import prepare, shape_of, tools_for

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

__all__ = ["OpenAI"]

T = TypeVar("T")
_Json = Mapping[str, Any]

_NOT_IN_THE_BODY = frozenset(("extra_headers", "extra_body", "tool_choice"))
_DONE = "[DONE]"
_CLOSING = 5.0  # seconds after which a connection that does not close is given up
_DRAINING = 0.5  # seconds to wait for the end of the body after [DONE], so that the connection lives on


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
        timeout: seconds that the provider may take for one reply altogether. The time that the
            reader of a stream takes does not count.
        chunk_timeout: seconds that a stream may be silent; comments that keep it alive are silence.
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
        timeout: float = 600.0,
        chunk_timeout: float = 120.0,
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
        self._timeout = timeout
        self._chunk_timeout = chunk_timeout
        self._shape = shape_of(self.provider, model)
        self._clients: RunVar[AsyncOpenAI | None] = RunVar(f"interlock {self.name}", None)

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        """Ask the model; stream the reply if the request is being watched.

        Raises:
            ProviderError: whatever went wrong, see `interlock.errors`.
        """
        if not request.stream:
            yield await self._whole_reply(request)
            return
        async with aclosing(self._streamed_reply(request)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections of the running event loop. The handler may be used again."""
        client = self._clients.get()
        self._clients.set(None)
        if client is not None:
            await client.close()

    async def _whole_reply(self, request: Request) -> MessageDone:
        answer = await self._within(self._timeout, self._post(request), "no reply")
        return self._completion(answer)

    async def _streamed_reply(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        began = anyio.current_time()
        stream = await self._within(self._timeout, self._post_for_stream(request), "no reply")
        left = self._timeout - (anyio.current_time() - began)
        try:
            if "event-stream" in stream.response.headers.get("content-type", "event-stream"):
                chunks = _Chunks(stream.response.aiter_bytes())
                async with aclosing(chunks), aclosing(self._events(chunks, left)) as events:
                    async for event in events:
                        yield event
            else:  # the endpoint does not stream, or a proxy answers in its place
                body = await self._within(left, stream.response.aread(), "no reply")
                yield self._completion(body.decode("utf-8", "replace"))
        finally:
            with anyio.move_on_after(_CLOSING, shield=True):
                await stream.close()

    async def _events(self, chunks: _Chunks, left: float) -> AsyncGenerator[HandlerEvent]:
        assembler = Assembler()
        while not chunks.ended:
            began = anyio.current_time()
            received = await self._within(min(left, self._chunk_timeout), chunks.more(), "no further chunk")
            left -= anyio.current_time() - began
            for chunk in received:
                self._raise_if_failed(chunk)
                for event in assembler.feed(chunk):
                    yield event
        await chunks.drain()
        yield self._checked(assembler.done(), ended=chunks.marked)

    async def _post(self, request: Request) -> object:
        return await self._the_client().post(
            "/chat/completions",
            cast_to=object,
            body=self._body(request),
            options={"headers": self._headers(request), "timeout": self._timeout, "max_retries": 0},
        )

    async def _post_for_stream(self, request: Request) -> AsyncStream[object]:
        from openai import AsyncStream  # noqa: PLC0415 - openai costs 0.7 s to import

        return await self._the_client().post(
            "/chat/completions",
            cast_to=object,
            body=self._body(request),
            options={"headers": self._headers(request), "timeout": self._timeout, "max_retries": 0},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    def _body(self, request: Request) -> dict[str, Any]:
        messages = prepare(request.messages, self._shape)
        tools = tools_for(messages, request.tools, self._shape)
        body: dict[str, Any] = {"model": self.model, "messages": messages}
        if tools:
            body["tools"] = tools
            if request.tool_choice:
                body["tool_choice"] = _tool_choice(request.tool_choice)
        if request.output_schema is not None:
            schema = request.output_schema
            described = {"name": schema.name, "schema": schema.schema, "strict": schema.strict}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
        if request.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= {key: value for key, value in request.settings.items() if key not in _NOT_IN_THE_BODY}
        if not tools:
            body.pop("parallel_tool_calls", None)  # OpenAI refuses it without tools
        body |= request.settings.get("extra_body") or {}
        return {key: value for key, value in body.items() if value is not None}

    def _headers(self, request: Request) -> dict[str, str]:
        return request.settings.get("extra_headers") or {}

    def _the_client(self) -> AsyncOpenAI:
        """Return the client of this event loop: connections cannot move from one loop to another."""
        client = self._client or self._clients.get()
        if client is None:
            from openai import AsyncOpenAI  # noqa: PLC0415 - openai costs 0.7 s to import

            key = self._api_key or os.environ.get(f"{self.provider.upper()}_API_KEY")
            if self._base_url is not None:
                key = key or "none"  # a local server needs no key; one that does says so
            client = AsyncOpenAI(api_key=key, base_url=self._base_url, timeout=self._timeout, max_retries=0)
            self._clients.set(client)
        return client

    async def _within(self, seconds: float, work: Awaitable[T], what: str) -> T:
        """Await one step of a call; the scope never spans a yield."""
        try:
            with anyio.fail_after(seconds):
                return await work
        except TimeoutError as error:
            raise ProviderTimeout(
                f"{self.provider} sent {what} for model {self.model!r} within {seconds:.3g} s. Give it "
                "more time with timeout= or chunk_timeout=, or let the run retry.",
                provider=self.provider,
                model=self.model,
            ) from error
        except ProviderError:
            raise
        except Exception as error:
            raise to_provider_error(error, provider=self.provider, model=self.model) from error

    def _completion(self, answer: object) -> MessageDone:
        completion = _as_object(answer) if isinstance(answer, str) else answer
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
        return done


class _Chunks:
    """The chunks of one streamed reply. ``marked`` tells whether it ended with ``[DONE]``."""

    def __init__(self, received: AsyncIterator[bytes]) -> None:
        self.ended = False
        self.marked = False
        self._received = received
        self._decoder = EventDecoder()

    async def more(self) -> list[_Json]:
        """Wait for the next chunks: several may come at once, and none only at the end."""
        while not self.ended:
            received = await anext(self._received, None)
            self.ended = received is None
            if received is None:
                # an event without its end may have been cut: it counts only if it can be read
                rest = [event for event in self._decoder.flush() if event == _DONE or _as_object(event)]
                return self._parsed(rest)
            if events := self._decoder.feed(received):
                return self._parsed(events)
        return []

    async def drain(self) -> None:
        """Read what follows ``[DONE]``, so that the connection can be used again.

        The reply is complete by then: what goes wrong with the connection now concerns nobody.
        """
        with suppress(Exception), anyio.move_on_after(_DRAINING):
            async for _ in self._received:
                pass

    async def aclose(self) -> None:
        """End the reading. A cancelled read unwinds the generators within httpx from the inside;
        closing the response alone leaves them to the garbage collector, about which trio complains.
        """
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in self._received:
                pass

    def _parsed(self, events: list[str]) -> list[_Json]:
        chunks: list[_Json] = []
        for event in events:
            if event == _DONE:
                self.ended = self.marked = True
                break
            chunk = json.loads(event)
            if isinstance(chunk, dict):
                chunks.append(cast("_Json", chunk))
        return chunks


def _tool_choice(choice: str) -> str | _Json:
    if choice in ("auto", "required", "none"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _as_object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


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
