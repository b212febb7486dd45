"""Bodies of HTTP answers: unpacked, limited in size, and read to the end or closed in good order."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio

__all__ = [
    "ACCEPTED",
    "MOST_BYTES",
    "BodyReader",
    "IteratedBody",
    "is_packed",
    "read_error_body",
]


ACCEPTED = "gzip"
"""The value of ``accept-encoding`` in requests."""

MOST_BYTES = 64 * 2**20
"""The default limit of one reply, far above what any model writes."""

_GZIP = ("gzip", "x-gzip")

_NOT_PACKED = ("", "identity")

_STEP = 2**18  # bytes that are unpacked at once

_MOST_ERROR_BYTES = 64 * 2**10

_ERROR_SECONDS = 5.0

_DRAIN_SECONDS = 0.5


class _Answer(Protocol):
    """An answer of httpx or httpx2, or of anything like them.

    The body comes as it was sent from an answer that has the methods of `_Body`, or ``aiter_raw``. An answer
    without these has an unpacked body.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names are found in any case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...


class _Body(Protocol):
    """The body of an answer, as it arrives."""

    def read_piece(self) -> Awaitable[bytes]:
        """Wait for the next bytes; none at the end."""
        ...

    async def unwind(self) -> None:
        """Unwind the generators of a body that is not read to its end."""
        ...


class BodyReader:
    """Reads the body of one answer, unpacked if it is compressed. Close it when leaving early.

    Args:
        answer: its body has not been read.
        limit: the largest number of bytes; None for no limit.
        too_long: returns the error for a body above the limit.
        refuse: returns the error for a body that cannot be unpacked, from the reason.
    """

    def __init__(
        self,
        answer: _Answer,
        limit: int | None = None,
        *,
        too_long: Callable[[], Exception] = ValueError,
        refuse: Callable[[str], Exception] = ValueError,
    ) -> None:
        self.is_over: bool = False
        """Whether the body was read to its end."""
        self._body: _Body = _body_of(answer, refuse)
        self._limit = limit
        self._too_long = too_long
        self._count = 0

    async def read(self) -> bytes:
        """Wait for the next bytes; none at the end."""
        piece = await self._body.read_piece()
        self._count += len(piece)
        if self._limit is not None and self._count > self._limit:
            raise self._too_long()
        if not piece:
            self.is_over = True
        return piece

    async def read_all(self) -> bytes:
        """Return the whole body."""
        pieces: list[bytes] = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what follows ``[DONE]`` for half a second, so that the connection can be used again.

        The reply is complete by then, so errors of the connection are ignored.
        """
        if not self.is_over:
            with suppress(Exception), anyio.move_on_after(_DRAIN_SECONDS):
                while await self.read():
                    pass

    async def aclose(self) -> None:
        """Stop reading, unwind the generators of the body, and drop the reference to it."""
        body, self._body = self._body, _EmptyBody()
        await body.unwind()


def is_packed(headers: Mapping[str, str]) -> bool:
    """Return whether a body is compressed."""
    return _encoding(headers) not in _NOT_PACKED


async def read_error_body(answer: _Answer) -> bytes:
    """Return the first 64 KiB of an error's body, as far as they come within 5 seconds.

    The body may be endless, never come, or break off.
    """
    body = bytearray()
    with anyio.move_on_after(_ERROR_SECONDS), suppress(Exception):
        async with aclosing(BodyReader(answer)) as reader:  # unwinds what was not read
            while len(body) <= _MOST_ERROR_BYTES and (piece := await reader.read()):
                body += piece
    return bytes(body[:_MOST_ERROR_BYTES])


def _encoding(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "").strip().lower()


def _body_of(answer: _Answer, refuse: Callable[[str], Exception]) -> _Body:
    known: Any = answer
    if is_packed(answer.headers):
        encoding = _encoding(answer.headers)
        if encoding not in _GZIP:
            return _RefusedBody(refuse(f"it is compressed with {encoding!r:.50}, not as {ACCEPTED!r}"))
        if hasattr(answer, "read_piece"):
            return _GzipBody(known, refuse)
        if hasattr(answer, "aiter_raw"):
            return _GzipBody(IteratedBody(known.aiter_raw()), refuse)
    return known if hasattr(answer, "read_piece") else IteratedBody(answer.aiter_bytes())


class IteratedBody:
    """A body that is an iterator, as those of httpx are.

    Args:
        pieces: yields the body as it arrives.
    """

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    async def read_piece(self) -> bytes:
        """Wait for the next bytes; none at the end."""
        async for piece in self._pieces:
            if piece:
                return piece
        return b""

    async def unwind(self) -> None:
        """Unwind the generators within httpx from the inside, as a cancelled read does.

        Closing the response alone leaves them to the garbage collector, which trio reports as an error.
        """
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in self._pieces:
                pass


class _EmptyBody:
    """The body of a reader that is closed."""

    async def read_piece(self) -> bytes:
        return b""

    async def unwind(self) -> None:
        """Do nothing: there is nothing to read."""


class _RefusedBody:
    """A body that raises instead of being read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def read_piece(self) -> bytes:
        raise self._error

    async def unwind(self) -> None:
        """Do nothing: no part of the body was read."""


class _GzipBody:
    """The bytes of a packed body."""

    def __init__(self, packed: _Body, refuse: Callable[[str], Exception]) -> None:
        self._packed = packed
        self._refuse = refuse
        self._member = zlib.decompressobj(31)
        self._rest = b""

    async def read_piece(self) -> bytes:
        while True:
            while self._rest:
                if data := self._step():
                    return data
            self._rest = await self._packed.read_piece()
            if not self._rest:
                return b""

    async def unwind(self) -> None:
        await self._packed.unwind()

    def _step(self) -> bytes:
        if self._member.eof:  # one member may follow another (RFC 1952, section 2.2)
            self._member = zlib.decompressobj(31)
        try:
            data = self._member.decompress(self._rest, _STEP)
        except zlib.error as error:
            raise self._refuse(f"it is not the {ACCEPTED} that it claims to be ({error})") from error
        self._rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return data
