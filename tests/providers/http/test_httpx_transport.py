"""httpx over aiohttp, for litellm and for the calls of its users."""

from __future__ import annotations

import asyncio
import gc
import gzip
import ssl
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from servers import HELLO, HELLO_STREAM, Reply, Server, refused_url
from waiting import PATIENCE

from routelock import Agent, Runner
from routelock_providers import LiteLLM
from routelock_providers.http.httpx_transport import AiohttpTransport, HttpxClient

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]


@asynccontextmanager
async def client(**options: Any) -> AsyncGenerator[httpx.AsyncClient]:
    async with HttpxClient(transport=AiohttpTransport(ssl.create_default_context()), **options) as one:
        yield one


async def test_request_equals_that_of_httpx() -> None:
    with Server(Reply((b"{}",))) as server:
        async with client(headers={"user-agent": "me"}) as one:
            await one.post(f"{server.url}/a%2Fb?c=%20d", json={"x": 1}, headers={"x-mine": "y"})
    (sent,) = server.requests
    assert sent.path == "/v1/a%2Fb?c=%20d"
    assert (sent.headers["user-agent"], sent.headers["x-mine"]) == ("me", "y")
    assert sent.body == {"x": 1}


async def test_a_body_that_is_packed_is_unpacked_by_httpx() -> None:
    packed = gzip.compress(b"unpacked")
    with Server(Reply((packed,), headers={"content-encoding": "gzip"})) as server:
        async with client() as one:
            assert (await one.get(server.url)).text == "unpacked"


async def test_a_header_that_is_not_ascii_passes() -> None:
    with Server(Reply((b"here",), headers={"x-place": "Caf\xe9"})) as server:
        async with client() as one:
            assert (await one.get(server.url)).headers["x-place"] == "Caf\xe9"


async def test_redirects_are_left_to_httpx() -> None:
    with Server(Reply(status=307, headers={"location": "/v1/there"}), Reply((b"here",))) as server:
        async with client() as one:
            assert (await one.get(server.url)).status_code == 307
        async with client(follow_redirects=True) as one:
            assert (await one.get(server.url)).text == "here"


async def test_no_cookie_is_kept() -> None:
    with Server(Reply((b"{}",), headers={"set-cookie": "a=b"})) as server:
        async with client() as one:
            for _ in range(2):
                await one.get(server.url)
    assert "cookie" not in server.requests[1].headers


async def test_cookies_cannot_be_set() -> None:
    async with client() as one:
        with pytest.raises(AttributeError, match="keeps no cookies"):
            one.cookies = {"a": "b"}


async def test_refused_connection_is_a_connect_error() -> None:
    async with client() as one:
        with pytest.raises(httpx.ConnectError):
            await one.get(refused_url())


async def test_a_connection_that_breaks() -> None:
    with Server(Reply((b"half",), ending="cut")) as server:
        async with client() as one:
            with pytest.raises(httpx.RemoteProtocolError):
                await one.get(server.url)


async def test_answer_that_is_not_http() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, client() as one:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(httpx.RemoteProtocolError):
            await one.get(f"http://{host}:{port}/v1")


async def test_httpxs_timeout_holds() -> None:
    with Server(Reply((b"x",), ending="stall")) as server:
        async with client(timeout=0.1) as one:
            with pytest.raises(httpx.ReadTimeout):
                await one.get(server.url)


def test_connections_of_litellm_end_with_their_event_loop() -> None:
    """Nothing has to be closed, and no library warns."""
    with Server(HELLO) as server, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        agent = Agent("a", model=LiteLLM("openai/m", api_base=server.url, api_key="k"))
        for _ in range(3):
            server.hung_up.clear()
            assert Runner.run_sync(agent, "Hi").final_output == "Hello"
            assert server.hung_up.wait(PATIENCE), "the connection is closed with the loop, not some day"
        gc.collect()
    assert server.connections == 3


@pytest.mark.parametrize("watched", [False, True], ids=["whole", "streamed"])
async def test_a_reply_whose_header_is_not_ascii_comes_through_litellm(watched: bool) -> None:
    said = HELLO_STREAM if watched else HELLO
    with Server(replace(said, headers={"x-place": "Caf\xe9"})) as server:
        agent = Agent("a", model=LiteLLM("openai/m", api_base=server.url, api_key="k"))
        run = Runner.run_streamed(agent, "Hi").drain() if watched else Runner.run(agent, "Hi")
        assert (await run).final_output == "Hello"


def test_each_call_at_once_has_its_connection() -> None:
    async def ask_all(url: str) -> None:
        async with client() as one:
            await asyncio.gather(*(one.get(url) for _ in range(150)))

    with Server(Reply((b"{}",))) as server:
        asyncio.run(ask_all(server.url))
    assert len(server.requests) == 150


async def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(Reply((b"{}",))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        async with client() as one:
            await one.get("http://models.invalid/v1")
    assert proxy.requests[0].path == "http://models.invalid/v1"
