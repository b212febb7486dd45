"""Requests and responses, against an ASGI server played by the test, on both event loops."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from starlette.requests import ClientDisconnect, Request

from routelock.serving.auth import Principal
from routelock.serving.errors import Refusal
from routelock.serving.http import AsciiJSON, EventStream, Incoming, attended, read_body

pytestmark = pytest.mark.anyio


class Client:
    """The other end: what it sends, and what it got."""

    def __init__(self, *pieces: bytes, leaves: bool = False, **headers: str) -> None:
        self.pieces = list(pieces)
        self.leaves = leaves
        self.gone = anyio.Event()
        self.got: list[Mapping[str, Any]] = []
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self.scope = {"type": "http", "method": "POST", "path": "/", "headers": named}
        self.request = Request(self.scope, self.receive)

    async def receive(self) -> dict[str, Any]:
        await anyio.lowlevel.checkpoint()
        if self.pieces:
            body = self.pieces.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.pieces) or self.leaves}
        if not self.leaves:
            await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        self.got.append(message)

    async def is_sent(self, response: Any) -> None:
        await response(self.scope, self.receive, self.send)

    @property
    def text(self) -> str:
        return b"".join(each.get("body", b"") for each in self.got).decode()


# -- bodies --


async def test_a_body_is_all_of_its_pieces() -> None:
    assert await read_body(Client(b"a", b"", b"bc").request, 3, 9) == b"abc"


@pytest.mark.parametrize("declared", ["", "1", "nonsense", "-5", "9" * 5000])
async def test_bytes_that_arrive_are_counted(declared: str) -> None:
    with pytest.raises(Refusal, match="413"):
        await read_body(Client(*[b"x" * 10] * 5, content_length=declared).request, 40, 9)


async def test_a_body_that_is_declared_too_long_is_refused_at_once() -> None:
    with pytest.raises(Refusal, match="413"):
        await read_body(Client(b"x", content_length="41").request, 40, 9)


async def test_a_body_that_breaks_off_is_a_client_that_left() -> None:
    with pytest.raises(ClientDisconnect):
        await read_body(Client(b"abc", leaves=True).request, 10, 9)


@pytest.mark.virtual_time
@pytest.mark.every_loop
async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    async def never() -> Any:
        await anyio.sleep_forever()

    with pytest.raises(Refusal, match="in time") as caught:
        await read_body(Request({"type": "http", "headers": []}, never), 100, 5)
    assert caught.value.status == 408


# -- requests and whole responses --


async def test_the_first_of_two_headers_counts() -> None:
    client = Client()
    client.scope["headers"] = [(b"host", b"a"), (b"host", b"b"), (b"x-y", b"\xe9")]
    assert Incoming(client.request, client.send).about("A").headers == {"host": "a", "x-y": "é"}


async def test_the_app_is_not_told_secrets() -> None:
    client = Client(authorization="Bearer secret", cookie="secret", traceparent="00-1", x_shop="7")
    incoming = Incoming(client.request, client.send)
    incoming.principal = Principal(name="ann", scopes=frozenset({"owner"}))
    about = incoming.about("A", user="u", handoff_context={"page": 1})
    assert "secret" not in repr(about)
    assert (about.principal, about.scopes, about.user) == ("ann", {"owner"}, "u")
    assert about.handoff_context == {"page": 1, "traceparent": "00-1"}
    assert about.headers["x-shop"] == "7"


async def test_a_response_carries_the_id_of_its_request() -> None:
    client = Client()
    incoming = Incoming(client.request, client.send)
    await incoming.respond(AsciiJSON({"a": "é\ud83d"}, 418))
    headers = dict(client.got[0]["headers"])
    assert (client.got[0]["status"], incoming.is_answered) == (418, True)
    assert headers[b"content-length"] == str(len(client.got[1]["body"])).encode()
    assert headers[b"x-request-id"] == incoming.id.encode()
    assert json.loads(client.text) == {"a": "é\ud83d"}


# -- work while the client is there --


async def test_work_is_done_while_the_client_waits() -> None:
    async def work() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await attended(Client().request, work) == 7


async def test_errors_of_the_work_are_raised_unchanged() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await attended(Client().request, work)


async def test_a_client_that_leaves_ends_the_work() -> None:
    client, cancelled = Client(), anyio.Event()

    async def work() -> None:
        client.gone.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(ClientDisconnect):
        await attended(client.request, work)
    assert cancelled.is_set()


@pytest.mark.virtual_time
async def test_an_end_from_outside_passes() -> None:
    with anyio.move_on_after(0.01) as scope:
        await attended(Client().request, anyio.sleep_forever)
    assert scope.cancelled_caught


# -- streams --


async def test_a_stream_begins_with_its_first_event() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        await stream.send()
        assert not stream.has_begun
        await stream.send({"a": 1}, "[DONE]")

    await client.is_sent(EventStream(work, ping=9))
    assert [each["type"] for each in client.got] == ["http.response.start"] + ["http.response.body"] * 2
    headers = dict(client.got[0]["headers"])
    assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert client.text == 'data: {"a":1}\n\ndata: [DONE]\n\n'


async def test_a_stream_may_have_no_event() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        pass

    await client.is_sent(EventStream(work, ping=9))
    assert [each["type"] for each in client.got] == ["http.response.start", "http.response.body"]


async def test_events_that_come_together_are_one_message() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        await stream.send("a")
        await stream.send("b")

    await client.is_sent(EventStream(work, ping=9))
    assert client.got[1]["body"] == b"data: a\n\ndata: b\n\n"


async def test_a_connection_that_breaks_is_a_client_that_left() -> None:
    async def broken(message: Mapping[str, Any]) -> None:
        raise BrokenPipeError

    async def work(stream: EventStream) -> None:
        await stream.send("x")
        await anyio.sleep_forever()

    client = Client()
    with pytest.raises(ClientDisconnect):
        await EventStream(work, ping=9)(client.scope, client.receive, broken)


async def test_work_waits_for_a_client_that_is_slow() -> None:
    client, sent = Client(), list[int]()
    reads = anyio.Event()

    async def slow(message: Mapping[str, Any]) -> None:
        await reads.wait()
        await client.send(message)

    async def work(stream: EventStream) -> None:
        for number in range(100):
            await stream.send(str(number))
            sent.append(number)

    async with anyio.create_task_group() as group:
        group.start_soon(EventStream(work, ping=9), client.scope, client.receive, slow)
        await anyio.wait_all_tasks_blocked()
        assert 0 < len(sent) < 50
        reads.set()
    assert client.text.endswith("data: 99\n\n")


@pytest.mark.virtual_time
async def test_silence_alone_is_filled() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        for _ in range(10):
            await stream.send("x")
            await anyio.sleep(0.01)
        assert ": ping" not in client.text
        await anyio.sleep(0.05)

    await client.is_sent(EventStream(work, ping=0.02))
    assert client.text.endswith(": ping\n\n")


async def test_an_error_before_the_first_event_is_raised() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        raise KeyError("x")

    with pytest.raises(Refusal, match="500") as caught:
        await client.is_sent(EventStream(work, ping=9))
    assert isinstance(caught.value.__cause__, KeyError)
    assert client.got == []


async def test_an_error_after_the_first_event_is_the_last_event() -> None:
    client = Client()

    async def work(stream: EventStream) -> None:
        await stream.send("x")
        while not stream.has_begun:
            await anyio.lowlevel.checkpoint()
        raise KeyError("x")

    await client.is_sent(EventStream(work, ping=9, last=lambda refusal: f"data: {refusal.code}\n\n"))
    assert client.text == "data: x\n\ndata: internal_error\n\n"
    assert not client.got[-1]["more_body"]


async def test_a_client_that_leaves_ends_the_work_of_its_stream() -> None:
    client, cancelled = Client(), anyio.Event()

    async def work(stream: EventStream) -> None:
        client.gone.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(ClientDisconnect):
        await client.is_sent(EventStream(work, ping=9))
    assert cancelled.is_set()


@pytest.mark.virtual_time
async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    """The error that ends a stream may be taken for a few seconds, and then the connection is cut."""
    got: list[str] = []

    async def stuck(message: Mapping[str, Any]) -> None:
        got.append(message["type"])
        await anyio.sleep_forever()

    async def work(stream: EventStream) -> None:
        await stream.send("x")
        await anyio.sleep_forever()

    client = Client()
    with anyio.move_on_after(20) as scope:
        await EventStream(work, ping=9, timeout=10)(client.scope, client.receive, stuck)
    assert not scope.cancelled_caught
    assert got == ["http.response.start"]


@pytest.mark.virtual_time
async def test_a_client_that_does_not_take_the_end_has_left() -> None:
    async def stuck(message: Mapping[str, Any]) -> None:
        await anyio.sleep_forever()

    async def work(stream: EventStream) -> None:
        await stream.send("x")

    client = Client()
    with anyio.move_on_after(20), pytest.raises(ClientDisconnect):
        await EventStream(work, ping=9, timeout=10)(client.scope, client.receive, stuck)


@pytest.mark.asyncio_only
async def test_a_server_that_ends_tells_the_reader() -> None:
    client = Client()
    begun = anyio.Event()

    async def work(stream: EventStream) -> None:
        await stream.send("x")
        begun.set()
        await anyio.sleep_forever()

    stream = EventStream(work, ping=9, last=lambda refusal: f"data: {refusal.code}\n\n")
    task = asyncio.create_task(client.is_sent(stream))
    await begun.wait()
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    await task
    assert client.text == "data: x\n\ndata: shutting_down\n\n"
