"""The HTTP client of the openai library: httpx with aiohttp as its transport, or httpx alone on trio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import Any
from urllib.request import getproxies

from routelock_providers.chat_completions.request_cache import body_as_json

__all__ = ["encoded", "httpx_client"]


def httpx_client(check: Callable[[Any], Awaitable[None]]) -> Any:
    """Return a client of httpx, or of httpx2 since openai 3, for the running event loop.

    It follows no redirect, keeps no cookie, and has no timeout.

    Args:
        check: is called with each answer before its body is read.
    """
    hooks = {"response": [check]}
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # no cookie goes from one run to another
    if not _can_use_aiohttp():
        from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - openai costs 0.7 s to import

        return DefaultAsyncHttpxClient(event_hooks=hooks, cookies=cookies, follow_redirects=False)
    import httpx  # noqa: PLC0415 - takes longer to import than all of routelock

    from routelock_providers.http.client import tls_context  # noqa: PLC0415 - imports aiohttp
    from routelock_providers.http.httpx_transport import AiohttpTransport  # noqa: PLC0415 - imports httpx

    transport = AiohttpTransport(tls_context())
    return httpx.AsyncClient(transport=transport, event_hooks=hooks, cookies=cookies, timeout=None)


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
