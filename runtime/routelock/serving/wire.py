"""Bytes in and out, as ASGI has them: bodies, JSON answers, and a stream of server-sent events.

ASGI: https://asgi.readthedocs.io/en/latest/specs/www.html. Nothing here knows what is served.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from typing import Any, TypeVar

import anyio

from routelock.serving.refusals import Refusal

__all__ = [
    "AsgiReceive",
    "AsgiScope",
    "AsgiSend",
    "ClientGone",
    "EventStream",
    "attended",
    "headers_of",
    "read_body",
    "send_json",
]

T = TypeVar("T")

AsgiScope = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_DRAIN_SECONDS = 2.0


class ClientGone(Exception):
    """The client has closed the connection, so there is nobody to answer."""


def headers_of(scope: AsgiScope) -> dict[str, str]:
    """Return the headers of a request, names in lower case; of one that came twice, the first."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return found


async def read_body(receive: AsgiReceive, limit: int, declared: str | None) -> bytes:
    """Return the body of a request.

    Args:
        receive: the request.
        limit: most bytes; they are counted as they come, whatever the client declares.
        declared: the ``content-length`` header, if any.

    Raises:
        Refusal: 413.
        ClientGone: the connection was closed first.
    """
    too_long = declared is not None and declared.isdecimal() and int(declared[:20]) > limit
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        piece, more = await _piece(receive)
        size += len(piece)
        if too_long or size > limit:
            await _drain(receive, 2 * limit, more=more)
            raise Refusal(
                413,
                f"The body is longer than the {limit} bytes that this server takes.",
                "body_too_large",
                headers={"connection": "close"},
            )
        pieces.append(piece)
    return b"".join(pieces)


async def _piece(receive: AsgiReceive) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether more follows."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _drain(receive: AsgiReceive, most: int, *, more: bool) -> None:
    """Read a little further: a client that is cut off while it writes never sees why."""
    with anyio.move_on_after(_DRAIN_SECONDS):
        while more and most > 0:
            piece, more = await _piece(receive)
            most -= len(piece)


async def send_json(
    send: AsgiSend, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole response."""
    data = json.dumps(body).encode()
    every = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
    await send(_start(status, every))
    await send({"type": "http.response.body", "body": data})


def _start(status: int, headers: Mapping[str, str]) -> dict[str, Any]:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": raw}


class EventStream:
    """A response of server-sent events. It begins with the first event, so until then it can be refused.

    Args:
        send: where it goes.
        headers: more headers of the response.
        patience: seconds that a reader has to take the error that ends it.
    """

    def __init__(self, send: AsgiSend, headers: Mapping[str, str], *, patience: float = 5.0) -> None:
        self.started = False
        self._patience = patience
        self._send = send
        self._headers = headers
        self._lock = anyio.Lock(fast_acquire=True)  # or each event would wait for a turn of the event loop
        self._written = 0

    async def data(self, *events: Mapping[str, Any] | str, name: str = "") -> None:
        """Send events, each as JSON; text is sent as it stands. Without a name they are messages."""
        # ASCII only: some readers of lines take U+2028 or U+0085 in the JSON for the end of one
        texts = [each if isinstance(each, str) else json.dumps(each) for each in events]
        if texts:
            head = f"event: {name}\ndata" if name else "data"
            await self._write("".join(f"{head}: {text}\n\n" for text in texts))

    async def keep_alive(self, seconds: float) -> None:
        """Send a comment after every so many seconds of silence, until cancelled."""
        while True:
            before = self._written
            await anyio.sleep(seconds)
            if self._written == before:
                await self._write(": ping\n\n")

    async def end(self) -> None:
        """End the response."""
        async with self._lock:
            await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, error: Mapping[str, Any], *, name: str = "") -> None:
        """End the response with an error, in the form that clients raise on: no ``[DONE]`` follows.

        A reader that takes nothing any more is not waited for.
        """
        with anyio.move_on_after(self._patience, shield=True):
            await self.data(error, name=name)
            await self.end()

    async def _write(self, text: str) -> None:
        async with self._lock:
            if not self.started:
                kind = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
                # nginx would collect the events otherwise
                await self._send(_start(200, {**kind, "x-accel-buffering": "no", **self._headers}))
                self.started = True
            await self._send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            self._written += 1


async def attended(
    receive: AsgiReceive,
    work: Callable[[], Awaitable[T]],
    *beside: Callable[[], Coroutine[Any, Any, None]],
) -> T:
    """Do the work while the client is there, and cancel it the moment it leaves.

    Args:
        receive: the request, its body read to the end.
        work: what to do. What it raises is raised.
        beside: what to do meanwhile; cancelled when the work is done.

    Raises:
        ClientGone: it has left.
    """
    done: list[T] = []
    failed: list[Exception] = []

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        for task in beside:
            group.start_soon(task)
        try:
            done.append(await work())
        except Exception as error:  # here, because the group would wrap it
            failed.append(error)
        group.cancel_scope.cancel()
    if failed:
        raise failed[0]
    if not done:
        raise ClientGone
    return done[0]
