"""Clients of the openai library per event loop, and their HTTP client.

The HTTP client is httpx over aiohttp, or httpx alone on trio.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies
from uuid import uuid4

from anyio.lowlevel import RunVar

from routelock_providers.chat_completions.request_cache import body_as_json
from routelock_providers.chat_completions.resending_client import resending_client

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["ClientPerLoop", "encoded", "httpx_client"]


class ClientPerLoop:
    """Keeps a client for each event loop, because connections cannot move to another loop."""

    def __init__(self) -> None:
        # anyio before 4.10 tells run variables apart by their names alone
        self._client: RunVar[AsyncOpenAI | None] = RunVar(f"routelock {uuid4().hex}", None)

    def get(self, make: Callable[[], AsyncOpenAI]) -> AsyncOpenAI:
        """Return the client of the running event loop; ``make`` makes the first one."""
        client = self._client.get()
        if client is None:
            client = make()
            self._client.set(client)
        return client

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._client.get()
        self._client.set(None)
        if client is not None:
            await client.close()


def httpx_client(check: Callable[[Any], Awaitable[None]]) -> Any:
    """Return a client of httpx, or of httpx2 since openai 3, for the running event loop.

    It follows no redirect, keeps no cookie, and has no timeout.

    Args:
        check: is called with each answer before its body is read.
    """
    hooks = {"response": [check]}
    if not _can_use_aiohttp():
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # no cookie goes from one run to another
        return resending_client()(event_hooks=hooks, cookies=cookies, follow_redirects=False)
    # httpx takes longer to import than all of routelock
    from routelock_providers.http.client import tls_context  # noqa: PLC0415 - imports aiohttp
    from routelock_providers.http.httpx_transport import AiohttpTransport, HttpxClient  # noqa: PLC0415

    transport = AiohttpTransport(tls_context())
    return HttpxClient(transport=transport, event_hooks=hooks, timeout=None)


def encoded(body: Mapping[str, Any]) -> bytes | None:
    """Return the body as JSON, or None if only the openai library can encode it.

    The library also takes times and pydantic models, which ``extra_body`` may hold.
    """
    try:
        return body_as_json(body)
    except (TypeError, ValueError):
        return None


def _can_use_aiohttp() -> bool:
    """Return whether aiohttp can send: on asyncio, and only through proxies with http addresses."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    if any("://" in proxy and not proxy.startswith("http://") for proxy in getproxies().values()):
        return False
    return find_spec("aiohttp") is not None and find_spec("httpx") is not None
