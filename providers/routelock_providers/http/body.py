"""Bodies of HTTP answers: unpacked, limited in size, and read to the end or closed in good order."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio

__all__ = ["ACCEPTED", "MOST_BYTES", "BodyReader", "is_packed", "read_error_body", "unpacked_body"]


ACCEPTED = "gzip"
"""The value of ``accept-encoding`` in requests."""

MOST_BYTES = 64 * 2**20
"""The default limit of one reply, far above what any model writes."""

_GZIP = ("gzip", "x-gzip")

_STEP = 2**18  # bytes that are unpacked at once

_MOST_ERROR_BYTES = 64 * 2**10

_ERROR_SECONDS = 5.0

_DRAIN_SECONDS = 0.5


class BodyReader:
    """Reads the body of one answer. Close it when leaving early.

    Args:
        pieces: yields the body as it arrives.
        limit: the largest number of bytes; None for no limit.
        too_long: returns the error for a body above the limit.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        limit: int | None = None,
        too_long: Callable[[], Exception] = ValueError,
    ) -> None:
        self.is_over: bool = False
        """Whether the body was read to its end."""
        self._pieces = pieces
        self._limit = limit
        self._too_long = too_long
        self._count = 0

    async def read(self) -> bytes:
        """Wait for the next bytes; none at the end."""
        async for piece in self._pieces:
            self._count += len(piece)
            if self._limit is not None and self._count > self._limit:
                raise self._too_long()
            if piece:
                return piece
        self.is_over = True
        return b""

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
        """Stop reading and unwind the generators of the body.

        A cancelled read unwinds the generators within httpx from the inside. Closing the response alone
        leaves them to the garbage collector, which trio reports as an error.
        """
        innermost: Any = self._pieces
        while hasattr(innermost, "inner"):  # the outer ones may have ended earlier, by a limit of their own
            innermost = innermost.inner
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in innermost:
                pass


class _Answer(Protocol):
    """An answer of httpx or httpx2, or of anything like them.

    An answer without ``aiter_raw``, which yields the bytes as they came, has an unpacked body.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; their names are found in any case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...


def is_packed(headers: Mapping[str, str]) -> bool:
    """Return whether a body is compressed."""
    return _encoding(headers) not in ("", "identity")


def unpacked_body(answer: _Answer, refuse: Callable[[str], Exception]) -> AsyncIterator[bytes]:
    """Return the body of an answer, unpacked if it is compressed.

    Args:
        answer: its body has not been read.
        refuse: returns the error for a body that cannot be unpacked, from the reason.
    """
    if not is_packed(answer.headers):
        return answer.aiter_bytes()
    encoding = _encoding(answer.headers)
    if encoding not in _GZIP:
        return _RefusedBody(refuse(f"it is compressed with {encoding!r:.50}, not as {ACCEPTED!r}"))
    raw: Any = getattr(answer, "aiter_raw", None)
    return answer.aiter_bytes() if raw is None else _GzipBody(raw(), refuse)


async def read_error_body(answer: _Answer) -> bytes:
    """Return the first 64 KiB of an error's body, as far as they come within 5 seconds.

    The body may be endless, never come, or break off.
    """
    body = bytearray()
    pieces = unpacked_body(answer, ValueError)
    with anyio.move_on_after(_ERROR_SECONDS), suppress(Exception):
        async with aclosing(BodyReader(pieces)):  # unwinds what was not read
            async for piece in pieces:
                body += piece
                if len(body) > _MOST_ERROR_BYTES:
                    break
    return bytes(body[:_MOST_ERROR_BYTES])


def _encoding(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "").strip().lower()


class _RefusedBody:
    """A body that raises instead of being read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __aiter__(self) -> _RefusedBody:
        return self

    async def __anext__(self) -> bytes:
        raise self._error


class _GzipBody:
    """The bytes of a packed body. Not a generator, so that closing it always reaches the inner one."""

    def __init__(self, packed: AsyncIterator[bytes], refuse: Callable[[str], Exception]) -> None:
        self.inner = packed
        self._refuse = refuse
        self._member = zlib.decompressobj(31)
        self._rest = b""

    def __aiter__(self) -> _GzipBody:
        return self

    async def __anext__(self) -> bytes:
        while True:
            while self._rest:
                if data := self._step():
                    return data
            piece = await anext(self.inner, None)
            if piece is None:
                raise StopAsyncIteration
            self._rest = piece

    def _step(self) -> bytes:
        if self._member.eof:  # one member may follow another (RFC 1952, section 2.2)
            self._member = zlib.decompressobj(31)
        try:
            data = self._member.decompress(self._rest, _STEP)
        except zlib.error as error:
            raise self._refuse(f"it is not the {ACCEPTED} that it claims to be ({error})") from error
        self._rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return data
