"""A small answer, read at once.

aiohttp reads an answer as it comes in: a queue for the heads, a stream for the body, and a wait for each.
Most answers that are not streamed are small, say how long they are, and are of no use before all of them is
there. So all of one is waited for: aiohttp's parser reads the head, and the rest is the body.

Whatever else comes, aiohttp is given from its first byte: an answer that is long, streamed or in chunks, one
that refuses or ends the connection, and one that is not as it should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpResponseParser, RawResponseMessage

from interlock_providers.pools import LONGEST_HEADER
from interlock_providers.received import Arrived

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler

__all__ = ["FirstLook", "Head", "Heads", "Whole", "make_ready"]

_GOOD = b"HTTP/1.1 200 "
_END = b"\r\n\r\n"
_DIGITS = 5
"""Of the length of a body that is waited for: it has less than 100 kB."""


class Whole:
    """An answer that was read to its end; to who asked it is what `HttpResponse` is.

    Args:
        message: its head.
        body: as it came: packed, if it is.
    """

    __slots__ = ("body", "headers", "raw_headers", "status_code")

    def __init__(self, message: RawResponseMessage, body: bytes) -> None:
        self.status_code: int = message.code
        self.headers: Mapping[str, str] = message.headers
        self.raw_headers = message.raw_headers
        self.body = body

    @property
    def response(self) -> Whole:
        """The answer itself."""
        return self

    def aiter_raw(self) -> AsyncIterator[bytes]:
        """Yield the body: packed, if it is."""
        return Arrived(self.body)

    aiter_bytes = aiter_raw

    @property
    def is_closed(self) -> bool:
        """Whether the connection was given back: it was."""
        return True

    async def close(self) -> None:
        """Do nothing: the connection was given back."""


class Head(NamedTuple):
    """The head of an answer that can be read at once."""

    message: RawResponseMessage
    size: int
    """In bytes, as that of the answer."""
    whole: int
    """Size of the answer."""


class Heads:
    """Reads the heads of answers, one after another, with a parser of aiohttp's.

    Args:
        loop: of the connections.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._parser: HttpResponseParser | None = None

    def of(self, data: bytes) -> Head | None:
        """Return the head that these bytes begin with; None unless the answer can be read at once."""
        size = data.find(_END) + 4
        if size < 4 or not data.startswith(_GOOD):
            return None
        message = self._read(data[:size])
        if message is None:
            self._parser = None
            return None
        headers = message.headers
        length = headers.get("content-length", "")
        if len(length) > _DIGITS or not length.isdecimal():
            return None
        if "event-stream" in headers.get("content-type", ""):
            return None
        return Head(message, size, size + int(length))

    def _read(self, head: bytes) -> RawResponseMessage | None:
        """Return what a head says; None when nothing should be read after it by this parser."""
        parser = self._parser = self._parser or self._made()
        try:
            messages, _, _ = parser.feed_data(head)
        except Exception:  # aiohttp is given it again, and tells what is wrong
            return None
        (message, _), *more = messages
        return None if more or message.should_close else message

    def _made(self) -> HttpResponseParser:
        return HttpResponseParser(
            BaseProtocol(self._loop),
            self._loop,
            LONGEST_HEADER,
            response_with_body=False,  # what is read are heads
            auto_decompress=False,
            max_line_size=LONGEST_HEADER,
            max_field_size=LONGEST_HEADER,
        )


class FirstLook(asyncio.Protocol):
    """Stands in front of aiohttp's protocol of a connection, and takes the answers that can be read at once.

    It stays there as long as all of them can, and lets the protocol have what comes while none is expected:
    then aiohttp has asked.

    Args:
        heads: reads the heads.
        protocol: is given whatever cannot be read at once.
        transport: the connection.
    """

    __slots__ = ("_came", "_expected", "_head", "_heads", "_protocol", "_transport")

    def __init__(self, heads: Heads, protocol: ResponseHandler, transport: asyncio.Transport) -> None:
        self._heads = heads
        self._protocol = protocol
        self._transport = transport
        self._expected: asyncio.Future[Whole | None] | None = None
        self._came = b""
        self._head: Head | None = None
        transport.set_protocol(self)

    def answer(self) -> asyncio.Future[Whole | None]:
        """Expect an answer, and return where it will be; None there when the protocol has it."""
        self._expected = asyncio.get_running_loop().create_future()
        return self._expected

    def data_received(self, data: bytes) -> None:
        """Take what comes, until it is a whole answer, or cannot become one."""
        expected = self._expected
        if expected is None:
            self._protocol.data_received(data)
            return
        came = self._came + data
        head = self._head or self._heads.of(came)
        if head is not None and len(came) == head.whole and not expected.done():
            expected.set_result(Whole(head.message, came[head.size :]))
            self._expected, self._came, self._head = None, b"", None
            return
        self._came, self._head = came, head
        if head is None or len(came) >= head.whole:
            self._step_aside()

    def eof_received(self) -> None:
        """Let the protocol know; the connection is lost now."""
        self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let the protocol know."""
        self._step_aside()
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        """Let the protocol know."""
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Let the protocol know."""
        self._protocol.resume_writing()

    def _step_aside(self) -> None:
        self._transport.set_protocol(self._protocol)
        if self._expected is None:
            return
        make_ready(self._protocol)
        if self._came:
            self._protocol.data_received(self._came)
        if not self._expected.done():
            self._expected.set_result(None)


def make_ready(protocol: ResponseHandler, read_timeout: float | None = None) -> None:
    """Let a connection's protocol read the answer that is coming.

    Args:
        protocol: aiohttp's.
        read_timeout: seconds that each read may take; None for no limit.
    """
    protocol.set_response_params(
        read_until_eof=True,
        auto_decompress=False,
        read_timeout=read_timeout,
        max_line_size=LONGEST_HEADER,
        max_field_size=LONGEST_HEADER,
    )
