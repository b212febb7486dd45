"""Bodies of answers, read in bounded pieces: they may be endless, and a few bytes may hold gigabytes.

HTTP libraries unpack whatever arrived at once, before anyone can count it: 64 kB become 64 MB, and packed
twice 64 GB. So they are asked for the bytes as they came.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio

from routelock_providers.received import Received

__all__ = ["ACCEPTED", "MOST_BYTES", "beginning", "body_of", "is_packed"]

ACCEPTED = "gzip"
"""What to send as ``accept-encoding``."""

MOST_BYTES = 64 * 2**20
"""What one reply may have at most, where nobody says otherwise: far more than any model writes."""

_GZIP = ("gzip", "x-gzip")
_STEP = 2**18  # bytes that are unpacked at once
_LONGEST_EXCUSE = 64 * 2**10  # bytes of an error's body that are read
_EXCUSING = 5.0  # seconds that an error's body may take


class _Answer(Protocol):
    """What is needed of an answer of httpx or httpx2, or of whatever is like them.

    One that has no ``aiter_raw``, for the bytes as they came, has been unpacked by whoever made it.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case find their value."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...


def is_packed(headers: Mapping[str, str]) -> bool:
    """Whether a body is compressed."""
    return _encoding(headers) not in ("", "identity")


def body_of(answer: _Answer, refused: Callable[[str], Exception]) -> AsyncIterator[bytes]:
    """Return the body of an answer, unpacked where need be.

    Args:
        answer: its body has not been read.
        refused: makes the error for a body that cannot be unpacked, of the reason.
    """
    if not is_packed(answer.headers):
        return answer.aiter_bytes()
    encoding = _encoding(answer.headers)
    if encoding not in _GZIP:
        return _Refused(refused(f"it is compressed with {encoding!r:.50}, not as {ACCEPTED!r}"))
    raw: Any = getattr(answer, "aiter_raw", None)
    return answer.aiter_bytes() if raw is None else _Unpacked(raw(), refused)


async def beginning(answer: _Answer) -> bytes:
    """Return what is needed of an error's body, and what there is of it when it breaks off.

    It may be endless, or never come.
    """
    body = bytearray()
    pieces = body_of(answer, ValueError)
    with anyio.move_on_after(_EXCUSING), suppress(Exception):
        async with aclosing(Received(pieces)):  # which unwinds what was not read
            async for piece in pieces:
                body += piece
                if len(body) > _LONGEST_EXCUSE:
                    break
    return bytes(body[:_LONGEST_EXCUSE])


def _encoding(headers: Mapping[str, str]) -> str:
    return headers.get("content-encoding", "").strip().lower()


class _Refused:
    """A body that is not read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __aiter__(self) -> _Refused:
        return self

    async def __anext__(self) -> bytes:
        raise self._error


class _Unpacked:
    """The bytes of a packed body. No generator, so that closing it always reaches the one inside."""

    def __init__(self, packed: AsyncIterator[bytes], refused: Callable[[str], Exception]) -> None:
        self.inner = packed
        self._refused = refused
        self._member = zlib.decompressobj(31)
        self._rest = b""

    def __aiter__(self) -> _Unpacked:
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
            raise self._refused(f"it is not the {ACCEPTED} that it says ({error})") from error
        self._rest = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        return data
