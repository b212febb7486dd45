"""The HTTP client that litellm is given, so that a `ResponseFilter` reads each answer before litellm does.

It follows no redirect, which litellm's own clients do, with key and conversation.

One client serves all the calls of an event loop. Which call an answer belongs to is known from a
context variable, because litellm creates tasks of its own.

This imports httpx and litellm; `exchange.py` imports it at the first call, not before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import httpx
import litellm
import openai
from anyio.lowlevel import RunVar
from litellm.llms.azure.azure import AzureChatCompletion  # pyright: ignore[reportMissingTypeStubs]
from litellm.llms.custom_httpx import http_handler as _untyped
from litellm.llms.openai_like import json_loader

from routelock.errors import ProviderError
from routelock_providers.http.body import ACCEPTED, beginning, body_of
from routelock_providers.http.httpx_transport import AiohttpTransport, Sent
from routelock_providers.litellm.fixes import put_back
from routelock_providers.litellm.response_filter import ResponseFilter

__all__ = ["Line", "Ongoing", "Route", "close_client", "filtered_client", "listen", "stop_listening"]


_http = cast(Any, _untyped)

_azure = cast(Any, AzureChatCompletion)()

_ONGOING: ContextVar[Ongoing | None] = ContextVar("routelock_ongoing", default=None)

_CLIENT: RunVar[_FilteredHandler | None] = RunVar("routelock_filtered_client", None)
"""litellm's clients are kept by the id() of their loop, and an id comes back when its loop is gone."""

_OWN_HTTP = frozenset(
    "a2a anthropic azure_ai bedrock bytez cometapi compactifai databricks datarobot deepseek fireworks_ai "
    "gemini groq heroku hosted_vllm huggingface minimax mistral nadir ollama ollama_chat openrouter ovhcloud "
    "snowflake together_ai vertex_ai vertex_ai_beta xai".split()
)
"""Providers that litellm asks through an HTTP client of its own, which it takes as ``client=``."""

_UNREAD = frozenset("bedrock_mantle databricks_agent edenai langflow langgraph lemonade opencode_go".split())
"""They are asked through such a client as well. How they answer was not looked at, so there is no filter."""

_UNREAD_BY_SDK = frozenset(("bigmodel", "text-completion-openai"))

_UNREAD_BY_KEY = frozenset(("anthropic_text", "cloudflare", "cohere", "gradient_ai"))

_AZURE_OF_OLD = "azure_text"
"""Completions that are no chat."""

_AZURE = frozenset(("azure", _AZURE_OF_OLD))

_AZURE_KEYS = ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY")

_AZURE_LOGIN = (
    "azure_ad_token azure_ad_token_provider tenant_id client_id client_secret azure_username azure_password "
    "azure_scope".split()
)

_NOT_BY_SDK = frozenset("anyscale chatgpt clarifai github_copilot ragflow".split())
"""Called compatible with OpenAI by litellm, and not asked through openai's library all the same."""


