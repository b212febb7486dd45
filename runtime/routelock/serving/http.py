"""Requests and responses by Starlette: bodies, JSON, server-sent events, and the checks before a handler.

Imported when an app is made, because Starlette is an extra.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import anyio
from pydantic_core import PydanticSerializationError, to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from routelock._concurrency import open_group
from routelock.serving.auth import AccessControl, Principal
from routelock.serving.catalog import ServedApp
from routelock.serving.config import ServedRequest
from routelock.serving.errors import Refusal, closing, log_refusal, new_request_id, out_of_time, refusal_for
from routelock.serving.requests import check_size, read_json

__all__ = [
    "AsciiJSON",
    "Endpoint",
    "EventStream",
    "Incoming",
    "RpcCall",
    "attended",
    "event_text",
    "events_text",
    "read_body",
    "read_call",
]


T = TypeVar("T")

_Job = Callable[[], Coroutine[Any, Any, None]]

_logger = logging.getLogger("routelock.serving")

_LONGEST_TRACEPARENT = 256

_SECRETS = ("authorization", "cookie", "proxy-authorization")

_DRAIN_SECONDS = 2.0
"""How long the rest of a body that is too long is read."""

_PATIENCE = 5.0
"""Seconds that a client has to take the error that ends its stream."""

_HEAD = ("jsonrpc", "id", "method")

_BUFFERED_EVENTS = 16
"""The number of events that may wait for a slow client."""

_PING = ": ping\n\n"

_UNKNOWN = Principal("anonymous", frozenset())
"""The caller of a request that was not checked yet."""


class AsciiJSON(JSONResponse):
    """A JSON response in ASCII.

    It may quote a client's text with half a surrogate pair, which UTF-8 cannot encode.
    """

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return _ascii(content).encode()


def _ascii(value: Any) -> str:
    """Return a value as JSON in ASCII."""
    try:
        text = to_json(value)  # takes a fifth of the time
    except PydanticSerializationError:  # such as half of a character
        return json.dumps(value)
    return text.decode() if text.isascii() else json.dumps(value)


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """Return the body of a request.

    Args:
        request: the request.
        limit: most bytes. They are counted as they arrive, whatever the client declares.
        seconds: how long the body may take to arrive.

    Raises:
        Refusal: 413 if it is longer, 408 if it takes longer.
        ClientDisconnect: the client has closed the connection.
    """
    with anyio.move_on_after(seconds):
        return await _all_of(request, limit)
    raise Refusal(408, "The body did not arrive in time.", "body_timeout", headers={"connection": "close"})


async def _all_of(request: Request, limit: int) -> bytes:
    too_long = _declared(request, limit) > limit
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        piece, more = await _next_piece(request.receive)
        size += len(piece)
        if too_long or size > limit:
            if more:
                await _drain(request.receive, 2 * limit)
            why = f"The body is longer than the {limit} bytes that this server takes."
            raise Refusal(413, why, "body_too_large", headers={"connection": "close"})
        pieces.append(piece)
    return b"".join(pieces)


async def _next_piece(receive: Receive) -> tuple[bytes, bool]:
    """Return the next piece of a body, and whether more pieces follow."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def _declared(request: Request, otherwise: int) -> int:
    """Return the declared size of a body."""
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else otherwise


async def _drain(receive: Receive, most: int) -> None:
    """Read some of the rest: a client that is cut off while it writes does not see the refusal."""
    more = True
    with anyio.move_on_after(_DRAIN_SECONDS):
        while more and most > 0:
            piece, more = await _next_piece(receive)
            most -= len(piece)


def _received_again(body: bytes, receive: Receive) -> Receive:
    """Return a function that receives a body once more, and then the next messages of the client."""
    left = [body]

    async def read() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read


async def attended(request: Request, work: Callable[[], Awaitable[T]], seconds: float = math.inf) -> T:
    """Do the work while the client is connected, and cancel it when the client leaves.

    Args:
        request: the request, its body read to the end.
        work: the work. Its errors are raised.
        seconds: how long it may take.

    Raises:
        ClientDisconnect: the client has left.
        Refusal: 504, it took longer.
    """
    # one scope for both: a second one costs as much again
    with anyio.move_on_after(seconds) as connected:
        async with _beside(partial(_cancel_on_disconnect, request.receive, connected)):
            return await work()
    if anyio.current_time() >= connected.deadline:
        raise out_of_time(seconds)
    raise ClientDisconnect


def _beside(*jobs: _Job) -> AbstractAsyncContextManager[None]:
    """Return a block that runs jobs while it lasts, and cancels them at its end."""
    return _Tasks(jobs) if _is_asyncio() else _in_group(jobs)


class _Tasks:
    """Jobs as tasks of asyncio: a task group, and the cancellation of its scope, takes ten times as long."""

    def __init__(self, jobs: Sequence[_Job]) -> None:
        self._jobs = jobs

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(job()) for job in self._jobs]

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def _in_group(jobs: Sequence[_Job]) -> AsyncGenerator[None]:
    async with open_group() as group:
        for job in jobs:
            group.start_soon(job)
        yield
        group.cancel_scope.cancel()


