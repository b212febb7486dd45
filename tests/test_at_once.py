"""A small answer is read at once, and every other as aiohttp reads it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import time
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpResponseParser
from hypothesis import given
from hypothesis import strategies as st
from patience import until
from rawserver import Raw, RawServer
from servers import PATIENCE
from test_short_way import client, said

from interlock.errors import ProviderError
from interlock_providers.at_once import FirstLook, Heads, Whole
from interlock_providers.http_client import HttpClient

GOOD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
PACKED = gzip.compress(b"{}")


def answer(*lines: bytes, body: bytes = b"{}", first: bytes = b"HTTP/1.1 200 OK") -> bytes:
    return b"\r\n".join([first, *lines, b"", body])


LENGTH = b"content-length: 2"
CHUNKED = b"transfer-encoding: chunked"
WHOLE = {
    "plain": answer(LENGTH),
    "many headers": answer(*(b"x-%d: %d" % (number, number) for number in range(60)), LENGTH),
    "a long header": answer(b"x: " + b"y" * 40_000, LENGTH),
    "spaces": answer(b"Content-Length:   2"),
    "a length with zeros": answer(b"content-length: 002"),
    "empty": answer(b"content-length: 0", body=b""),
    "blank lines": answer(b"content-length: 8", body=b"\r\n\r\n\r\n\r\n"),
    "an answer within": answer(b"content-length: %d" % len(GOOD), body=GOOD),
    "packed": answer(b"content-encoding: gzip", b"content-length: %d" % len(PACKED), body=PACKED),
}
NOT_WHOLE = {
    "chunked": answer(CHUNKED, body=b"2\r\n{}\r\n0\r\n\r\n"),
    "chunked with a length": answer(CHUNKED, LENGTH, body=b"2\r\n{}\r\n0\r\n\r\n"),
    "a length and a comma": answer(b"content-length: 2,"),
    "two lengths": answer(LENGTH, b"content-length: 3"),
    "no length": answer(b"connection: close"),
    "it ends": answer(LENGTH, b"connection: close"),
    "long": answer(b"content-length: 100000", body=b"x" * 100_000),
    "streamed": answer(b"content-type: text/event-stream", LENGTH),
    "bare line feeds": answer(LENGTH).replace(b"\r\n", b"\n"),
    "old": answer(LENGTH, first=b"HTTP/1.0 200 OK"),
    "created": answer(LENGTH, first=b"HTTP/1.1 201 Created"),
    "no content": answer(first=b"HTTP/1.1 204 No Content", body=b""),
    "refused": answer(LENGTH, first=b"HTTP/1.1 400 Bad Request"),
    "a redirect": answer(LENGTH, b"location: /there", first=b"HTTP/1.1 307 There"),
    "two heads": b"HTTP/1.1 200 OK\ncontent-length: 0\n\nHTTP/1.1 204 No Content\r\n\r\n",
    "hints before": b"HTTP/1.1 103 Early Hints\r\n\r\n" + GOOD,
    "no head": b"{}",
    "half a head": answer(LENGTH)[:20],
    "no colon": answer(b"nonsense", LENGTH),
    "a nul": answer(b"x: \0", LENGTH),
    "nothing": b"",
}
CUT = {
    "too short": answer(b"content-length: 3"),
    "no body": answer(LENGTH, body=b""),
}
GOES_ON = {
    "too long": answer(b"content-length: 1"),
    "another answer": GOOD + GOOD,
}
EVERY = {**WHOLE, **NOT_WHOLE, **CUT, **GOES_ON}


@pytest.fixture(name="loop")
def a_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


async def outcome(one: Any, headers: dict[str, str] | None) -> object:
    try:
        return await said(one, b"{}", headers)
    except (ProviderError, aiohttp.ClientError, zlib.error) as error:
        return type(error)


async def leave(one: HttpClient, server: RawServer) -> None:
    """Ask, and be cancelled once the server has heard of it."""
    async with anyio.create_task_group() as group:
        group.start_soon(one.post, b"{}")
        await until(lambda: bool(server.requests))
        group.cancel_scope.cancel()


def in_two(sent: bytes, place: int) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield sent[:place]
        time.sleep(0.01)  # or they would arrive together
        yield sent[place:]

    return pieces


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("place", [None, -1, 30], ids=["at once", "but for a byte", "but for half of it"])
@pytest.mark.parametrize("sent", EVERY.values(), ids=EVERY)
async def test_it_comes_to_the_same_as_by_aiohttps_own_way(sent: bytes, place: int | None) -> None:
    heard: list[object] = []
    for headers in (None, {}):  # with headers of its own a request goes aiohttp's way
        pieces = (sent,) if place is None else in_two(sent, place)
        with RawServer(Raw(sent=pieces, then="close")) as server:
            async with client(server.url) as one:
                heard.append(await outcome(one, headers))
    assert heard[0] == heard[1]


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("sent", GOES_ON.values(), ids=GOES_ON)
async def test_nobody_waits_for_more_than_came(sent: bytes) -> None:
    heard: list[object] = []
    for headers in (None, {}):
        with RawServer(Raw(sent=(sent,), then="keep")) as server, anyio.fail_after(PATIENCE / 2):
            async with client(server.url) as one:
                heard.append(await outcome(one, headers))
    assert heard[0] == heard[1]


@pytest.mark.anyio
@pytest.mark.asyncio_only
@pytest.mark.parametrize("place", [0, -1], ids=["at once", "but for a byte"])
@pytest.mark.parametrize("sent", WHOLE.values(), ids=WHOLE)
async def test_the_next_answer_is_another(sent: bytes, place: int) -> None:
    with RawServer(Raw(sent=in_two(sent, place)), Raw(sent=(GOOD,))) as server:
        async with client(server.url) as one:
            assert await outcome(one, None) == sent.partition(b"\r\n\r\n")[2]
            assert await outcome(one, None) == b"{}"
    assert server.connections == 1


def at_once(heads: Heads, data: bytes) -> bytes | None:
    head = heads.of(data)
    return data[head.size :] if head is not None and len(data) == head.whole else None


@pytest.mark.parametrize("sent", WHOLE.values(), ids=WHOLE)
def test_a_small_answer_is_read_at_once(loop: asyncio.AbstractEventLoop, sent: bytes) -> None:
    assert at_once(Heads(loop), sent) == sent.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("sent", NOT_WHOLE.values(), ids=NOT_WHOLE)
def test_no_other_is_and_the_next_one_is_again(loop: asyncio.AbstractEventLoop, sent: bytes) -> None:
    heads = Heads(loop)
    assert heads.of(sent) is None
    assert at_once(heads, GOOD) == b"{}"


pieces = st.sampled_from(
    [
        *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 \r\n", b"HTTP/1.1 103 Hints\r\n", b"HTTP/1.1 200 OK\n"),
        *(b"content-length: 2\r\n", b"Content-Length: 0\r\n"),
        *(b"content-length: 2, 2\r\n", b"content-length:\r\n"),
        *(b"transfer-encoding: chunked\r\n", b"transfer-encoding: gzip\r\n"),
        *(b"connection: close\r\n", b"connection: upgrade\r\nupgrade: x\r\n"),
        *(b"x: y\r\n", b" z\r\n", b": v\r\n", b"x y: z\r\n", b"x:\0\r\n"),
        *(b"content-length: 0\n\n", b"\r\n", b"\n", b"\r", b"{}", b"2\r\n{}\r\n0\r\n\r\n", GOOD),
    ]
)
answers = st.lists(pieces, max_size=8).map(b"".join) | st.lists(pieces, max_size=5).map(
    lambda some: answer(LENGTH, *[each.rstrip(b"\r\n") for each in some])
)


def by_aiohttp(loop: asyncio.AbstractEventLoop, data: bytes) -> tuple[Any, bytes] | None:
    """The one answer that aiohttp reads in these bytes, with its body, if it is one and has come whole."""
    parser = HttpResponseParser(
        BaseProtocol(loop), loop, 2**16, read_until_eof=True, auto_decompress=False, max_field_size=2**16
    )
    try:
        messages, upgraded, rest = parser.feed_data(data)
    except Exception:
        return None
    if len(messages) != 1 or upgraded or rest:
        return None
    message, content = messages[0]
    return (message, content.read_nowait()) if content.is_eof() else None


@given(sent=st.lists(answers, min_size=1, max_size=4))
def test_what_is_read_at_once_is_what_aiohttp_reads(sent: list[bytes]) -> None:
    loop = asyncio.new_event_loop()
    heads = Heads(loop)
    for data in sent:
        head = heads.of(data)
        if head is not None and len(data) == head.whole:
            by_it = by_aiohttp(loop, data)
            assert by_it is not None
            message, body = by_it
            assert (head.message.code, head.message.headers) == (message.code, message.headers)
            assert data[head.size :] == body
    loop.close()


@pytest.mark.anyio
@pytest.mark.asyncio_only
class TestOverASocket:
    async def test_its_connection_serves_the_next_request(self) -> None:
        with RawServer(Raw(sent=(GOOD,))) as server:
            async with client(server.url) as one:
                for _ in range(3):
                    response = await one.post(b"{}")
                    assert isinstance(response, Whole)
                    assert response.is_closed
                    await response.close()
        assert server.connections == 1

    async def test_its_connection_serves_a_request_that_goes_aiohttps_way(self) -> None:
        with RawServer(Raw(sent=(GOOD,))) as server:
            async with client(server.url) as one:
                for headers in (None, {}, None):
                    assert await said(one, b"{}", headers) == b"{}"
        assert server.connections == 1

    @pytest.mark.parametrize("place", [-1, GOOD.index(b"{")], ids=["but for a byte", "but for its body"])
    async def test_an_answer_whose_end_comes_later_is_waited_for(self, place: int) -> None:
        with RawServer(Raw(sent=in_two(GOOD, place))) as server:
            async with client(server.url) as one:
                response = await one.post(b"{}")
                assert isinstance(response, Whole)
                assert response.body == b"{}"

    async def test_who_waits_for_the_end_may_be_cancelled(self) -> None:
        with RawServer(Raw(sent=(GOOD[:-1],), then="stall"), Raw(sent=(GOOD,))) as server:
            async with client(server.url) as one:
                await leave(one, server)
                assert await said(one, b"{}") == b"{}"
        assert server.connections == 2

    @pytest.mark.parametrize("then", ["close", "reset"])
    async def test_one_that_is_cut_is_told_as_by_aiohttp(self, then: Any) -> None:
        with RawServer(Raw(sent=(GOOD[:-1],), then=then)) as server:
            async with client(server.url) as one:
                with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientOSError)):
                    await said(one, b"{}")

    async def test_a_server_that_hangs_up_is_told_as_by_aiohttp(self) -> None:
        with RawServer(Raw(then="close")) as server:
            async with client(server.url) as one:
                with pytest.raises(aiohttp.ServerDisconnectedError):
                    await one.post(b"{}")

    async def test_a_connection_that_breaks_is_told_as_by_aiohttp(self) -> None:
        with RawServer(Raw(then="reset")) as server:
            async with client(server.url) as one:
                with pytest.raises(aiohttp.ClientOSError):
                    await one.post(b"{}")

    async def test_an_answer_after_the_call_was_cancelled_is_nobodys(self) -> None:
        with RawServer(Raw(then="stall")) as server:
            async with client(server.url) as one:
                await leave(one, server)
                server.say(Raw(sent=(GOOD,)))
                assert await said(one, b"{}") == b"{}"
        assert server.connections == 2

    async def test_a_request_that_the_server_is_slow_to_take_is_sent_whole(self) -> None:
        body = b'{"text": "%b"}' % (b"x" * 900_000)
        with RawServer(Raw(sent=(GOOD,))) as server:
            async with client(server.url) as one:
                assert await said(one, body) == b"{}"
        assert len(server.requests[0].body["text"]) == 900_000


@contextlib.asynccontextmanager
async def look_over_a_socket() -> AsyncGenerator[tuple[FirstLook, ResponseHandler, socket.socket]]:
    """A look at a connection, the protocol behind it, and the other end."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with theirs:
        transport, protocol = await loop.create_connection(lambda: ResponseHandler(loop), sock=ours)
        yield FirstLook(Heads(loop), protocol, transport), protocol, theirs
        transport.abort()


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_an_answer_that_comes_with_the_cancellation_hurts_nobody() -> None:
    async with look_over_a_socket() as (look, _, _):
        look.answer().cancel()
        look.data_received(GOOD)


@pytest.mark.anyio
@pytest.mark.asyncio_only
async def test_aiohttp_knows_when_to_wait_with_writing() -> None:
    async with look_over_a_socket() as (_, protocol, theirs):
        assert protocol.transport is not None
        protocol.transport.write(b"x" * 10_000_000)
        assert protocol.writing_paused
        await anyio.to_thread.run_sync(theirs.recv, 10_000_000, socket.MSG_WAITALL)
        await until(lambda: not protocol.writing_paused)
