"""A server of raw bytes: it says what no HTTP library would, and tells when its client has hung up.

`servers.Server` misbehaves within HTTP; this one breaks HTTP itself, the connection, or the bounds of
what anyone would read.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from servers import JSON, SSE, Reply, Server
from waiting import PATIENCE

__all__ = ["SHOWN", "Raw", "RawServer", "body", "head", "in_chunks"]

Ending = Literal["keep", "close", "reset", "stall"]

SHOWN = b"-- wait until something was shown --"
"""In place of bytes: the server goes on when whoever reads the stream has set `RawServer.shown`."""


@dataclass(frozen=True)
class Raw(Reply):
    """Bytes for the socket, as they are.

    ``then`` is what the server does after them: ``keep`` the connection for the next request,
    ``close`` it in order, ``reset`` it (the client's next read fails), or ``stall``.
    """

    sent: Iterable[bytes] | Callable[[], Iterable[bytes]] = ()
    then: Ending = "keep"


class RawServer(Server):
    """Serves `Raw` and other replies in order, the last one again and again."""

    def __enter__(self) -> RawServer:
        super().__enter__()
        return self

    def __init__(self, *replies: Reply) -> None:
        super().__init__(*replies)
        self.sent = 0
        """Bytes that were taken from us."""
        self.said_goodbye = threading.Event()
        """Set as soon as a connection has been closed in order."""
        self.shown = threading.Event()
        """To be set as soon as a client has shown something of a stream."""

    def say(self, *replies: Reply) -> None:
        """Go on with these, and forget what was."""
        self._replies[:] = replies
        self.requests.clear()
        for happened in (self.asked, self.hung_up, self.said_goodbye, self.shown):
            happened.clear()

    def _answer(self, connection: socket.socket, stream: Any, reply: Reply) -> bool:
        if not isinstance(reply, Raw):
            return super()._answer(connection, stream, reply)
        connection.settimeout(PATIENCE)
        sent, before = reply.sent() if callable(reply.sent) else reply.sent, self.sent
        for piece in sent:
            if piece is SHOWN:
                self.shown.wait(PATIENCE)
                continue
            connection.sendall(piece)
            self.sent += len(piece)
        if reply.then == "keep":
            return True
        if reply.then == "reset":
            threading.Event().wait(0.1 if self.sent > before else 0)  # what was sent is to be read first
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if reply.then == "close":
            connection.shutdown(socket.SHUT_WR)
            self.said_goodbye.set()
        while stream.read(1):  # until the client closes its side, too
            pass
        self.hung_up.set()
        return False


def head(status: int = 200, kind: str | None = JSON, *, length: int | None = None) -> bytes:
    """The head of an answer; chunked without a length."""
    every = {"content-type": kind} if kind else {}
    every |= {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
    return f"HTTP/1.1 {status} Said\r\n{lines}\r\n".encode()


def body(data: bytes | Any, status: int = 200, kind: str | None = JSON, **headers: str) -> Raw:
    """A whole answer, well formed as HTTP."""
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    start = head(status, kind, length=len(data))
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return Raw(sent=(start[:-2] + more.encode() + b"\r\n", data))


def in_chunks(*pieces: bytes, end: bool = True, kind: str = SSE) -> tuple[bytes, ...]:
    """An answer in HTTP's chunks; without its ``end`` the body is open."""
    cut = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces if piece]
    return (head(200, kind), *cut, *([b"0\r\n\r\n"] if end else []))
