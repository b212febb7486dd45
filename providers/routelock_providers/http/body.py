"""The bytes of an HTTP answer: counted, read to the end or not, and left in good order."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

import anyio
from pydantic_core import from_json

__all__ = [
    "ACCEPTED",
    "JSON",
    "MOST_BYTES",
    "Arrived",
    "Received",
    "beginning",
    "body_of",
    "decoded",
    "is_packed",
    "parsed",
]


_DRAINING = 0.5  # seconds to wait for the end of the body after [DONE], so that the connection lives on

JSON: Final = json.JSONDecoder(parse_constant=lambda _: None)
"""Reads what a vendor writes, with null for NaN and infinity: Python's servers write them, and nobody takes
them back."""


class Arrived:
    """A body that came together with its head, as most do that are not streamed."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __aiter__(self) -> Arrived:
        return self

    async def __anext__(self) -> bytes:
        body = self.rest()
        if not body:
            raise StopAsyncIteration
        return body

    def rest(self) -> bytes:
        """Return what was not read yet, at once."""
        body, self._body = self._body, b""
        return body


class Received:
    """The body of one answer. Close it when leaving early.

    Args:
        pieces: yields the body as it arrives.
        limit: how many bytes it may have; None for no limit.
        too_much: makes the error for a body that has more.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        limit: int | None = None,
        too_much: Callable[[], Exception] = ValueError,
    ) -> None:
        self.over = False
        """Whether the body has come to its end."""
        self._pieces = pieces
        self._limit = limit
        self._too_much = too_much
        self._count = 0

    async def more(self) -> bytes:
        """Wait for the next bytes; none at the end."""
        piece = await anext(self._pieces, None)
        if piece is None:
            self.over = True
            return b""
        self._count += len(piece)
        if self._limit is not None and self._count > self._limit:
            raise self._too_much()
        return piece or await self.more()

    async def all(self) -> bytes:
        """Return the whole body."""
        if isinstance(self._pieces, Arrived):
            self.over, body = True, self._pieces.rest()
            if self._limit is not None and len(body) > self._limit:
                raise self._too_much()
            return body
        pieces: list[bytes] = []
        while piece := await self.more():
            pieces.append(piece)
        return b"".join(pieces)

    async def drain(self) -> None:
        """Read what follows ``[DONE]``, so that the connection can be used again.

        The reply is complete by then: what goes wrong with the connection now concerns nobody.
        """
        if not self.over:
            with suppress(Exception), anyio.move_on_after(_DRAINING):
                while await self.more():
                    pass

    async def aclose(self) -> None:
        """End the reading.

        A cancelled read unwinds the generators within httpx from the inside. Closing the response
        alone leaves them to the garbage collector, about which trio complains.
        """
        innermost: Any = self._pieces
        while hasattr(innermost, "inner"):  # what is around it may end first, by a limit of its own
            innermost = innermost.inner
        with suppress(Exception), anyio.CancelScope() as scope:
            scope.cancel()
            async for _ in innermost:
                pass


def decoded(text: str | bytes) -> object:
    """Return the JSON value of a text.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deep.
    """
    try:
        return from_json(text, allow_inf_nan=False)
    except (
        ValueError
    ):  # half a surrogate pair and numbers that are none are for `JSON` to read, which is slower
        return JSON.decode(text if isinstance(text, str) else text.decode())


def parsed(text: str | bytes) -> object:
    """Return the JSON value of a text, or None when it is no JSON."""
    try:
        return decoded(text)
    except (ValueError, RecursionError):
        return None


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