def _is_asyncio() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # another event loop than asyncio's runs
        return False


async def _cancel_on_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def event_text(event: Mapping[str, Any] | str, name: str = "") -> str:
    """Return a server-sent event; text is sent as it is, and all else as JSON.

    ASCII only: some readers of lines take U+2028 or U+0085 in the JSON for the end of a line.
    """
    data = event if isinstance(event, str) else _ascii(event)
    return f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


def events_text(events: Iterable[Mapping[str, Any] | str], named_by: str) -> str:
    """Return several events; the name of each is under the key ``named_by``, if it has one."""
    return "".join([event_text(event, _name_of(event, named_by)) for event in events])


def _name_of(event: Mapping[str, Any] | str, named_by: str) -> str:
    return "" if isinstance(event, str) else event.get(named_by, "")


class EventStream(StreamingResponse):
    """A response of server-sent events, made by a function while the client reads them.

    The response begins with the first event, or with a comment after ``ping`` seconds. Until then an error of
    the function is raised as a `Refusal`, which has a status; later it is the last event. The function is
    cancelled when the client leaves, and when the server ends; then the client gets an error.

    Args:
        work: the function. It is given this response, and sends the events.
        ping: seconds of silence after which a comment is sent, so that no proxy closes the connection.
        timeout: seconds that the function may take.
        last: returns the text of the last events, for an error after the response has begun.
        named_by: the key of an event that has its name, in protocols whose events have names.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        work: Callable[[EventStream], Awaitable[None]],
        *,
        ping: float,
        timeout: float = math.inf,
        last: Callable[[Refusal], str] = lambda _: "",
        named_by: str = "",
    ) -> None:
        self._named_by = named_by
        self._work, self._ping, self._timeout, self._last = work, ping, timeout, last
        self._pending: list[str] = []
        """The events that the server does not have yet."""
        # an event would be made anew for each wait, which takes as long as all else of a send
        self._wake, self._over = anyio.Semaphore(0, fast_acquire=True), anyio.Event()
        self._room: anyio.Event | None = None
        """Set when a slow client has taken events; None if no work waits for that."""
        self._events, self._is_done = 0, False
        self.has_begun: bool = False
        # nginx would collect the events otherwise
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__((), headers=headers)

    async def send(self, *events: Mapping[str, Any] | str, name: str = "") -> None:
        """Send events, and wait while the client is slow; see `event_text`."""
        for event in events:
            self._put(event_text(event, name or _name_of(event, self._named_by)))
        while len(self._pending) >= _BUFFERED_EVENTS:
            self._room = self._room or anyio.Event()
            await self._room.wait()

    def send_nowait(self, event: Mapping[str, Any] | str) -> None:
        """Send an event without waiting for a slow client."""
        self._put(event_text(event))

    def _put(self, text: str) -> None:
        self._events += 1
        if not self._pending:
            self._wake.release()
        self._pending.append(text)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI app does.

        Raises:
            Refusal: there is nothing to send, because the work failed.
            ClientDisconnect: the client has left.
        """
        has_ended = False
        with anyio.CancelScope() as connected:
            leaves = partial(_cancel_on_disconnect, receive, connected)
            async with _beside(leaves, self._keep_alive, partial(self._deliver, send, connected)):
                until = anyio.current_time() + self._timeout
                if (refusal := await self._worked(connected, until)) is not None:
                    await self._refused(refusal)
                else:  # a client that does not take the end counts as one that has left
                    connected.deadline = until + _PATIENCE
                    await self._end()
                # servers report the end of a response in the same way as a client that leaves
                has_ended = True
        if not has_ended:
            raise ClientDisconnect

    async def _worked(self, connected: anyio.CancelScope, until: float) -> Refusal | None:
        """Do the work, and return the refusal if it fails."""
        try:
            with anyio.CancelScope(deadline=until) as working:
                await self._work(self)
        except asyncio.CancelledError:  # servers on asyncio cancel running requests when they end
            if connected.cancel_called or (task := asyncio.current_task()) is None:
                raise
            task.uncancel()
            return closing()
        except ClientDisconnect:
            raise
        except Exception as error:
            return refusal_for(error)
        return out_of_time(self._timeout) if working.cancelled_caught else None

    async def _refused(self, refusal: Refusal) -> None:
        """Send the refusal as the end, which a client has seconds to take; raise it if nothing was sent."""
        if not self.has_begun and not self._pending:
            raise refusal
        self._put(self._last(refusal))
        with anyio.move_on_after(_PATIENCE, shield=True):
            await self._end()

    async def _end(self) -> None:
        """Wait until the client has the end of the response."""
        self._is_done = True
        self._wake.release()
        await self._over.wait()

    async def _deliver(self, send: Send, connected: anyio.CancelScope) -> None:
        """Give the server the pending events, until there will be no more.

        It runs when the work waits, so events that come together are one message, and one call of the system.
        """
        try:
            is_done = False
            while not is_done:
                await self._wake.acquire()
                text = "".join(self._pending)
                self._pending.clear()
                if not self.has_begun:
                    self.has_begun = True
                    head = {"type": "http.response.start", "status": self.status_code}
                    await send({**head, "headers": self.raw_headers})
                if text:
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
                if self._room is not None:
                    self._room.set()
                    self._room = None
                is_done = self._is_done and not self._pending
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:  # some servers report in this way that a client has left
            connected.cancel()
        finally:
            self._over.set()

    async def _keep_alive(self) -> None:
        """Send a comment whenever nothing else was sent for ``ping`` seconds."""
        while True:
            before = self._events
            await anyio.sleep(self._ping)
            if self._events == before:
                self._put(_PING)


