"""Bodies are limited in size, and their generators are unwound however the reading ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import pytest

from routelock_providers.http.body import BodyReader

pytestmark = pytest.mark.anyio


@dataclass
class Answer:
    """An answer like those of httpx."""

    body: AsyncIterator[bytes]
    headers: Mapping[str, str]

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        return self.body


def answer(body: AsyncIterator[bytes]) -> Answer:
    return Answer(body, {})


async def pieces(*received: bytes) -> AsyncGenerator[bytes]:
    for piece in received:
        yield piece


async def test_empty_piece_is_not_the_end() -> None:
    body = BodyReader(answer(pieces(b"a", b"", b"b")))
    assert [await body.read(), await body.read()] == [b"a", b"b"], "nothing is not the end"
    assert not body.is_over
    assert await body.read() == b""
    assert body.is_over


async def test_whole_body_within_its_limit() -> None:
    body = BodyReader(answer(pieces(b"a", b"b")), limit=2)
    assert await body.read_all() == b"ab"
    assert body.is_over


async def test_body_above_its_limit_is_an_error() -> None:
    body = BodyReader(answer(pieces(b"a", b"bc")), limit=2, too_long=lambda: RuntimeError("too much"))
    with pytest.raises(RuntimeError, match="too much"):
        await body.read_all()
    await body.aclose()


async def test_draining_has_a_time_limit() -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b"data: [DONE]\n\n"
        await anyio.sleep_forever()

    received = endless()
    async with aclosing(received):
        body = BodyReader(answer(received))
        await body.read()
        with anyio.fail_after(60):
            await body.drain()


async def test_closing_unwinds_a_waiting_read() -> None:
    unwound: list[str] = []

    async def waiting() -> AsyncGenerator[bytes]:
        try:
            yield b"a"
            await anyio.sleep_forever()
        finally:
            unwound.append("yes")

    async with aclosing(BodyReader(answer(waiting()))) as body:
        await body.read()
    assert unwound == ["yes"]
