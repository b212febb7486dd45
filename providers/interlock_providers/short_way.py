"""A short way through aiohttp: its connections and its reading of answers, without its making of requests.

aiohttp makes each request anew: it copies the headers, looks for cookies, keys, proxies, encodings and
redirects, and starts a task that writes the body. A handler says the same of each of its requests but for the
body, so here all that goes before the body is written down once. That saves half of what a call by aiohttp
costs.

Who looks on at requests by aiohttp's means, as tracers and recorders do, sees aiohttp's own way: `is_open`.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage

from interlock_providers.at_once import FirstLook, Heads, Whole, make_ready
from interlock_providers.pools import NO_TIMEOUT

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey

__all__ = ["Posted", "ShortAnswer", "ShortWay"]

_IS_KNOWN = aiohttp.__version__.startswith("3.14.")
"""Whether this release of aiohttp is one whose connections are used here as it uses them itself."""

_SMALL = 2**16
"""Bytes that are put behind the head. A longer body is not copied for that."""

_UNSAFE = re.compile(r"[\r\n\0]")

_OF_A_BODY = ("expect", "transfer-encoding")
"""Headers that say how a body is sent, when it is not just sent."""

_OF_AIOHTTP = aiohttp.client.__dict__
_OF_A_SESSION = vars(aiohttp.ClientSession)

_SWITCHING = 101
"""The one status below 200 that is an answer."""


class ShortAnswer:
    """An answer whose body has not been read yet: what is needed of an `aiohttp.ClientResponse`.

    Args:
        message: its head.
        content: its body.
        connection: given back at the end of the body.
    """

    def __init__(
        self, message: RawResponseMessage, content: aiohttp.StreamReader, connection: Connection
    ) -> None:
        self.status = message.code
        self.headers = message.headers
        self.raw_headers = message.raw_headers
        self.content = content
        self.connection: Connection | None = connection
        content.on_eof(self._give_back)

    @property
    def closed(self) -> bool:
        """Whether the connection was given back, or ended."""
        return self.connection is None

    def close(self) -> None:
        """End the connection, if it was not given back."""
        if self.connection is not None:
            if self.content.exception() is None:
                self.content.set_exception(aiohttp.ClientConnectionError("Connection closed"))
            self.connection.close()
            self.connection = None

    def _give_back(self) -> None:
        if self.connection is not None:
            self.connection.release()
            self.connection = None


class Posted(aiohttp.ClientRequest):
    """A request that says where to post, again and again."""

    _key: ConnectionKey | None = None

    @property
    def connection_key(self) -> ConnectionKey:
        """By which the pool knows the connections that will do: the same for each of its calls."""
        if self._key is None:
            self._key = super().connection_key
        return self._key


class ShortWay:
    """Posts to one address over the connections of a session.

    Args:
        session: whose connections to use, none of them through a proxy.
        request: says where to, and with which headers. Its own body is not sent.
    """

    def __init__(self, session: aiohttp.ClientSession, request: Posted) -> None:
        connector = session.connector
        assert connector is not None
        self._session = session
        self._connector = connector
        self._request = request
        self._head = _head_of(request)
        self._heads = Heads(asyncio.get_running_loop())

    def is_open(self) -> bool:
        """Whether this can be used now: not while somebody looks on by aiohttp's own means."""
        # a recorder puts something of its own in its place
        is_its_own = getattr(_OF_A_SESSION["_request"], "__globals__", None) is _OF_AIOHTTP
        return is_its_own and bool(self._head) and not self._session.trace_configs

    async def post(self, body: bytes, timeout: aiohttp.ClientTimeout = NO_TIMEOUT) -> ShortAnswer | Whole:
        """Send a body and return the answer as soon as its headers are there.

        Args:
            body: what to send.
            timeout: how long a connection, and each read, may take.

        Raises:
            aiohttp.ClientError: there is none.
        """
        try:
            connection = await self._connector.connect(self._request, traces=[], timeout=timeout)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {self._request.url}") from error
        try:
            protocol = connection.protocol
            assert protocol is not None
            transport = _open(protocol.transport)
            if timeout.sock_read is None:
                look: object = transport.get_protocol()
                if not isinstance(look, FirstLook):
                    look = FirstLook(self._heads, protocol, transport)
                answer = look.answer()
                self._write(transport, body)
                if (whole := await answer) is not None:
                    connection.release()
                    return whole
            else:
                make_ready(protocol, timeout.sock_read)
                self._write(transport, body)
                protocol.start_timeout()
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != _SWITCHING:
                message, content = await protocol.read()  # what comes before an answer is none
        except HttpProcessingError as error:
            connection.close()
            raise aiohttp.ClientResponseError(
                self._request.request_info,
                (),
                status=error.code,
                message=error.message,
                headers=error.headers,
            ) from error
        except BaseException:
            connection.close()
            raise
        return ShortAnswer(message, content, connection)

    def _write(self, transport: asyncio.Transport, body: bytes) -> None:
        if len(body) < _SMALL:
            transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        else:
            transport.write(b"%b%d\r\n\r\n" % (self._head, len(body)))
            transport.write(body)


def _open(transport: asyncio.Transport | None) -> asyncio.Transport:
    if transport is None or transport.is_closing():
        raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
    return transport


def _head_of(request: Posted) -> bytes:
    """Return what goes before the body's length, or nothing where only aiohttp's own way is right."""
    url, headers = request.url, [(name, value) for name, value in request.headers.items()]
    if not _IS_KNOWN or url.raw_user or url.raw_password:
        return b""
    if any(name in request.headers for name in _OF_A_BODY):
        return b""
    lines = [f"POST {url.raw_path_qs} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers if name.lower() != "content-length"]
    if any(_UNSAFE.search(line) for line in lines):
        return b""  # aiohttp tells of it
    return "\r\n".join([*lines, "Content-Length: "]).encode()
