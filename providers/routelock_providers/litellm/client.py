"""The HTTP client that is passed to litellm.

A `ResponseFilter` reads each answer before litellm does.

The client follows no redirect. litellm's own clients do, and send the key and the conversation along.

One client serves all calls of an event loop. A context variable says which call an answer belongs to, because
litellm creates tasks of its own.

This module imports httpx and litellm; `exchange.py` imports it at the first call, not before.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import litellm
import openai
from anyio.lowlevel import RunVar
from litellm.llms.azure.azure import AzureChatCompletion  # pyright: ignore[reportMissingTypeStubs]
from litellm.llms.custom_httpx import http_handler as _untyped
from litellm.llms.openai_like import json_loader

from routelock.errors import ProviderError
from routelock_providers.http.body import ACCEPTED, BodyReader, read_error_body
from routelock_providers.http.httpx_transport import AiohttpTransport, HttpxClient, Sent
from routelock_providers.litellm.request import first_variable
from routelock_providers.litellm.response_filter import ResponseFilter
from routelock_providers.litellm.wire import WireChanges

__all__ = [
    "ActiveCall",
    "CallConnection",
    "Route",
    "close_client",
    "enter_call",
    "exit_call",
    "filtered_client",
]


_http = cast(Any, _untyped)

_azure = cast(Any, AzureChatCompletion)()

_ACTIVE_CALL: ContextVar[ActiveCall | None] = ContextVar("routelock_active_call", default=None)

_CLIENT: RunVar[_FilteredHandler | None] = RunVar("routelock_filtered_client", None)
"""The client of each event loop. litellm keeps its own by the ``id()`` of the loop, which may be used
again."""

_OWN_HTTP = frozenset(
    "a2a anthropic azure_ai bedrock bytez cometapi compactifai databricks datarobot deepseek fireworks_ai "
    "gemini groq heroku hosted_vllm huggingface minimax mistral nadir ollama ollama_chat openrouter ovhcloud "
    "snowflake together_ai vertex_ai vertex_ai_beta xai".split()
)
"""Providers that litellm asks through its own HTTP client, which can be passed as ``client=``."""

_UNFILTERED = frozenset(
    "bedrock_mantle databricks_agent edenai langflow langgraph lemonade opencode_go".split()
)
"""Providers that are asked through such a client too. The format of their answers is unknown, so none is
filtered."""

_UNFILTERED_BY_SDK = frozenset(("bigmodel", "text-completion-openai"))

_UNFILTERED_BY_KEY = frozenset(("anthropic_text", "cloudflare", "cohere", "gradient_ai"))

_AZURE_TEXT = "azure_text"
"""Azure's text completions, without chat."""

_OF_UNKNOWN_FORMAT = _UNFILTERED | _UNFILTERED_BY_SDK | _UNFILTERED_BY_KEY | {_AZURE_TEXT}

_AZURE = frozenset(("azure", _AZURE_TEXT))

_AZURE_KEYS = ("AZURE_OPENAI_API_KEY", "AZURE_API_KEY")

_AZURE_LOGIN = (
    "azure_ad_token azure_ad_token_provider tenant_id client_id client_secret azure_username azure_password "
    "azure_scope".split()
)

_NOT_BY_SDK = frozenset("anyscale chatgpt clarifai github_copilot ragflow".split())
"""Providers that litellm calls compatible with OpenAI and does not ask through the openai library."""


# These lists come from calls to every provider of litellm 1.105.3, 1.109.1 and 1.110.2. A provider in none of
# them is asked through litellm's own client.


@dataclass(slots=True, kw_only=True)
class Route:
    """The provider that litellm asks, and its address."""

    provider: str
    responses: bool
    """Whether the call goes to the Responses API."""
    api_base: str | None
    api_key: str | None
    given: Mapping[str, Any]
    """The arguments of the call to litellm."""

    @property
    def is_filtered(self) -> bool:
        """Whether the format of the answer is known."""
        return self.responses or self.provider not in _OF_UNKNOWN_FORMAT


