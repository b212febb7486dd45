"""A small HTTP server on a true socket: it says exactly what it is told, and misbehaves on demand.

It runs in threads of its own, so it serves tests on asyncio and on trio alike. Cassettes cannot test
what happens over time (a stall, a cut, a connection that is closed early); this can.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

import anyio
import anyio.to_thread
from waiting import PATIENCE

JSON = "application/json"
SSE = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Reply:
    """What the server sends for one request: the pieces of a chunked body, each as it is.

    ``ending`` is what it does then: ``end`` as HTTP demands; ``cut`` the connection in the middle of
    the body; ``stall``, which says nothing more until the client hangs up.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ending: Literal["end", "cut", "stall"] = "end"
    delay: float = 0.0
    """Seconds to wait before each piece."""


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    body: Any


class Server:
    """Serves its replies in order, the last one again and again. Use it in a ``with`` block."""

    def __init__(self, *replies: Reply) -> None:
        self.requests: list[Seen] = []
        self.hung_up = threading.Event()
        """Set as soon as a client has closed a connection."""
        self.asked = threading.Event()
        """Set as soon as a request has arrived."""
        self.connections = 0
        self._replies = list(replies)
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> Server:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _close(self._listener)
        self.hang_up()
        for thread in self._threads:
            thread.join(PATIENCE)

    async def client_hung_up(self) -> bool:
        """Wait until a client has closed a connection; False when none does in time."""
        return await anyio.to_thread.run_sync(self.hung_up.wait, PATIENCE)

    async def all_left(self, *, but: int = 0) -> bool:
        """Wait until no more connections are open than so many; False when they stay.

        A client that gave up in time may have opened none.
        """

        def wait() -> bool:
            tick = threading.Event()
            for _ in range(int(PATIENCE / 0.005)):
                if len(self._open) <= but:
                    return True
                tick.wait(0.005)
            return False

        return await anyio.to_thread.run_sync(wait)

    async def cancels(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do some work, and cancel it once its request has arrived here."""
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            assert await anyio.to_thread.run_sync(self.asked.wait, PATIENCE), "nothing was asked"
            group.cancel_scope.cancel()

    def hang_up(self) -> None:
        """Close the connections that are open now, as a server does that has waited long enough."""
        for connection in list(self._open):
            _close(connection)

    def _spawn(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            # else each small piece would wait 40 ms for the client's acknowledgement
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            self._open.add(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while (seen := _read(stream)) is not None:
                    self.requests.append(seen)
                    self.asked.set()
                    reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
                    if not self._answer(connection, stream, reply):
                        return
                self.hung_up.set()
        except OSError:
            self.hung_up.set()
        finally:
            self._open.discard(connection)

    def _answer(self, connection: socket.socket, stream: Any, reply: Reply) -> bool:
        headers = {"content-type": reply.content_type, "transfer-encoding": "chunked", **reply.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.sendall(f"HTTP/1.1 {reply.status} Said\r\n{head}\r\n".encode())
        for piece in filter(None, reply.pieces):  # a chunk of no bytes would be the end
            if reply.delay:
                threading.Event().wait(reply.delay)
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        if reply.ending == "end":
            connection.sendall(b"0\r\n\r\n")
        elif reply.ending == "stall" and not stream.read(1):
            self.hung_up.set()
        return reply.ending == "end"


def _close(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept or recv
    except OSError:
        pass
    one.close()


def _read(stream: Any) -> Seen | None:
    first = stream.readline()
    if not first:
        return None
    headers: dict[str, str] = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    return Seen(first.split()[1].decode(), headers, json.loads(body) if body else None)


@contextmanager
def served_by(handler: type[BaseHTTPRequestHandler]) -> Generator[str]:
    """Serve with a handler of the standard library, and yield the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def refused_url() -> str:
    """Return an address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}/v1"


def said(message: Mapping[str, Any], *, finish: str | None = "stop", **more: Any) -> Reply:
    """A whole chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "r1", "object": "chat.completion", "model": "m-1", "choices": [choice], **more}
    return Reply((json.dumps(body).encode(),))


def failed(status: int, message: str = "no", **headers: str) -> Reply:
    """An error as OpenAI words it; underscores in header names become dashes."""
    body = json.dumps({"error": {"message": message, "type": "t", "code": None}}).encode()
    return Reply((body,), status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(delta: Mapping[str, Any], *, finish: str | None = None, **more: Any) -> bytes:
    """One streamed chunk."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return event({"id": "r1", "object": "chat.completion.chunk", "model": "m-1", "choices": choices, **more})


def streamed(
    *chunks: bytes, done: bool = True, ending: Literal["end", "cut", "stall"] = "end", delay: float = 0.0
) -> Reply:
    """A stream of server-sent events, closed with ``[DONE]`` if ``done``."""
    end = (event(b"[DONE]"),) if done else ()
    return Reply((*chunks, *end), content_type=SSE, ending=ending, delay=delay)


USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
HELLO = said({"content": "Hello"}, usage=USAGE)
HELLO_STREAM = streamed(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk({}, finish="stop"),
    event({"id": "r1", "model": "m-1", "choices": [], "usage": USAGE}),
)


def free_port() -> int:
    """Return a port of this machine that nothing uses at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
