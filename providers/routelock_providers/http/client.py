"""Connections of aiohttp, which close with their event loop, and requests over them.

An app need not close anything, and aiohttp warns of nothing.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import WeakMethod, finalize

import aiohttp
from multidict import CIMultiDict, istr
from yarl import URL

from routelock.errors import ProviderError
from routelock_providers.http.body import read_error_body
from routelock_providers.http_errors import Answer, error_from_answer, redirect_error

__all__ = ["HttpClient", "HttpResponse", "Pool", "proxy_for", "request_options", "tls_context"]


_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
"""The time limits are those of `routelock_providers.deadlines`, which count only the waiting of a call."""

_LONGEST_HEADER = 65536
"""The longest header, in bytes. Policies and traces of proxies are longer than aiohttp's default of 8190."""

_LARGE = 2**20
"""The most bytes of a body that is passed as bytes. A longer body is passed as a file, because aiohttp warns
of long bytes."""


def request_options(
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    without: Iterable[str] | None = None,
    proxy: str | None = None,
    timeout: aiohttp.ClientTimeout | None = None,
) -> Mapping[str, Any]:
    """Return the arguments of `aiohttp.ClientSession.request` beside method, address and body.

    Args:
        headers: the headers beside those of every request.
        without: headers that aiohttp does not add.
        proxy: the proxy of this request.
        timeout: limits for the connection and each read.
    """
    given = {"headers": headers, "skip_auto_headers": without, "proxy": proxy, "timeout": timeout}
    return {"allow_redirects": False} | {name: each for name, each in given.items() if each is not None}


class Pool:
    """The connections of the running event loop, closed with the loop or when their owner is gone.

    The sessions live in an asynchronous generator, which a loop closes when it ends
    (``loop.shutdown_asyncgens``). Python also closes a generator without references. A finalizer of the owner
    holds the reference, so that the generator outlives the owner and closes the sessions before they are
    garbage themselves.

    Args:
        owner: the object that uses the pool; must live as long as the pool is used.
        tls: the TLS context, see `tls_context`.
        forget: a method of the owner that drops the pool. It is called when the loop ends; a pool that stayed
            would keep the loop alive.
        headers: sent with each request.
        proxy: the proxy of each request.
    """

    def __init__(
        self,
        owner: object,
        tls: ssl.SSLContext | bool,
        forget: Callable[[], None],
        *,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
    ) -> None:
        # aiohttp copies the headers into each request, and lowers names of any other type each time
        self.headers: CIMultiDict[str] = CIMultiDict(
            {istr(name): value for name, value in (headers or {}).items()}
        )
        self._tls = tls
        self._proxy = proxy
        self._retry_session: aiohttp.ClientSession | None = None
        """Opens a new connection for each request."""
        self._session = self._new_session(force_close=False)
        self._sessions = [self._session]
        self._closing = _close_at_end(self._sessions, WeakMethod(forget))
        self._finalizer = finalize(owner, _drop, self._closing)
        self._finalizer.atexit = False

    async def send(self, method: str, url: URL, body: bytes, options: Mapping[str, Any]) -> HttpResponse:
        """Send a request and return the answer when its head has arrived. Redirects are not followed.

        A server may end a used connection while the next request is on its way. Such a request is sent once
        more, over a new connection, unless a part of the answer has arrived.

        Args:
            method: the HTTP method.
            url: the address.
            body: the body of the request.
            options: see `request_options`.

        Raises:
            aiohttp.ClientError: no answer came.
        """
        attempt = _Attempt()
        token = _ATTEMPT.set(attempt)
        try:
            return HttpResponse(await self._session.request(method, url, data=_as_data(body), **options))
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not attempt.met_closed_connection(error, tls=url.scheme == "https"):
                raise
        finally:
            _ATTEMPT.reset(token)
        if self._retry_session is None:
            self._retry_session = self._new_session(force_close=True)
            self._sessions.append(self._retry_session)
        return HttpResponse(await self._retry_session.request(method, url, data=_as_data(body), **options))

    async def open(self) -> None:
        """Register the pool with the running event loop."""
        await anext(self._closing)

    async def aclose(self) -> None:
        """Close the connections now."""
        self.release()
        await self._closing.aclose()

    def release(self) -> None:
        """Drop the reference that the owner holds."""
        self._finalizer.detach()

    def _new_session(self, *, force_close: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._tls, force_close=force_close, socket_factory=_socket
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self.headers,
            timeout=_NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            proxy=self._proxy,
        )


def _as_data(body: bytes) -> bytes | BytesIO:
    return body if len(body) < _LARGE else BytesIO(body)


class _Attempt:
    """One attempt to send a request, and what its socket saw."""

    is_new = False
    """Whether the connection was opened for this request."""
    has_sent = False
    """Whether bytes were sent; stays False if the event loop does not call the methods of the socket."""
    has_received = False
    """Whether bytes came back."""

    def met_closed_connection(self, error: Exception, *, tls: bool) -> bool:
        """Return whether a used connection ended before the first byte of the answer.

        With TLS bytes may arrive that are no answer: the server's notice that it closes the connection.
        """
        if self.is_new:
            return False
        if isinstance(error, aiohttp.ServerDisconnectedError) and (tls or not self.has_sent):
            # else the message is the part of the head that arrived
            return isinstance(error.message, str)
        if self.has_sent:
            return not self.has_received
        return isinstance(error.__cause__, aiohttp.ClientConnectionResetError)


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("routelock_attempt", default=None)


