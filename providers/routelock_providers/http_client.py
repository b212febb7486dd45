"""HTTP by aiohttp: one pool of connections per event loop, closed with it.

This imports aiohttp; `routelock_providers.openai_compatible` imports it at the first call, not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import aiohttp
from yarl import URL

from routelock.errors import ProviderError
from routelock_providers.answers import Answer, error_from_answer
from routelock_providers.bodies import beginning
from routelock_providers.pools import PLAIN, Pool, options, proxy_for, trusted
from routelock_providers.received import Arrived
from routelock_providers.redirects import redirect_refused

__all__ = ["HttpClient", "HttpResponse"]


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
