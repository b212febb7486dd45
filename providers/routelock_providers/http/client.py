"""Connections of aiohttp, which end with the event loop they were made on, and requests over them.

An app need not close anything, and aiohttp finds nothing to complain of.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import WeakMethod, finalize

import aiohttp
from yarl import URL

from routelock.errors import ProviderError
from routelock_providers.http.body import Arrived, beginning
from routelock_providers.http_errors import Answer, error_from_answer
from routelock_providers.redirects import redirect_refused

__all__ = ["NO_TIMEOUT", "PLAIN", "HttpClient", "HttpResponse", "Pool", "options", "proxy_for", "trusted"]


NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
"""Deadlines are `routelock_providers.deadlines`'s: they count the waiting of a call and nothing else."""

_LONGEST_HEADER = 65536
"""Bytes. Policies and traces of proxies are longer than the 8190 that aiohttp takes by itself."""

_LARGE = 2**20
"""A body that is this long is handed to aiohttp as a file: it warns of long bytes."""

PLAIN: Mapping[str, Any] = {"allow_redirects": False}
"""How a request is sent of which there is nothing to say."""


def options(
    *,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    without: Iterable[str] | None = None,
    proxy: str | None = None,
    timeout: aiohttp.ClientTimeout = NO_TIMEOUT,
) -> Mapping[str, Any]:
    """Return how a request is to be sent.

    Args:
        headers: more than those of each request.
        without: headers that aiohttp is not to add by itself.
        proxy: through which this request goes.
        timeout: how long a connection, and each read, may take.
    """
    more = {"headers": headers, "skip_auto_headers": without, "proxy": proxy, "timeout": timeout}
    return {**PLAIN, **more}


class Pool:
    """The connections of the running event loop, closed whenever nobody can use them any more.

    The sessions live in an asynchronous generator, and a loop that ends closes those
    (``loop.shutdown_asyncgens``). One that nobody refers to is closed as well; so that this is not the moment
    in which a session itself is torn down, it is kept apart from its owner until the owner is gone.

    Args:
        owner: whoever uses it; must live as long as it is used.
        tls: whom to trust, see `trusted`.
        forget: a method of the owner's that lets go of the pool. It is called when the loop ends, which a
            pool that is kept would keep as well, with all that hangs on it.
        headers: sent with each request.
        proxy: through which each request goes.
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
        self._tls = tls
        self._headers = headers
        self._proxy = proxy
        self._fresh: aiohttp.ClientSession | None = None
        self._session = self._made(force_close=False)
        self._sessions = [self._session]
        self._keeper = _keep(self._sessions, WeakMethod(forget))
        self._kept_apart = finalize(owner, _nothing, self._keeper)
        self._kept_apart.atexit = False

    async def send(
        self, method: str, url: URL, body: bytes, how: Mapping[str, Any]
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer as soon as its head is there. Redirects are answers.

        A server may end a connection while the next request is on its way there. Such a request is sent once
        more, over a new connection, unless anything of an answer has come.

        Args:
            method: of HTTP.
            url: where to.
            body: what to send.
            how: more that `aiohttp.ClientSession.request` is to know: `PLAIN` or `options`.

        Raises:
            aiohttp.ClientError: there is none.
        """
        attempt = _Attempt()
        token = _ATTEMPT.set(attempt)
        try:
            return await self._session.request(method, url, data=_as_data(body), **how)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if not attempt.came_too_late(error, tls=url.scheme == "https"):
                raise
        finally:
            _ATTEMPT.reset(token)
        if self._fresh is None:
            self._fresh = self._made(force_close=True)
            self._sessions.append(self._fresh)
        return await self._fresh.request(method, url, data=_as_data(body), **how)

    async def open(self) -> None:
        """Let the running event loop know of it."""
        await anext(self._keeper)

    async def aclose(self) -> None:
        """Close the connections now."""
        self.let_go()
        await self._keeper.aclose()

    def let_go(self) -> None:
        """Forget about the owner."""
        self._kept_apart.detach()

    def _made(self, *, force_close: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, ssl=self._tls, force_close=force_close, socket_factory=_socket
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            timeout=NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            proxy=self._proxy,
        )


def _as_data(body: bytes) -> bytes | BytesIO:
    return body if len(body) < _LARGE else BytesIO(body)


class _Attempt:
    """What is known of the connection that a request was sent over."""

    is_new = False
    sent = False
    """Whether anything was; False as well where the event loop does not use the socket itself."""
    heard = False
    """Whether anything came back."""

    def came_too_late(self, error: Exception, *, tls: bool) -> bool:
        """Whether a connection that had been used before ended before the first byte of an answer came.

        By TLS, more than an answer comes in: a server says that it ends the connection.
        """
        if self.is_new:
            return False
        if isinstance(error, aiohttp.ServerDisconnectedError) and (tls or not self.sent):
            return isinstance(error.message, str)  # else it is what came of the head
        if self.sent:
            return not self.heard
        return isinstance(error.__cause__, aiohttp.ClientConnectionResetError)  # there was nobody to send to


_ATTEMPT: ContextVar[_Attempt | None] = ContextVar("routelock_attempt", default=None)