class _Socket(socket.socket):
    """A socket that records on the current attempt whether bytes were sent and received."""

    _attempt: _Attempt | None = None

    def send(self, *args: Any) -> int:
        self._record_send()
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        self._record_send()
        return super().sendmsg(*args)

    def recv(self, *args: Any) -> bytes:
        data = super().recv(*args)
        if data and self._attempt is not None:
            self._attempt.has_received = True
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        count = super().recv_into(buffer, nbytes, flags)
        if count and self._attempt is not None:
            self._attempt.has_received = True
        return count

    def _record_send(self) -> None:
        attempt = _ATTEMPT.get()
        if attempt is not None:
            self._attempt = attempt
            attempt.has_sent = True


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """Return the socket of a new connection."""
    if (attempt := _ATTEMPT.get()) is not None:
        attempt.is_new = True
    family, kind, protocol, *_ = address
    return _Socket(family, kind, protocol)


def _drop(closing: object) -> None:
    """Do nothing: the finalizer drops its reference to the generator, and Python closes it."""


async def _close_at_end(
    sessions: list[aiohttp.ClientSession], forget: WeakMethod[Callable[[], None]]
) -> AsyncGenerator[None]:
    """Wait to be closed, then close the sessions and call ``forget`` if its object still exists."""
    try:
        yield
    finally:
        for session in sessions:
            await session.close()
        if (call := forget()) is not None:
            call()


def tls_context() -> ssl.SSLContext:
    """Return a TLS context with the certificates that httpx uses.

    They are those of SSL_CERT_FILE or SSL_CERT_DIR, else of certifi if it is installed.
    """
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")) and find_spec("certifi"):
        import certifi  # noqa: PLC0415 - aiohttp comes without it

        return ssl.create_default_context(cafile=certifi.where())
    return ssl.create_default_context()


def proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names for this address. This is slow, so cache it."""
    if url.host is None or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


class HttpResponse:
    """An answer whose body has not been read."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status_code: Any = response.status
        self.headers: Mapping[str, str] = response.headers
        self._closed: asyncio.Future[None] | None = None
        connection = response.connection  # None if the whole answer has arrived
        if connection is not None and connection.protocol is not None:
            self._closed = connection.protocol.closed
        if self._closed is not None:
            self._closed.remove_done_callback(_retrieve_exception)
            self._closed.add_done_callback(_retrieve_exception)
            self._closed.add_done_callback(self._fail_body)

    def _fail_body(self, closed: object) -> None:
        """Fail the body if the connection closed in it: aiohttp 3.14 does not, after unreadable chunks."""
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed within the body"))

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers as bytes: other libraries take text in ASCII only."""
        return self._response.raw_headers

    @property
    def response(self) -> HttpResponse:
        """The answer itself."""
        return self

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, without decompressing it."""
        return self._response.content.iter_any()

    def read_piece(self) -> Awaitable[bytes]:
        """Wait for the next bytes of the body; none at its end."""
        return self._response.content.readany()

    async def unwind(self) -> None:
        """Do nothing: a read of aiohttp leaves no generator."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection was released or ended."""
        return self._response.closed

    async def close(self) -> None:
        """Release the connection, or end it if part of the body is unread."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._fail_body)
        if not self._response.closed:
            self._response.close()


def _retrieve_exception(closed: asyncio.Future[None]) -> None:
    """Retrieve the exception of a closed connection, so that asyncio does not warn of it."""
    if not closed.cancelled():
        closed.exception()


class HttpClient:
    """Posts JSON to one address.

    Args:
        url: the address.
        headers: sent with each request.
        provider: the vendor, for errors.
        model: the model, for errors.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, provider: str, model: str) -> None:
        self._url = URL(url, encoded=True)
        self._headers = headers
        self._names = (provider, model)
        self._options = request_options()
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send a body and return the answer when its headers have arrived.

        Raises:
            ProviderError: the server refused the request or redirects it.
        """
        pool = self._pools.get(asyncio.get_running_loop()) or await self._opened()
        options = self._options if headers is None else request_options(headers=headers)
        response = await pool.send("POST", self._url, body, options)
        if response.status_code >= 300:
            try:
                raise await self._refusal(response)
            finally:
                await response.close()
        return response

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.aclose()

    async def _opened(self) -> Pool:
        for ended in [loop for loop in self._pools if loop.is_closed()]:
            self._pools.pop(ended).release()
        tls = tls_context() if self._url.scheme == "https" else True
        pool = Pool(self, tls, self._forget, headers=self._headers, proxy=proxy_for(self._url))
        self._pools[asyncio.get_running_loop()] = pool
        await pool.open()
        return pool

    def _forget(self) -> None:
        if (pool := self._pools.pop(asyncio.get_running_loop(), None)) is not None:
            pool.release()

    async def _refusal(self, response: HttpResponse) -> ProviderError:
        provider, model = self._names
        status = response.status_code
        if status < 400:
            url = str(self._url)
            return redirect_error(status, response.headers, url=url, provider=provider, model=model)
        body = await read_error_body(response)
        answer = Answer(status, response.headers, body.decode("utf-8", "replace"))
        return error_from_answer(answer, provider=provider, model=model, url=str(self._url))
