"""A client that leaves cancels its run at once, and no other run."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel
import pytest
from asgi_client import asked
from served_apps import ask, deltas_of, events_of, post, served, text_in
from waiting import PATIENCE

from routelock import Agent, Request, Tool, function_tool
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.serving import ServeConfig, create_app
from routelock.testing import ScriptedHandler, call, reply


class Watched:
    """Something that takes for ever, and notices when it is cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.begun.set()
        try:
            yield
        except BaseException:
            self.cancelled.set()
            raise

    async def silent_model(self, request: Request) -> str:
        with self.watching():
            await anyio.sleep_forever()
        return ""

    async def talking_model(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        yield TextDelta("Half an")
        with self.watching():
            await anyio.sleep_forever()

    @property
    def tool(self) -> Tool:
        @function_tool
        async def work() -> str:
            """Work."""
            with self.watching():
                await anyio.sleep_forever()
            return ""

        return work


def connect(url: str, body: Any, *, cut: int | None = None) -> socket.socket:
    """Send a request, or the beginning of one, and return the connection."""
    address, data = urlsplit(url), json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {address.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(data)}\r\n\r\n"
    )
    connection = socket.create_connection((address.hostname, address.port), PATIENCE)
    connection.sendall(head.encode() + data[:cut])
    return connection


def received(connection: socket.socket, most: int) -> bytes:
    """Return the next bytes that the server sends; the end of the connection fails the test."""
    data = connection.recv(most)
    assert data, "the server has closed the connection"
    return data


def silent(watched: Watched) -> Agent[Any]:
    return Agent("A", model=ScriptedHandler([watched.silent_model, "Hi."]))


def talking(watched: Watched) -> Agent[Any]:
    return Agent("A", model=ScriptedHandler([watched.talking_model, "Hi."]))


def working(watched: Watched) -> Agent[Any]:
    model = ScriptedHandler([reply("One moment.", calls=[call("work")]), "Hi."])
    return Agent("A", model=model, tools=[watched.tool])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("made", [silent, talking, working])
def test_leaving_cancels_the_run(made: Callable[[Watched], Agent[Any]], stream: bool) -> None:
    """While the model thinks, while it talks, and while a tool runs."""
    watched = Watched()
    with served(made(watched), ServeConfig(max_concurrent=1)) as url:
        with connect(url, ask(stream=stream)):
            assert watched.begun.wait(PATIENCE)
            assert not watched.cancelled.is_set()
        assert watched.cancelled.wait(PATIENCE)
        assert until_free(url) == 200, "the slot is free again"


def until_free(url: str) -> int:
    """Return the status of a request, as soon as the slot of the one before is free."""
    end = time.monotonic() + PATIENCE
    while (status := post(url, ask()).status_code) == 429 and time.monotonic() < end:
        time.sleep(0.01)
    return status


def test_leaving_in_the_middle_of_the_body_runs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    with served(silent(watched)) as url:
        with connect(url, ask("x" * 100_000), cut=50_000):
            pass
        with connect(url, ask(), cut=0):
            pass
        assert post(f"{url}", {}).status_code == 400, "the server goes on"
    assert not watched.begun.is_set()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_body_without_an_end_times_out() -> None:
    watched = Watched()
    with served(silent(watched), ServeConfig(body_timeout=0.1)) as url:
        with connect(url, ask("x" * 1000), cut=500) as connection:
            assert connection.recv(1000).startswith(b"HTTP/1.1 408")
    assert not watched.begun.is_set()


def test_leaving_after_a_ping_cancels_the_run() -> None:
    watched = Watched()
    with served(silent(watched), ServeConfig(ping=0.05)) as url:
        with connect(url, ask(stream=True)) as connection:
            seen = b""
            while seen.count(b": ping\n\n") < 2:
                seen += received(connection, 10_000)
            assert b"data:" not in seen
        assert watched.cancelled.wait(PATIENCE)


def test_one_client_leaves_and_the_other_is_answered() -> None:
    watched, other = Watched(), threading.Event()

    async def slow(request: Request) -> str:
        await anyio.to_thread.run_sync(other.wait, PATIENCE)
        return "For you."

    answers: list[str] = []
    model = ScriptedHandler([watched.silent_model, slow])
    with served(Agent("A", model=model)) as url:

        def stay() -> None:
            answers.append(text_in(deltas_of(events_of(post(url, ask(stream=True))))))

        with connect(url, ask(stream=True)):
            assert watched.begun.wait(PATIENCE)
            staying = threading.Thread(target=stay)
            staying.start()
        assert watched.cancelled.wait(PATIENCE)
        other.set()
        staying.join(PATIENCE)
    assert answers == ["For you."]


def test_a_slow_reader_holds_the_run_back_and_can_leave() -> None:
    """Nothing is read ahead of the client for long: what is between are the buffers of the sockets."""
    piece, sent, watched = "x" * 10_000, [0], Watched()

    async def endless(request: Request) -> AsyncGenerator[HandlerEvent]:
        with watched.watching():
            while True:
                sent[0] += 1
                yield TextDelta(piece)
                await anyio.lowlevel.checkpoint()

    with served(Agent("A", model=ScriptedHandler([endless]))) as url:
        with connect(url, ask(stream=True)):
            settled = wait_until_still(sent)
            assert settled < 5_000, "50 MB for a client that reads nothing"
        assert watched.cancelled.wait(PATIENCE)


def wait_until_still(counter: list[int]) -> int:
    before = -1
    while counter[0] != before:
        before = counter[0]
        threading.Event().wait(0.3)
    return before


def test_a_slow_reader_gets_all_of_it_in_the_end() -> None:
    pieces = [f"{n} " for n in range(2000)]

    async def much(request: Request) -> AsyncGenerator[HandlerEvent]:
        for piece in pieces:
            yield TextDelta(piece)
        yield MessageDone(message={"role": "assistant", "content": "".join(pieces)})

    with served(Agent("A", model=ScriptedHandler([much])), ServeConfig(ping=0.05)) as url:
        with connect(url, ask(stream=True)) as connection:
            threading.Event().wait(0.3)
            seen = b""
            while b"[DONE]" not in seen:
                seen += received(connection, 1000)
    contents = [json.loads(line[6:]) for line in seen.split(b"\n") if line.startswith(b"data: {")]
    assert text_in(deltas_of(contents)) == "".join(pieces)


def test_a_reader_that_stalls_until_the_timeout_is_cut_off() -> None:
    watched = Watched()

    async def endless(request: Request) -> AsyncGenerator[HandlerEvent]:
        with watched.watching():
            while True:
                yield TextDelta("x" * 10_000)
                await anyio.lowlevel.checkpoint()

    app = create_app(Agent("A", model=ScriptedHandler([endless])), ServeConfig(timeout=1.5))
    answer = asked(app, "/chat/completions", ask(stream=True), virtual=True, takes=2)
    assert (b"xxx" in answer.body, answer.has_end) == (True, False)
    assert watched.cancelled.is_set()
