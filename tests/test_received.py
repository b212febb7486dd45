"""Chunks are read from bytes as they come, and the end of a reply is known for what it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest

from interlock_providers.chunks import Chunks, parsed

pytestmark = pytest.mark.anyio


async def pieces(*received: bytes) -> AsyncGenerator[bytes]:
    for piece in received:
        yield piece


def reading(*received: bytes) -> aclosing[Chunks]:
    return aclosing(Chunks(pieces(*received)))


async def test_several_chunks_come_at_once() -> None:
    async with reading(b'data: {"a": 1}\n\ndata: {"a": 2}\n\n') as chunks:
        assert await chunks.more() == [{"a": 1}, {"a": 2}]
        assert not chunks.ended


async def test_one_chunk_comes_in_pieces() -> None:
    async with reading(b"data: {", b'"a": 1', b"}\n", b"\n") as chunks:
        assert await chunks.more() == [{"a": 1}]


async def test_the_mark_at_the_end() -> None:
    late = b'data: {"a": 1}\n\ndata: [DONE]\n\ndata: {"late": 1}\n\n'
    async with reading(late, b"more") as chunks:
        assert await chunks.more() == [{"a": 1}]
        assert (chunks.ended, chunks.marked) == (True, True)
        await chunks.drain()


async def test_an_end_without_the_mark() -> None:
    async with reading(b'data: {"a": 1}\n\n') as chunks:
        await chunks.more()
        assert await chunks.more() == []
        assert (chunks.ended, chunks.marked) == (True, False)
        assert await chunks.more() == []


@pytest.mark.parametrize("last", [b'data: {"a": 1}', b'data: {"a": 1}\n'])
async def test_a_last_event_without_its_empty_line(last: bytes) -> None:
    async with reading(last) as chunks:
        assert await chunks.more() == [{"a": 1}]


async def test_a_last_event_that_was_cut_is_none() -> None:
    async with reading(b'data: {"a": ') as chunks:
        assert await chunks.more() == []
        assert chunks.ended


async def test_junk_is_an_error() -> None:
    async with reading(b"data: {junk}\n\n") as chunks:
        with pytest.raises(ValueError, match="Expecting"):
            await chunks.more()


async def test_json_that_is_no_object_is_no_chunk() -> None:
    async with reading(b'data: 1\n\ndata: {"a": 1}\n\n') as chunks:
        assert await chunks.more() == [{"a": 1}]


async def test_draining_does_not_wait_for_ever() -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b"data: [DONE]\n\n"
        await anyio.sleep_forever()

    received = endless()
    async with aclosing(received):
        chunks = Chunks(received)
        await chunks.more()
        with anyio.fail_after(5):
            await chunks.drain()


async def test_closing_unwinds_a_reading_that_waits() -> None:
    unwound: list[str] = []

    async def waiting() -> AsyncGenerator[bytes]:
        try:
            yield b'data: {"a": 1}\n\n'
            await anyio.sleep_forever()
        finally:
            unwound.append("yes")

    async with aclosing(Chunks(waiting())) as chunks:
        await chunks.more()
    assert unwound == ["yes"]


def test_text_that_is_no_json() -> None:
    assert parsed("<html>") is None
    assert parsed("[1]") == [1]
