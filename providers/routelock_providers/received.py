"""The bytes of an HTTP answer: counted, read to the end or not, and left in good order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
from pydantic_core import from_json

__all__ = ["JSON", "Arrived", "Received", "decoded", "parsed"]

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