# These lists were surveyed by calling every provider of litellm 1.105.3, 1.109.1 and 1.110.2; a provider that
# is in none is asked through litellm's own client.


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way that a call takes: whom litellm asks, and where."""

    provider: str
    responses: bool
    """Whether it goes to the Responses API."""
    api_base: str | None
    api_key: str | None
    given: Mapping[str, Any]
    """The arguments of the call."""

    @property
    def is_filtered(self) -> bool:
        """Whether it is known how the answer is to be read."""
        return self.responses or self.provider not in _UNREAD | _UNREAD_BY_SDK | _UNREAD_BY_KEY | {
            _AZURE_OF_OLD
        }


@dataclass(slots=True)
class Line:
    """The connection of one call: its response filter, what came of the request, and the way to hang up."""

    response_filter: ResponseFilter
    most_bytes: int | None
    """What the body of the answer may have."""
    unreadable: Callable[[str, bool], ProviderError]
    """Makes the error for a body that cannot be read, of the reason and whether it may pass later."""
    moved: Callable[[int, Mapping[str, str], str], ProviderError]
    """Makes the error for a redirect, of status, headers and the address that was asked."""
    is_filtered: bool = True
    """Else litellm alone reads the answer."""
    parts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What is to stand in the request in the place of marks, see `routelock_providers.litellm.fixes`."""
    failure: httpx.TransportError | ProviderError | None = None
    response: Sent | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is an answer that was not read to its end; a whole one is, before litellm sees it."""
        return self.response is not None and not self.response.is_closed

    async def hang_up(self) -> None:
        """Close the connection if it is still open. litellm 1.105 leaves some open."""
        if self.response is not None:
            with suppress(Exception):  # it is given up, however it takes that
                await self.response.aclose()


@dataclass(slots=True)
class Ongoing:
    """A call, and its line until it is over.

    litellm logs when it has nothing else to do, and until then keeps a copy of the context of each call, up
    to 50,000 of them. With the line they would keep the request, the reply and the connection.
    """

    line: Line | None


def listen(call: Ongoing) -> Token[Ongoing | None]:
    """Make the requests that this task sends from now on those of the call, until `stop_listening`."""
    return _ONGOING.set(call)


def stop_listening(token: Token[Ongoing | None]) -> None:
    """Take back what `listen` did. Hold no yield in between."""
    _ONGOING.reset(token)


def filtered_client(route: Route) -> Mapping[str, Any] | None:
    """Return the arguments that make litellm use the filtered client, or None when this route cannot."""
    if route.responses or route.provider == "cohere_chat" or route.provider in _UNREAD_BY_KEY:
        return _found_by_key("cohere_chat" if route.provider == "cohere" else route.provider)
    if route.provider in _OWN_HTTP or route.provider in _UNREAD:
        return {"client": _client()}
    if route.provider in _AZURE:
        return _client().azure(route)
    if _goes_by_sdk(route.provider) and route.api_base and route.api_key:
        return {"client": _client().sdk(route.api_base, route.api_key)}
    return None


def _goes_by_sdk(provider: str) -> bool:
    if provider in ("openai", "custom_openai") or provider in _UNREAD_BY_SDK:
        return True
    compatible: list[str] = cast(Any, litellm).openai_compatible_providers
    known = provider in compatible or cast(Any, json_loader).JSONProviderRegistry.exists(provider)
    return known and provider not in _NOT_BY_SDK


async def close_client() -> None:
    """Close the connections of the running event loop."""
    client = _CLIENT.get()
    _CLIENT.set(None)
    if client is not None:
        await client.close()


def _found_by_key(provider: str) -> Mapping[str, Any] | None:
    """Put the client where routes that take none look for one.

    litellm keeps its clients under a name made of the TLS context and the provider. With a context
    that nobody else names, that place is ours; where litellm should one day look elsewhere, it makes
    a client with this context, and the call is not filtered.
    """
    context = _http.get_ssl_configuration()
    if not isinstance(context, ssl.SSLContext):
        return None
    cast(Any, litellm).in_memory_llm_clients_cache.set_cache(
        f"async_httpx_clientssl_verify_{context}{provider}", _client()
    )
    return {"ssl_verify": context}


def _client() -> _FilteredHandler:
    """Return the client of the running event loop."""
    client = _CLIENT.get()
    if client is None:
        client = _FilteredHandler()
        _CLIENT.set(client)
    return client


class _FilteredHandler(_http.AsyncHTTPHandler):  # type: ignore[name-defined,misc]  # untyped for us
    """litellm's client over our transport."""

    _sdks: dict[tuple[object, ...], openai.AsyncOpenAI] | None = None

    def sdk(self, api_base: str, api_key: str) -> openai.AsyncOpenAI:
        """Return openai's client for an address and a key; a new one asks for the platform in a thread."""

        def made() -> openai.AsyncOpenAI:
            return _OneAttempt(api_key=api_key, base_url=api_base, http_client=self.client)

        return self._kept((api_base, api_key), made)

    def azure(self, route: Route) -> Mapping[str, Any] | None:
        """Return the client that litellm makes for Azure, over our transport."""
        ours = {name: route.given.get(name) for name in _AZURE_LOGIN}
        ours["azure_ad_token"] = ours["azure_ad_token"] or os.environ.get("AZURE_AD_TOKEN")
        base = route.api_base or litellm.api_base or os.environ.get("AZURE_API_BASE")
        key = route.api_key or litellm.api_key or litellm.azure_key or _first_of(_AZURE_KEYS)
        version = route.given.get("api_version") or litellm.api_version or os.environ.get("AZURE_API_VERSION")
        if not base or "gateway.ai.cloudflare.com" in base:
            return None  # for that, litellm makes another one

        def made() -> openai.AsyncOpenAI:
            theirs: openai.AsyncOpenAI = _azure.get_azure_openai_client(
                api_key=key, api_base=base, api_version=version, litellm_params=ours, _is_async=True
            )
            return theirs.copy(http_client=self.client, max_retries=0)

        return {"client": self._kept((base, key, version, *ours.values()), made)}

    def _kept(self, key: tuple[object, ...], make: Callable[[], openai.AsyncOpenAI]) -> openai.AsyncOpenAI:
        if self._sdks is None:
            self._sdks = {}
        known = self._sdks
        if key not in known:
            if len(known) >= _MOST_SDKS:  # keys change from call to call
                known.clear()
            known[key] = make()
        return known[key]

    def create_client(self, *args: Any, **kwargs: Any) -> httpx.AsyncClient:
        headers = {"accept-encoding": ACCEPTED}
        return httpx.AsyncClient(transport=_FilteredTransport(), headers=headers, timeout=None)


