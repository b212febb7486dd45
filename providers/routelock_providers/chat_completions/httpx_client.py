"""The HTTP client of the openai library: aiohttp where that can send, behind the interface of httpx.

httpx itself looks at all its connections for each request, which with some hundreds at once takes longer than
all the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from typing import Any
from urllib.request import getproxies

from routelock_providers.chat_completions.request_cache import body_as_json

__all__ = ["encoded", "httpx_client"]


def httpx_client(look_at: Callable[[Any], Awaitable[None]]) -> Any:
    """Return a client of httpx, or of httpx2 since openai 3, for the event loop that goes on.

    It follows no redirect, keeps no cookie, and knows no timeout of its own.

    Args:
        look_at: is shown each answer before its body is read.
    """
    hooks = {"response": [look_at]}
    cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # a run leaves none to the next
    if not _is_for_aiohttp():
        from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - openai costs 0.7 s to import

        return DefaultAsyncHttpxClient(event_hooks=hooks, cookies=cookies, follow_redirects=False)
    import httpx  # noqa: PLC0415 - takes longer than all of routelock

    from routelock_providers.http.client import trusted  # noqa: PLC0415 - imports aiohttp
    from routelock_providers.http.httpx_transport import AiohttpTransport  # noqa: PLC0415 - imports httpx

    transport = AiohttpTransport(trusted())
    return httpx.AsyncClient(transport=transport, event_hooks=hooks, cookies=cookies, timeout=None)


def encoded(body: Mapping[str, Any]) -> bytes | None:
    """Return the body as JSON, of which the most is known from the last request; None if JSON is not enough.

    The library also takes times and pydantic models, which ``extra_body`` may hold.
    """
    try:
        return body_as_json(body)
    except (TypeError, ValueError):
        return None


def _is_for_aiohttp() -> bool:
    """Whether aiohttp can send: on asyncio, and by HTTP where the environment names a proxy."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    if any("://" in proxy and not proxy.startswith("http://") for proxy in getproxies().values()):
        return False
    return find_spec("aiohttp") is not None and find_spec("httpx") is not None
