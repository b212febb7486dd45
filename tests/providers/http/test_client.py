"""Requests and answers over aiohttp, for every handler."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from raw_server import Raw, RawServer
from servers import HELLO, Reply, Server
from waiting import until

from routelock.testing import use_cassette
from routelock_providers.http.client import HttpClient, tls_context
from routelock_providers.http.httpx_transport import AiohttpTransport

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

HEADERS = {
    "authorization": "Bearer k",
    "content-type": "application/json",
    "x-place": "Caf\xe9",
    "Host": "me",
}


@contextlib.asynccontextmanager
async def client(url: str, headers: dict[str, str] | None = None) -> AsyncGenerator[HttpClient]:
    one = HttpClient(url, headers or HEADERS, provider="p", model="m")
    try:
        yield one
    finally:
        await one.aclose()


async def said(one: HttpClient, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    response = await one.post(body, headers)
    try:
        return b"".join([piece async for piece in response.aiter_bytes()])
    finally:
        await response.close()


@pytest.mark.parametrize("size", [0, 2**16, 2**19, 2**21])
async def test_a_body_of_any_length_is_sent_whole(size: int) -> None:
    body = json.dumps({"text": "x" * size}).encode()
    with Server(Reply((b"{}",))) as server:
        async with client(f"{server.url}/a%2Fb?c=%20d") as one:
            await said(one, body)
            await said(one, body, {"x-mine": "y"})
    first, second = server.requests
    assert first.path == second.path == "/v1/a%2Fb?c=%20d"
    assert first.body == second.body == {"text": "x" * size}
    assert second.headers == {**first.headers, "x-mine": "y"}
    assert first.headers["host"] == "me"
    assert first.headers["x-place"] == "Caf\xe9".encode().decode("latin-1")
    assert server.connections == 1


async def test_interim_answers_are_skipped() -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhere"
    with RawServer(Raw(sent=(hints, answer))) as server:
        async with client(server.url) as one:
            assert await said(one, b"{}") == b"here"
            assert await said(one, b"{}") == b"here"


async def test_used_handler_answers_from_a_cassette(tmp_path: Path) -> None:
    with Server(HELLO) as server:
        async with client(server.url) as one:
            await said(one, b"{}")
            path = tmp_path / "a.yaml"
            path.write_text(yaml.safe_dump(recording_of(server.url, "recorded")))
            with use_cassette(path):
                assert await said(one, b"{}") == b"recorded"
            await said(one, b"{}")
    assert len(server.requests) == 2


def recording_of(url: str, text: str) -> dict[str, Any]:
    request = {"method": "POST", "uri": url, "body": "{}", "headers": {}}
    response = {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {"string": text}}
    return {"version": 1, "interactions": [{"request": request, "response": response}]}


async def test_header_with_a_line_break_is_refused() -> None:
    with Server(Reply((b"{}",))) as server:
        async with client(server.url, {"x-mine": "a\r\nx-theirs: b"}) as one:
            with pytest.raises(ValueError, match="header"):
                await said(one, b"{}")
    assert not server.requests


async def test_unread_body_ends_the_connection() -> None:
    with Server(Reply((b"x", b"y"), ending="stall")) as server:
        async with client(server.url) as one:
            response = await one.post(b"{}")
            assert not response.is_closed
            await response.close()
            assert response.is_closed
            assert await server.client_hung_up()


async def test_a_call_that_is_cancelled_ends_the_connection() -> None:
    with RawServer(Raw(then="stall")) as server:
        async with client(server.url) as one:
            asking = asyncio.create_task(one.post(b"{}"))
            await until(lambda: bool(server.requests))
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert await server.client_hung_up()


async def test_transport_sends_the_headers_of_each_request() -> None:
    with Server(Reply((b"{}",))) as server:
        transport = AiohttpTransport(ssl.create_default_context())
        async with httpx.AsyncClient(transport=transport) as one:
            for path, mine in ("a", "1"), ("a", "2"), ("b", "2"), ("a", "1"), ("a", "1"):
                await one.post(f"{server.url}/{path}", json={}, headers={"x-mine": mine})
    sent = [(seen.path[-1], seen.headers["x-mine"]) for seen in server.requests]
    assert sent == [("a", "1"), ("a", "2"), ("b", "2"), ("a", "1"), ("a", "1")]


async def test_transport_adds_no_header_of_aiohttp() -> None:
    with Server(Reply((b"{}",))) as server:
        transport = AiohttpTransport(ssl.create_default_context())
        asked = httpx.Request("POST", server.url, headers={"host": "me", "x-mine": "y"}, content=b"{}")
        async with httpx.AsyncClient(transport=transport) as one:
            await one.send(asked)
    assert server.requests[0].headers == {"host": "me", "x-mine": "y", "content-length": "2"}


@contextlib.contextmanager
def deaf() -> Iterator[str]:
    """An address that neither takes nor refuses a connection, because its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        with contextlib.suppress(TimeoutError):
            while True:
                stack.enter_context(socket.create_connection(address, timeout=0.2))
        yield f"http://127.0.0.1:{address[1]}/v1"


async def test_slow_connection_is_an_httpx_connect_timeout() -> None:
    transport = AiohttpTransport(ssl.create_default_context())
    with deaf() as url:
        async with httpx.AsyncClient(transport=transport, timeout=0.1) as one:
            with pytest.raises(httpx.ConnectTimeout):
                await one.post(url, json={})


@pytest.mark.parametrize("said", [Raw(then="stall"), Reply((b"x",), ending="stall")], ids=["no head", "half"])
async def test_silent_server_is_an_httpx_read_timeout(said: Reply) -> None:
    transport = AiohttpTransport(ssl.create_default_context())
    with RawServer(said) as server:
        async with httpx.AsyncClient(transport=transport, timeout=0.1) as one:
            with pytest.raises(httpx.ReadTimeout):
                await one.post(server.url, json={})
        assert await server.client_hung_up()


async def test_timeout_applies_to_one_request_only() -> None:
    transport = AiohttpTransport(ssl.create_default_context())
    with Server(Reply((b"1",)), Reply((b"2",), delay=0.6)) as server:
        async with httpx.AsyncClient(transport=transport) as one:
            assert (await one.post(server.url, json={}, timeout=0.4)).text == "1"
            assert (await one.post(server.url, json={}, timeout=None)).text == "2"
    assert server.connections == 1


# certificates


def authorities(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


async def test_authorities_are_those_of_certifi(monkeypatch: pytest.MonkeyPatch) -> None:
    certifi = pytest.importorskip("certifi")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert authorities(tls_context()) == authorities(ssl.create_default_context(cafile=certifi.where())) > 1


async def test_authorities_of_the_environment_come_first() -> None:
    (only,) = tls_context().get_ca_certs()
    assert ("commonName", "routelock tests") in [pair for pairs in only["subject"] for pair in pairs]