def _first_of(names: Iterable[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class _OneAttempt(openai.AsyncOpenAI):
    """openai's library without its retries, which litellm switches on for some of its vendors."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, 0 if name == "max_retries" else value)


class _FilteredTransport(httpx.AsyncBaseTransport):
    """Passes each answer through the response filter of its call."""

    def __init__(self) -> None:
        self._inner = AiohttpTransport(httpx.create_ssl_context(_http.get_ssl_configuration()))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = _ONGOING.get()
        if call is None or (line := call.line) is None:
            return await self._inner.handle_async_request(request)
        if line.failure is not None:
            raise line.failure  # litellm tries a broken connection again by itself; retrying is not its job
        try:
            return await self._answer(request, call, line)
        except (httpx.TransportError, ProviderError) as error:
            line.failure = error
            raise

    async def _answer(self, request: httpx.Request, call: Ongoing, line: Line) -> httpx.Response:
        if line.parts:
            request = _with_parts(request, line.parts)
        if request.headers.get("accept-encoding") != ACCEPTED:
            request.headers["accept-encoding"] = ACCEPTED
        line.response = response = await self._inner.send(request)
        if 300 <= response.status_code < 400:
            await response.aclose()
            raise line.moved(response.status_code, response.headers, str(request.url))
        if not line.is_filtered:
            headers = response.raw_headers
            return httpx.Response(response.status_code, headers=headers, stream=response, request=request)
        line.response_filter.begin(request.url.path, request.content, response.status_code, response.headers)
        kept = [item for item in response.raw_headers if item[0].lower() not in _OF_THE_BODY]
        if line.response_filter.reads_whole:
            body = line.response_filter.whole(await _read(response, line))
            return httpx.Response(response.status_code, headers=kept, content=body, request=request)
        body_stream = _FilteredBody(call, _received(response, line))
        return httpx.Response(response.status_code, headers=kept, stream=body_stream, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


_MOST_SDKS = 100

_DRAINING = 0.5
"""Seconds to wait for the end of a body whose reply is complete."""

_OF_THE_BODY = frozenset((b"content-encoding", b"content-length", b"transfer-encoding"))
"""Headers that are no longer true of a body that was decoded and fixed."""


def _with_parts(request: httpx.Request, parts: Mapping[str, Any]) -> httpx.Request:
    headers = [item for item in request.headers.raw if item[0].lower() not in _OF_THE_BODY]
    body = put_back(request.content, parts)
    extensions = request.extensions
    return httpx.Request(request.method, request.url, headers=headers, content=body, extensions=extensions)


async def _read(response: Sent, line: Line) -> bytes:
    try:
        if response.status_code >= 400:
            return await beginning(response)
        return b"".join([piece async for piece in _received(response, line)])
    finally:
        await response.aclose()


async def _received(response: Sent, line: Line) -> AsyncGenerator[bytes]:
    """Yield the body, unpacked, as far as it may go."""
    count = 0
    async for piece in body_of(response, lambda why: line.unreadable(f"{why}. Switch that off", False)):
        count += len(piece)
        if line.most_bytes is not None and count > line.most_bytes:
            why = f"it has more than {line.most_bytes} bytes. Raise max_bytes= if it may be that long"
            raise line.unreadable(why, False)
        yield piece


class _FilteredBody(httpx.AsyncByteStream):
    """The body of a stream as the response filter lets it through.

    httpx keeps it for the garbage collector.
    """

    def __init__(self, call: Ongoing, received: AsyncGenerator[bytes]) -> None:
        self._call = call
        self._received = received

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for data in self._received:
                if fixed := self._line.response_filter.feed(data):
                    yield fixed
                self._check()
        except httpx.TransportError:
            if not self._line.response_filter.is_complete:
                raise  # else only a trailer is missing; litellm 1.109 would drop the usage as well
        if rest := self._line.response_filter.end():
            yield rest
        self._check()

    @property
    def _line(self) -> Line:
        if self._call.line is None:
            raise httpx.StreamClosed
        return self._call.line

    def _check(self) -> None:
        if (response_filter := self._line.response_filter).is_broken:
            raise self._line.unreadable(f"{response_filter.strange!r} is no part of a reply", True)

    async def aclose(self) -> None:
        if (line := self._call.line) is None:
            return
        if line.response_filter.is_complete:
            await self._drain()
        await line.hang_up()
        with suppress(RuntimeError):  # it is being read in another task
            await self._received.aclose()

    async def _drain(self) -> None:
        """Read the end of a complete body, so that its connection can be used again."""
        with suppress(httpx.HTTPError, httpx.StreamError, ProviderError), anyio.move_on_after(_DRAINING):
            async for _ in self._received:
                pass
