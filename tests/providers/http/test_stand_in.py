"""A function that answers in place of servers, for everything that handlers send."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from servers import HELLO, Server

from routelock import Agent, Runner
from routelock_providers import OpenAICompatible
from routelock_providers.http.client import HttpClient
from routelock_providers.http.httpx_transport import AiohttpTransport
from routelock_providers.http.stand_in import StandIn, answered_by

URL = "https://model.invalid/v1/chat?a=%20b"


def always(response: httpx.Response | None) -> tuple[StandIn, list[httpx.Request]]:
    """Return a function that gives one answer to all, and the requests that it saw."""
    seen: list[httpx.Request] = []

    async def answer(request: httpx.Request) -> httpx.Response | None:
        seen.append(request)
        return response

    return answer, seen


async def said(headers: dict[str, str] | None = None) -> bytes:
    client = HttpClient(URL, {"x-always": "1"}, provider="p", model="m")
    response = await client.post(b'{"n": 1}', headers)
    try:
        return b"".join([piece async for piece in response.aiter_bytes()])
    finally:
        await response.close()
        await client.aclose()


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_the_function_sees_what_would_be_sent() -> None:
    answer, seen = always(httpx.Response(200, content=b"here"))
    with answered_by(answer):
        assert await said({"x-once": "2"}) == b"here"
    [request] = seen
    assert (request.method, str(request.url), request.content) == ("POST", URL, b'{"n": 1}')
    assert (request.headers["x-always"], request.headers["x-once"]) == ("1", "2")


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_the_transport_of_httpx_is_answered() -> None:
    """Also if a body is packed, and comes in pieces."""

    async def pieces() -> AsyncIterator[bytes]:
        packed = gzip.compress(b"here")
        yield packed[:9]
        yield packed[9:]

    answer, seen = always(httpx.Response(201, headers={"content-encoding": "gzip"}, content=pieces()))
    with answered_by(answer):
        transport = AiohttpTransport(httpx.create_ssl_context())
        async with httpx.AsyncClient(transport=transport) as client:
            response = await client.post(URL, json={"n": 1})
    assert (response.status_code, response.text, len(seen)) == (201, "here", 1)


@pytest.mark.anyio
async def test_httpx2_is_answered() -> None:
    httpx2: Any = pytest.importorskip("httpx2")
    answer, seen = always(httpx.Response(201, json={"said": "here"}))
    with answered_by(answer):
        async with httpx2.AsyncClient(trust_env=False) as client:
            response = await client.post(URL, json={"n": 1})
    assert (response.status_code, response.json()) == (201, {"said": "here"})
    assert seen[0].read() == b'{"n":1}'


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_what_the_function_leaves_is_sent() -> None:
    """And nothing is shown to it after the block, by a handler that was used in it either."""
    with Server(HELLO) as server:
        handler = OpenAICompatible("m", base_url=server.url, api_key="k")
        agent = Agent("a", model=handler)
        answer, seen = always(None)
        with answered_by(answer):
            assert (await Runner.run(agent, "Hi")).final_output == "Hello"
        assert (await Runner.run(agent, "Hi")).final_output == "Hello"
        await handler.aclose()
    assert (len(seen), len(server.requests)) == (1, 2)


def test_litellm_makes_no_client_over_aiohttp_if_it_is_not_loaded_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "DISABLE_AIOHTTP_TRANSPORT"
    monkeypatch.delitem(sys.modules, "litellm.llms.custom_httpx.aiohttp_transport", raising=False)
    answer, _ = always(None)
    for before in (None, "False"):
        if before is not None:
            monkeypatch.setenv(name, before)
        with answered_by(answer):
            assert os.environ[name] == "True"
        assert os.environ.get(name) == before


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("kind", ["async generator", "generator", "list"])
async def test_body_may_be_anything_that_yields_bytes(kind: str) -> None:
    closed: list[str] = []

    async def slowly() -> AsyncIterator[bytes]:
        try:
            yield b"he"
            yield b"re"
        finally:
            closed.append("async generator")

    def at_once() -> Iterator[bytes]:
        try:
            yield b"he"
            yield b"re"
        finally:
            closed.append("generator")

    stream: Any = {"async generator": slowly, "generator": at_once, "list": lambda: [b"he", b"re"]}[kind]()
    answer, _ = always(httpx.Response(200, stream=stream))
    with answered_by(answer):
        client = HttpClient(URL, {}, provider="p", model="m")
        response = await client.post(b"{}")
        pieces = response.aiter_bytes()
        assert await anext(pieces) == b"he"
        await response.close()
        assert response.is_closed
        await client.aclose()
    assert closed == [name for name in ("async generator", "generator") if name == kind]
