"""A function that answers requests in place of servers, for tests; see `routelock.testing.use_respx`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any, cast

import httpx
from yarl import URL

from routelock_providers.http.body import IteratedBody
from routelock_providers.http.client import HttpResponse, Pool

__all__ = ["StandIn", "answered_by"]


StandIn = Callable[[httpx.Request], Awaitable[httpx.Response | None]]
"""Returns the answer to a request, or None to send it."""

_LITELLMS_TRANSPORT = "litellm.llms.custom_httpx.aiohttp_transport"

_LITELLM_WITHOUT_AIOHTTP = "DISABLE_AIOHTTP_TRANSPORT"


@contextmanager
def answered_by(answer: StandIn) -> Generator[None]:
    """Let a function answer the handlers' requests of the block, in all threads, except those over httpx.

    These are the requests over aiohttp, the requests of the openai library 3, which has httpx2, and those
    that litellm sends through a client of its own to a few vendors.
    """
    with ExitStack() as stack:
        stack.enter_context(_replaced(Pool, "send", _sender(answer)))
        if find_spec("httpx2") is not None:
            httpx2: Any = importlib.import_module("httpx2")
            stack.enter_context(_answering(httpx2.AsyncHTTPTransport, httpx2, answer))
        if (module := sys.modules.get(_LITELLMS_TRANSPORT)) is not None:
            transport: Any = cast(Any, module).LiteLLMAiohttpTransport
            stack.enter_context(_answering(transport, httpx, answer))
        else:
            # without aiohttp, litellm's clients use httpx
            stack.enter_context(_variable(_LITELLM_WITHOUT_AIOHTTP, "True"))
        yield


def _sender(answer: StandIn) -> object:
    original = Pool.send

    async def send(
        pool: Pool, method: str, url: URL, body: bytes, options: Mapping[str, Any]
    ) -> HttpResponse:
        headers = httpx.Headers(pool.headers)
        headers.update(options.get("headers"))
        response = await answer(httpx.Request(method, str(url), headers=headers, content=body))
        if response is None:
            return await original(pool, method, url, body, options)
        return _GivenResponse(response)

    return send


class _GivenResponse(HttpResponse):
    """An answer of httpx where one of aiohttp is expected."""

    def __init__(self, response: httpx.Response) -> None:
        self._given = response
        self.status_code = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._body = IteratedBody(_body(response))
        self._is_closed = False

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return tuple(self._given.headers.raw)

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        return _body(self._given)

    def read_piece(self) -> Awaitable[bytes]:
        return self._body.read_piece()

    async def unwind(self) -> None:
        await self._body.unwind()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def close(self) -> None:
        self._is_closed = True
        await _close(self._given)


def _answering(transport: Any, library: Any, answer: StandIn) -> Any:
    """Let the function answer in place of a transport of httpx or httpx2, the library of its requests."""
    original = transport.handle_async_request

    class Body(library.AsyncByteStream):  # type: ignore[misc]  # of a library that is chosen at run time
        def __init__(self, response: httpx.Response) -> None:
            self.response = response

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _body(self.response)

        async def aclose(self) -> None:
            await _close(self.response)

    async def handle_async_request(own: Any, request: Any) -> Any:
        asked = httpx.Request(
            request.method, str(request.url), headers=request.headers.raw, content=await request.aread()
        )
        response = await answer(asked)
        if response is None:
            return await original(own, request)
        return library.Response(
            response.status_code, headers=response.headers.raw, stream=Body(response), request=request
        )

    return _replaced(transport, "handle_async_request", handle_async_request)


async def _body(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the body as it arrives, still packed if it is packed."""
    stream: Any = response.stream
    if isinstance(stream, AsyncIterable):
        async for piece in cast("AsyncIterable[bytes]", stream):
            yield piece
    else:
        for piece in cast("Iterable[bytes]", stream):
            yield piece


async def _close(response: httpx.Response) -> None:
    stream: Any = response.stream  # anything that yields bytes, such as a generator
    if hasattr(stream, "aclose"):
        await stream.aclose()
    elif hasattr(stream, "close"):
        stream.close()


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Generator[None]:
    original = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def _variable(name: str, value: str) -> Generator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before
