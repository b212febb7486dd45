"""Bytes in and out, against an ASGI server played by the test, on both event loops."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock.serving.completions import ClientGone, EventStream, attended, headers_of, read_body, send_json
from routelock.serving.errors import Refusal

pytestmark = pytest.mark.anyio


class Client:
    """The other end: what it sends, and what it got."""

    def __init__(self, *pieces: bytes, leaves: bool = False) -> None:
        self.pieces = list(pieces)
        self.leaves = leaves
        self.gone = anyio.Event()
        self.got: list[Mapping[str, Any]] = []

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

    @property
    def text(self) -> str:
        return b"".join(each.get("body", b"") for each in self.got).decode()


async def test_a_body_is_all_of_its_pieces() -> None:
    assert await read_body(Client(b"a", b"", b"bc").receive, 3, None) == b"abc"


@pytest.mark.parametrize("declared", [None, "1", "nonsense", "-5", "9" * 5000])
async def test_what_counts_is_what_comes(declared: str | None) -> None:
    with pytest.raises(Refusal, match="413"):
        await read_body(Client(*[b"x" * 10] * 5).receive, 40, declared)


async def test_what_declares_too_much_is_refused_before_it_came() -> None:
    with pytest.raises(Refusal, match="413"):
        await read_body(Client(b"x").receive, 40, "41")


async def test_a_body_that_breaks_off_is_nobodys() -> None:
    with pytest.raises(ClientGone):
        await read_body(Client(b"abc", leaves=True).receive, 10, None)


async def test_headers_are_in_lower_case_and_the_first_counts() -> None:
    scope = {"headers": [(b"Host", b"a"), (b"host", b"b"), (b"x-y", b"\xe9")]}
    assert headers_of(scope) == {"host": "a", "x-y": "é"}


async def test_a_whole_response_has_its_length() -> None:
    client = Client()
    await send_json(client.send, 418, {"a": "é"}, {"x-y": "z"})
    assert client.got[0]["status"] == 418
    headers = dict(client.got[0]["headers"])
    assert headers[b"content-length"] == str(len(client.got[1]["body"])).encode()
    assert headers[b"x-y"] == b"z"
    assert json.loads(client.text) == {"a": "é"}


async def test_a_stream_begins_with_its_first_event() -> None:
    client = Client()
    stream = EventStream(client.send, {})
    await stream.data()
    assert not stream.started
    await stream.data({"a": 1}, "[DONE]")
    await stream.end()
    assert stream.started
    assert [each["type"] for each in client.got] == ["http.response.start"] + ["http.response.body"] * 2
    assert client.text == 'data: {"a": 1}\n\ndata: [DONE]\n\n'


@pytest.mark.virtual_time
async def test_silence_alone_is_filled() -> None:
    client = Client()
    stream = EventStream(client.send, {})
    async with anyio.create_task_group() as group:
        group.start_soon(stream.keep_alive, 0.02)
        for _ in range(10):
            await stream.data("x")
            await anyio.sleep(0.01)
        assert ": ping" not in client.text
        await anyio.sleep(0.05)
        group.cancel_scope.cancel()
    assert client.text.endswith(": ping\n\n")


async def test_work_is_done_and_its_company_ends() -> None:
    ended = anyio.Event()

    async def beside() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async def work() -> int:
        await anyio.lowlevel.checkpoint()
        return 7

    assert await attended(Client().receive, work, beside) == 7
    assert ended.is_set()


async def test_what_the_work_raises_is_raised_as_it_is() -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await attended(Client().receive, work)


async def test_a_client_that_leaves_ends_the_work() -> None:
    client, cancelled = Client(), anyio.Event()

    async def work() -> None:
        client.gone.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    with pytest.raises(ClientGone):
        await attended(client.receive, work)
    assert cancelled.is_set()


@pytest.mark.virtual_time
async def test_an_end_from_outside_passes() -> None:
    async def work() -> None:
        await anyio.sleep_forever()

    with anyio.move_on_after(0.01) as scope:
        await attended(Client().receive, work)
    assert scope.cancelled_caught


async def test_a_reader_that_takes_nothing_is_not_told_for_ever() -> None:
    """The error of a stream is sent under a shield of its own, which has an end."""
    calls: list[str] = []

    async def stuck(message: Mapping[str, Any]) -> None:
        calls.append(message["type"])
        await anyio.sleep_forever()

    stream = EventStream(stuck, {}, patience=0.01)
    with anyio.move_on_after(20) as scope:
        await stream.fail({"error": {}})
    assert not scope.cancelled_caught
    assert calls == ["http.response.start"]