class _Socket(socket.socket):
    """Tells the attempt at hand what goes out and comes in."""

    _attempt: _Attempt | None = None

    def send(self, *args: Any) -> int:
        self._begin()
        return super().send(*args)

    def sendmsg(self, *args: Any) -> int:
        self._begin()
        return super().sendmsg(*args)

    def recv(self, *args: Any) -> bytes:
        data = super().recv(*args)
        if data and self._attempt is not None:
            self._attempt.heard = True
        return data

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        count = super().recv_into(buffer, nbytes, flags)
        if count and self._attempt is not None:
            self._attempt.heard = True
        return count

    def _begin(self) -> None:
        attempt = _ATTEMPT.get()
        if attempt is not None:
            self._attempt = attempt
            attempt.sent = True


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """Make the socket of a new connection."""
    if (attempt := _ATTEMPT.get()) is not None:
        attempt.is_new = True
    family, kind, protocol, *_ = address
    return _Socket(family, kind, protocol)


def _nothing(keeper: object) -> None:
    """Do nothing: that nobody keeps the keeper any more is what closes it."""


async def _keep(
    sessions: list[aiohttp.ClientSession], forget: WeakMethod[Callable[[], None]]
) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        for session in sessions:
            await session.close()
        if (tell := forget()) is not None:
            tell()


def trusted() -> ssl.SSLContext:
    """Trust whom httpx trusts: what SSL_CERT_FILE or SSL_CERT_DIR name, else certifi where it is there."""
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")) and find_spec("certifi"):
        import certifi  # noqa: PLC0415 - aiohttp comes without it

        return ssl.create_default_context(cafile=certifi.where())
    return ssl.create_default_context()


def proxy_for(url: URL) -> str | None:
    """Return the proxy that the environment names for this address: for few calls, it takes long."""
    if url.host is None or proxy_bypass(url.host):
        return None
    proxies = getproxies()
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


class HttpResponse:
    """An answer whose body has not been read yet."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status_code = response.status
        self.headers: Mapping[str, str] = response.headers
        self._closed: asyncio.Future[None] | None = None
        connection = response.connection  # that of an answer which has come in full was given back
        if connection is not None and connection.protocol is not None:
            self._closed = connection.protocol.closed
        if self._closed is not None:
            self._closed.remove_done_callback(_heard)
            self._closed.add_done_callback(_heard)
            self._closed.add_done_callback(self._tell)

    def _tell(self, closed: object) -> None:
        """Tell whoever reads the body: aiohttp 3.14 does not, after chunks that it could not read."""
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed within the body"))

    @property
    def raw_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """As they came: other libraries take text in ASCII only."""
        return self._response.raw_headers

    @property
    def response(self) -> HttpResponse:
        """The answer itself."""
        return self

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives: packed, if it is."""
        content = self._response.content
        if content.is_eof() and content.exception() is None:
            return Arrived(content.read_nowait())
        return content.iter_any()

    aiter_bytes = aiter_raw

    @property
    def is_closed(self) -> bool:
        """Whether the connection was given back, or ended."""
        return self._response.closed

    async def close(self) -> None:
        """Give back the connection, or end it when something is left unread."""
        if self._closed is not None:
            self._closed.remove_done_callback(self._tell)
        if not self._response.closed:
            self._response.close()


def _heard(closed: asyncio.Future[None]) -> None:
    """Take note of how a connection ended, or asyncio complains that nobody did."""
    if not closed.cancelled():
        closed.exception()


class HttpClient:
    """Posts JSON to one address.

    Args:
        url: where to.
        headers: sent with each request.
        provider: whom errors name.
        model: the model that errors name.
    """

    def __init__(self, url: str, headers: Mapping[str, str], *, provider: str, model: str) -> None:
        self._url = URL(url, encoded=True)
        self._headers = headers
        self._who = (provider, model)
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}

    async def post(self, body: bytes, headers: Mapping[str, str] | None = None) -> HttpResponse:
        """Send a body and return the answer as soon as its headers are there.

        Raises:
            ProviderError: the server refused, or redirects elsewhere.
        """
        pool = self._pools.get(asyncio.get_running_loop()) or await self._opened()
        how = PLAIN if headers is None else options(headers=headers)
        response = HttpResponse(await pool.send("POST", self._url, body, how))
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
            self._pools.pop(ended).let_go()
        tls = trusted() if self._url.scheme == "https" else True
        pool = Pool(self, tls, self._forget, headers=self._headers, proxy=proxy_for(self._url))
        self._pools[asyncio.get_running_loop()] = pool
        await pool.open()
        return pool

    def _forget(self) -> None:
        if (pool := self._pools.pop(asyncio.get_running_loop(), None)) is not None:
            pool.let_go()

    async def _refusal(self, response: HttpResponse) -> ProviderError:
        provider, model = self._who
        status = response.status_code
        if status < 400:
            url = str(self._url)
            return redirect_refused(status, response.headers, url=url, provider=provider, model=model)
        body = await beginning(response)
        answer = Answer(status, response.headers, body.decode("utf-8", "replace"))
        return error_from_answer(answer, provider=provider, model=model, url=str(self._url))