class Incoming:
    """A request and the way to respond to it.

    Args:
        request: Starlette's request.
        send: takes the messages of the response.
    """

    def __init__(self, request: Request, send: Send) -> None:
        self.request = request
        self.headers: dict[str, str] = {}
        """Names in lower case; of several headers with a name the first one counts."""
        for name, value in request.headers.items():
            self.headers.setdefault(name, value)
        self.id: str = new_request_id()
        """The id in the ``x-request-id`` header of the response and in the log."""
        self.principal: Principal = _UNKNOWN
        self.is_answered: bool = False
        """Whether the response has begun."""
        self._send = send

    def about(
        self, model: str, *, user: str | None = None, handoff_context: Mapping[str, Any] | None = None
    ) -> ServedRequest:
        """Return the request in the form for the app's own code."""
        context = dict(handoff_context or {})
        if trace := self.headers.get("traceparent", "")[:_LONGEST_TRACEPARENT]:
            context["traceparent"] = trace
        return ServedRequest(
            request_id=self.id,
            model=model,
            principal=self.principal.name,
            scopes=self.principal.scopes,
            user=user,
            headers={name: value for name, value in self.headers.items() if name not in _SECRETS},
            handoff_context=context,
        )

    async def respond(self, response: Response) -> None:
        """Send a response, with the request's id in its headers."""
        response.raw_headers.append((b"x-request-id", self.id.encode()))
        await response(self.request.scope, self.request.receive, self._sent)

    async def _sent(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcCall:
    """A request that the SDK of its protocol reads after the app."""

    head: Mapping[str, object]
    """Its ``jsonrpc``, ``id`` and ``method``, as far as it has them."""
    receive: Receive
    """Receives the body once more. Nothing else keeps it: the answer may take long."""


async def read_call(incoming: Incoming, app: ServedApp) -> RpcCall:
    """Read the body of a request of a protocol on JSON-RPC.

    Raises:
        Refusal: 400, 408, 413 or 415, the body is wrong; 429, too much is read at the same time.
        ClientDisconnect: the client has closed the connection.
    """
    request, access, config = incoming.request, app.access, app.config
    access.check_content_type(incoming.headers.get("content-type", ""))
    with access.body_room(min(_declared(request, config.max_body), config.max_body)):
        body = await read_body(request, config.max_body, config.body_timeout)
        check_size(said := read_json(body))
    fields = cast("dict[str, object]", said) if isinstance(said, dict) else dict[str, object]()
    head = {name: value for name, value in fields.items() if name in _HEAD}
    return RpcCall(head=head, receive=_received_again(body, request.receive))


class Endpoint:
    """The ASGI app of a route: checks a request, calls the handler, and answers errors with refusals.

    Args:
        access: the checks.
        handle: responds to a request that passed the checks.
        is_open: whether a request needs no key.
        body_of: makes the body of a refusal from the refusal and the request's id.
    """

    def __init__(
        self,
        access: AccessControl,
        handle: Callable[[Incoming], Awaitable[None]],
        *,
        is_open: bool = False,
        body_of: Callable[[Refusal, str], Mapping[str, Any]] = Refusal.body,
    ) -> None:
        self._access, self._handle, self._is_open, self._body_of = access, handle, is_open, body_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        incoming = Incoming(Request(scope, receive), send)
        try:
            self._check(incoming)
            await self._handle(incoming)
        except ClientDisconnect:
            _logger.info("%s: the client has left", incoming.id)
        except (asyncio.CancelledError, Exception) as error:
            # servers on asyncio cancel running requests when they end, and would log the error
            ending = isinstance(error, asyncio.CancelledError)
            if incoming.is_answered and not ending:
                raise
            if not incoming.is_answered:
                await self._refuse(incoming, closing() if ending else refusal_for(error))

    def _check(self, incoming: Incoming) -> None:
        headers = incoming.headers
        self._access.check_host(headers.get("host", ""))
        if self._is_open:
            incoming.principal = self._access.anonymous
        else:
            incoming.principal = self._access.authenticate(headers.get("authorization", ""))

    async def _refuse(self, incoming: Incoming, refusal: Refusal) -> None:
        log_refusal(incoming.id, refusal)
        body = self._body_of(refusal, incoming.id)
        await incoming.respond(AsciiJSON(body, refusal.status, refusal.headers))
