"""Connections of aiohttp, which end with the event loop they were made on.

An app need not close anything, and aiohttp finds nothing to complain of.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from importlib.util import find_spec
from io import BytesIO
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import finalize

import aiohttp
from yarl import URL

__all__ = ["NO_TIMEOUT", "Pool", "proxy_for", "trusted"]

NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
"""Deadlines are `interlock_providers.deadlines`'s: they count the waiting of a call and nothing else."""

_LONGEST_HEADER = 65536
"""Bytes. Policies and traces of proxies are longer than the 8190 that aiohttp takes by itself."""

_LARGE = 2**20
"""A body that is this long is handed to aiohttp as a file: it warns of long bytes."""


class Pool:
    """The connections of the running event loop, closed whenever nobody can use them any more.

    The session lives in an asynchronous generator, and a loop that ends closes those
    (``loop.shutdown_asyncgens``). One that nobody refers to is closed as well; so that this is not the moment
    in which the session itself is torn down, it is kept apart from its owner until the owner is gone.

    Args:
        owner: whoever uses it; must live as long as it is used.
        tls: whom to trust, see `trusted`.
        headers: sent with each request.
        proxy: through which each request goes.
    """

    def __init__(
        self,
        owner: object,
        tls: ssl.SSLContext | bool,
        *,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
    ) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            headers=headers,
            timeout=NO_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=_LONGEST_HEADER,
            max_field_size=_LONGEST_HEADER,
            proxy=proxy,
        )
        self._keeper = _keep(self._session)
        self._kept_apart = finalize(owner, _nothing, self._keeper)
        self._kept_apart.atexit = False

    async def send(
        self,
        method: str,
        url: URL,
        body: bytes,
        *,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        without: Iterable[str] | None = None,
        proxy: str | None = None,
        timeout: aiohttp.ClientTimeout = NO_TIMEOUT,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the answer as soon as its head is there. Redirects are answers.

        Args:
            method: of HTTP.
            url: where to.
            body: what to send.
            headers: more than those of each request.
            without: headers that aiohttp is not to add by itself.
            proxy: through which this request goes.
            timeout: how long a connection, and each read, may take.

        Raises:
            aiohttp.ClientError: there is none.
        """
        how: dict[str, Any] = {"headers": headers, "skip_auto_headers": without, "allow_redirects": False}
        how |= {"proxy": proxy, "timeout": timeout}
        return await self._session.request(method, url, data=_as_data(body), **how)

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


def _as_data(body: bytes) -> bytes | BytesIO:
    return body if len(body) < _LARGE else BytesIO(body)


def _nothing(keeper: object) -> None:
    """Do nothing: that nobody keeps the keeper any more is what closes it."""


async def _keep(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await session.close()


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