@dataclass(slots=True)
class CallConnection:
    """The connection of one call: its response filter, its answer or failure, and its end."""

    response_filter: ResponseFilter
    most_bytes: int | None
    """The largest size of the answer's body."""
    unreadable: Callable[[str, bool], ProviderError]
    """Returns the error for a body that cannot be read, from the reason and whether to retry."""
    redirected: Callable[[int, Mapping[str, str], str], ProviderError]
    """Returns the error for a redirect, from status, headers and the address that was asked."""
    is_filtered: bool = True
    """Whether the response filter reads the answer before litellm does."""
    changes: WireChanges = field(default_factory=WireChanges)
    """The changes to make in the request."""
    failure: httpx.TransportError | ProviderError | None = None
    response: Sent | None = None

    @property
    def is_open(self) -> bool:
        """Whether an answer was not read to its end; whole answers are, before litellm sees them."""
        return self.response is not None and not self.response.is_closed

    async def close(self) -> None:
        """Close the connection if it is still open. litellm 1.105 leaves some open."""
        if self.response is not None:
            with suppress(Exception):  # the call is over, so errors do not matter
                await self.response.aclose()


@dataclass(slots=True)
class ActiveCall:
    """A call, with its connection until the call is over.

    litellm logs when it is idle, and keeps a copy of the context of each call until then, up to 50,000 of
    them. The contexts must not keep the requests, replies and connections alive.
    """

    connection: CallConnection | None


def enter_call(call: ActiveCall) -> Token[ActiveCall | None]:
    """Assign the requests of this task to the call, until `exit_call`."""
    return _ACTIVE_CALL.set(call)


def exit_call(token: Token[ActiveCall | None]) -> None:
    """Undo `enter_call`. The code between the two must not yield: its reader may be another task."""
    _ACTIVE_CALL.reset(token)


def filtered_client(route: Route) -> Mapping[str, Any] | None:
    """Return the arguments that make litellm use the filtered client, or None if it cannot on this route."""
    if route.responses or route.provider == "cohere_chat" or route.provider in _UNFILTERED_BY_KEY:
        return _found_by_key("cohere_chat" if route.provider == "cohere" else route.provider)
    if route.provider in _OWN_HTTP or route.provider in _UNFILTERED:
        return {"client": _client()}
    if route.provider in _AZURE:
        return _client().azure(route)
    if _goes_by_sdk(route.provider) and route.api_base and route.api_key:
        return {"client": _client().sdk(route.api_base, route.api_key)}
    return None


def _goes_by_sdk(provider: str) -> bool:
    if provider in ("openai", "custom_openai") or provider in _UNFILTERED_BY_SDK:
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
    """Store the client for routes without ``client=``.

    The client is put where litellm looks; the result is the argument with which litellm finds it.

    litellm keeps its clients by a key made of the TLS context and the provider. The context here is new, so
    the key is free. If a later litellm uses another key, it makes its own client with this context, and the
    call is not filtered.
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
    """litellm's client with a transport that filters."""

    _sdks: dict[tuple[object, ...], openai.AsyncOpenAI] | None = None

    def sdk(self, api_base: str, api_key: str) -> openai.AsyncOpenAI:
        """Return the client of the openai library for an address and a key."""

        def made() -> openai.AsyncOpenAI:
            return _OneAttempt(api_key=api_key, base_url=api_base, http_client=self.client)

        return self._kept((api_base, api_key), made)

    def azure(self, route: Route) -> Mapping[str, Any] | None:
        """Return the client that litellm makes for Azure, with a transport that filters."""
        login = {name: route.given.get(name) for name in _AZURE_LOGIN}
        login["azure_ad_token"] = login["azure_ad_token"] or os.environ.get("AZURE_AD_TOKEN")
        base = route.api_base or litellm.api_base or os.environ.get("AZURE_API_BASE")
        key = route.api_key or litellm.api_key or litellm.azure_key or first_variable(*_AZURE_KEYS)
        version = route.given.get("api_version") or litellm.api_version or os.environ.get("AZURE_API_VERSION")
        if not base or "gateway.ai.cloudflare.com" in base:
            return None  # litellm makes another client for this gateway

        def made() -> openai.AsyncOpenAI:
            client: openai.AsyncOpenAI = _azure.get_azure_openai_client(
                api_key=key, api_base=base, api_version=version, litellm_params=login, _is_async=True
            )
            return client.copy(http_client=self.client, max_retries=0)

        return {"client": self._kept((base, key, version, *login.values()), made)}

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
        return HttpxClient(transport=_FilteredTransport(), headers=headers, timeout=None)


