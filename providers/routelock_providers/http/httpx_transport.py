"""A client and a transport of httpx that send requests with aiohttp.

The pool of httpx visits all of its connections for each request. With hundreds of connections this takes
longer than the rest of a call.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Mapping
from http.cookiejar import CookieJar

import aiohttp
import httpx
from yarl import URL

from routelock_providers.http.client import HttpResponse, Pool, proxy_for, request_options

__all__ = ["AiohttpTransport", "HttpxClient", "Sent"]


_BODY_HEADERS = frozenset(("content-length", "transfer-encoding"))
"""Headers that aiohttp sets itself."""

_ADDED = ("user-agent", "accept", "content-type", "accept-encoding")
"""Headers that aiohttp adds to a request without them."""

_HTTPX_ERRORS: tuple[
    tuple[type[Exception] | tuple[type[Exception], ...], type[httpx.TransportError]], ...
] = (
    (aiohttp.ConnectionTimeoutError, httpx.ConnectTimeout),
    (TimeoutError, httpx.ReadTimeout),
    (aiohttp.ClientConnectorError, httpx.ConnectError),
    ((aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError), httpx.UnsupportedProtocol),
    (
        (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError),
        httpx.RemoteProtocolError,
    ),
    ((aiohttp.ClientError, OSError), httpx.NetworkError),
)


class _NoCookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """Keep none of the cookies of an answer."""


class HttpxClient(httpx.AsyncClient):
    """A client of httpx that keeps no cookies, because its next request may be of another user.

    To look for cookies, httpx turns each answer and its request into those of urllib. That takes about as
    long as to send the request.
    """

    _none: httpx.Cookies | None = None

    @property
    def cookies(self) -> httpx.Cookies:
        """No cookies."""
        if self._none is None:
            self._none = _NoCookies()
        return self._none

    @cookies.setter
    def cookies(self, cookies: httpx.Cookies | CookieJar | dict[str, str] | list[tuple[str, str]]) -> None:
        raise AttributeError("this client keeps no cookies: pass a header")


class Sent(httpx.AsyncByteStream):
    """The answer to a request, with its body as it arrives: still packed if it is packed."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response
        self.status_code: int = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self.raw_headers: tuple[tuple[bytes, bytes], ...] = response.raw_headers
        """The headers as bytes: httpx takes text in ASCII only."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self.read_piece():
            yield piece

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Return the pieces of the body."""
        return aiter(self)

    async def read_piece(self) -> bytes:
        """Wait for the next bytes of the body; none at its end.

        Raises:
            httpx.TransportError: the body broke off.
        """
        try:
            return await self._response.read_piece()
        except (aiohttp.ClientError, OSError) as error:
            raise _as_httpx(error) from error

    async def unwind(self) -> None:
        """Unwind the generators of a body that is not read to its end."""
        await self._response.unwind()

    @property
    def is_closed(self) -> bool:
        """Whether the connection was released or ended."""
        return self._response.is_closed

    async def aclose(self) -> None:
        """Release the connection, or end it if part of the body is unread."""
        await self._response.close()


class AiohttpTransport(httpx.AsyncBaseTransport):
    """Sends requests over the connections of one event loop, which close with it.

    Args:
        tls: the TLS context.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._pool: Pool | None = None
        self._proxy_for = functools.lru_cache(maxsize=100)(_proxy_for)

    async def send(self, request: httpx.Request) -> Sent:
        """Send a request and return the answer when its headers have arrived.

        Raises:
            httpx.TransportError: no answer came.
        """
        pool = self._pool or await self._opened()
        url, body = request.url, await request.aread()
        proxy = self._proxy_for(url.scheme, url.host)
        headers = [item for item in request.headers.multi_items() if item[0] not in _BODY_HEADERS]
        names = {name for name, _ in headers}
        options = request_options(
            headers=headers,
            without=[name for name in _ADDED if name not in names] or None,
            proxy=proxy,
            timeout=_timeout(**request.extensions.get("timeout", {})),
        )
        try:
            return Sent(await pool.send(request.method, URL(str(url), encoded=True), body, options))
        except (aiohttp.ClientError, OSError) as error:
            raise _as_httpx(error) from error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request for httpx."""
        sent = await self.send(request)
        return httpx.Response(sent.status_code, headers=sent.raw_headers, stream=sent, request=request)

    async def aclose(self) -> None:
        """Close the connections now."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _opened(self) -> Pool:
        self._pool = pool = Pool(self, self._tls, self._forget)
        await pool.open()
        return pool

    def _forget(self) -> None:
        if self._pool is not None:
            self._pool.release()
        self._pool = None


def _proxy_for(scheme: str, host: str) -> str | None:
    return proxy_for(URL.build(scheme=scheme, host=host))


@functools.lru_cache(maxsize=100)
def _timeout(
    connect: float | None = None,
    read: float | None = None,
    write: float | None = None,
    pool: float | None = None,
) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=read)


def _as_httpx(error: Exception) -> httpx.TransportError:
    """Return an error of aiohttp as an error of httpx."""
    kind = next(theirs for ours, theirs in _HTTPX_ERRORS if isinstance(error, ours))
    return kind(str(error))
