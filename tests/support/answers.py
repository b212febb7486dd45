"""Answers of respx in place of `servers.Server`, for tests that need no socket."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from types import TracebackType

import httpx
import respx
from servers import Reply, Seen, Server

from routelock.testing import use_respx

__all__ = ["Answers", "AnyServer", "answering"]

_PORTS = itertools.count(2000)
"""At which nothing listens."""

_OPEN: dict[int, Answers] = {}
"""The answers of the running test, by the ports of their addresses."""


@contextmanager
def answering() -> Generator[None]:
    """Let `Answers` answer, and servers too; tests of a module share the router, since each takes 2 ms."""
    with use_respx(respx.mock(assert_all_called=False)) as router:
        router.route(host="127.0.0.1").mock(side_effect=_answer)
        router.route().pass_through()
        yield


def _answer(request: httpx.Request) -> httpx.Response | None:
    found = _OPEN.get(request.url.port or 0)
    return None if found is None else found.answer(request)


class Answers:
    """Gives its replies in order, the last one again and again. Use it in a ``with`` block.

    A ``cut`` is the error that httpx raises when a body ends too early. There is no ``stall``: whether a
    silent server is left in time is for sockets to show.
    """

    def __init__(self, *replies: Reply) -> None:
        assert all(reply.ending != "stall" and not reply.delay for reply in replies), "that takes a socket"
        self.requests: list[Seen] = []
        self._replies = list(replies)
        self._port = next(_PORTS)
        self.url = f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> Answers:
        _OPEN[self._port] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del _OPEN[self._port]

    def say(self, *replies: Reply) -> None:
        """Go on with these."""
        self._replies[:] = replies

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Return the next reply, and keep the request."""
        body, path = request.content, request.url.raw_path.decode()
        self.requests.append(Seen(path, dict(request.headers), json.loads(body) if body else None))
        reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        headers = {"content-type": reply.content_type, **reply.headers}
        return httpx.Response(reply.status, headers=headers, stream=_Body(reply))


class _Body(httpx.AsyncByteStream, httpx.SyncByteStream):
    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def __iter__(self) -> Iterator[bytes]:
        yield from self._reply.pieces
        if self._reply.ending == "cut":
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


AnyServer = Answers | Server
"""What a test asks, with a socket or without one."""