class _OneAttempt(openai.AsyncOpenAI):
    """The client of the openai library without retries, which litellm switches on for some vendors."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, 0 if name == "max_retries" else value)


class _FilteredTransport(httpx.AsyncBaseTransport):
    """Passes each answer to the response filter of its call."""

    def __init__(self) -> None:
        self._inner = AiohttpTransport(httpx.create_ssl_context(_http.get_ssl_configuration()))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        call = _ACTIVE_CALL.get()
        if call is None or (connection := call.connection) is None:
            return await self._inner.handle_async_request(request)
        if connection.failure is not None:
            raise connection.failure  # litellm retries a broken connection, but only the run may retry
        try:
            return await self._answer(request, call, connection)
        except (httpx.TransportError, ProviderError) as error:
            connection.failure = error
            raise

    async def _answer(
        self, request: httpx.Request, call: ActiveCall, connection: CallConnection
    ) -> httpx.Response:
        if connection.changes:
            request = _changed(request, connection.changes)
        if request.headers.get("accept-encoding") != ACCEPTED:
            request.headers["accept-encoding"] = ACCEPTED
        connection.response = response = await self._inner.send(request)
        if 300 <= response.status_code < 400:
            await response.aclose()
            raise connection.redirected(response.status_code, response.headers, str(request.url))
        if not connection.is_filtered:
            headers = response.raw_headers
            return httpx.Response(response.status_code, headers=headers, stream=response, request=request)
        response_filter = connection.response_filter
        response_filter.begin(request.url.path, request.content, response.status_code, response.headers)
        kept = [item for item in response.raw_headers if item[0].lower() not in _OF_THE_BODY]
        reader = _body_reader(response, call, connection.most_bytes)
        if response_filter.reads_whole:
            body = response_filter.whole(await _read_whole(response, reader))
            return httpx.Response(response.status_code, headers=kept, content=body, request=request)
        body_stream = _FilteredBody(call, reader)
        return httpx.Response(response.status_code, headers=kept, stream=body_stream, request=request)

    async def aclose(self) -> None:
        await self._inner.aclose()


_MOST_SDKS = 100

_OF_THE_BODY = frozenset((b"content-encoding", b"content-length", b"transfer-encoding"))
"""Headers that are wrong for a body that was unpacked and fixed."""


def _changed(request: httpx.Request, changes: WireChanges) -> httpx.Request:
    headers = changes.headers([item for item in request.headers.raw if item[0].lower() not in _OF_THE_BODY])
    body = changes.body(request.content)
    extensions = request.extensions
    return httpx.Request(request.method, request.url, headers=[*headers], content=body, extensions=extensions)


async def _read_whole(response: Sent, reader: BodyReader) -> bytes:
    try:
        if response.status_code >= 400:
            return await read_error_body(response)
        return await reader.read_all()
    finally:
        await response.aclose()


def _body_reader(response: Sent, call: ActiveCall, limit: int | None) -> BodyReader:
    """Return the reader of a body. It refers to the call and not to its connection, see `_FilteredBody`."""

    def refuse(why: str) -> Exception:
        return _unreadable(call, f"{why}. Switch compression off for this address")

    def too_long() -> Exception:
        return _unreadable(call, f"it has more than {limit} bytes. Raise max_bytes= if it may be that long")

    return BodyReader(response, limit, too_long=too_long, refuse=refuse)


def _unreadable(call: ActiveCall, why: str) -> Exception:
    connection = call.connection
    return httpx.StreamClosed() if connection is None else connection.unreadable(why, False)


class _FilteredBody(httpx.AsyncByteStream):
    """The body of a stream as the response filter passes it on.

    httpx keeps it until the garbage collector runs, so it refers to the call and not to its connection.
    """

    def __init__(self, call: ActiveCall, reader: BodyReader) -> None:
        self._call = call
        self._reader = reader

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while data := await self._reader.read():
                if fixed := self._connection.response_filter.feed(data):
                    yield fixed
                self._check()
        except httpx.TransportError:
            if not self._connection.response_filter.is_complete:
                raise  # otherwise only usage is missing, and litellm 1.109 would drop all usage
        if rest := self._connection.response_filter.end():
            yield rest
        self._check()

    @property
    def _connection(self) -> CallConnection:
        if self._call.connection is None:
            raise httpx.StreamClosed
        return self._call.connection

    def _check(self) -> None:
        if (response_filter := self._connection.response_filter).is_broken:
            raise self._connection.unreadable(f"{response_filter.unreadable!r} is not part of a reply", True)

    async def aclose(self) -> None:
        if (connection := self._call.connection) is None:
            return
        if connection.response_filter.is_complete:
            await self._reader.drain()  # so that the connection can be used again
        await connection.close()
        await self._reader.aclose()
