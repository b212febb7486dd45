"""The body of an answer is read in bounds, and left in good order however the reading ends."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.http.body import JSON, Arrived, Received, parsed

pytestmark = pytest.mark.anyio


async def pieces(*received: bytes) -> AsyncGenerator[bytes]:
    for piece in received:
        yield piece


async def test_it_comes_in_pieces() -> None:
    body = Received(pieces(b"a", b"", b"b"))
    assert [await body.more(), await body.more()] == [b"a", b"b"], "nothing is not the end"
    assert not body.over
    assert await body.more() == b""
    assert body.over


async def test_it_comes_as_a_whole() -> None:
    body = Received(pieces(b"a", b"b"), limit=2)
    assert await body.all() == b"ab"
    assert body.over


async def test_too_much_is_an_error() -> None:
    body = Received(pieces(b"a", b"bc"), limit=2, too_much=lambda: RuntimeError("too much"))
    with pytest.raises(RuntimeError, match="too much"):
        await body.all()
    await body.aclose()


@pytest.mark.parametrize("limit", [3, None])
async def test_what_came_with_its_head_is_there_at_once(limit: int | None) -> None:
    body = Received(Arrived(b"abc"), limit=limit)
    assert await body.all() == b"abc"
    assert body.over


async def test_too_much_of_that_is_an_error_too() -> None:
    body = Received(Arrived(b"abc"), limit=2, too_much=lambda: RuntimeError("too much"))
    with pytest.raises(RuntimeError, match="too much"):
        await body.all()
    await body.aclose()


async def test_draining_does_not_wait_for_ever() -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b"data: [DONE]\n\n"
        await anyio.sleep_forever()

    received = endless()
    async with aclosing(received):
        body = Received(received)
        await body.more()
        with anyio.fail_after(60):
            await body.drain()


async def test_closing_unwinds_a_reading_that_waits() -> None:
    unwound: list[str] = []

    async def waiting() -> AsyncGenerator[bytes]:
        try:
            yield b"a"
            await anyio.sleep_forever()
        finally:
            unwound.append("yes")

    async with aclosing(Received(waiting())) as body:
        await body.more()
    assert unwound == ["yes"]


def test_text_that_is_no_json() -> None:
    assert parsed("<html>") is None
    assert parsed(b"\xff") is None
    assert parsed("[1]") == [1]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud83d"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.builds(json.dumps, VALUES, indent=st.none() | st.just(1), ensure_ascii=st.just(True))


def slowly(text: str) -> object:
    try:
        return JSON.decode(text)
    except (ValueError, RecursionError):
        return None


@given(
    text=TEXTS, place=st.integers(0, 40), put=st.sampled_from(["", "{", "1e999", "-", "\x00", " ", "é", "\\"])
)
def test_json_is_read_as_the_standard_library_reads_it(text: str, place: int, put: str) -> None:
    for each in (text, text[:place] + put + text[place:], text[place:]):
        assert repr(parsed(each)) == repr(slowly(each))
        assert repr(parsed(each.encode())) == repr(slowly(each))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 300 + "]" * 300,
        "[" * 100_000,
        '{"a": 1, "a": 2}',
        "1" * 4000,
        "NaN",
        "[Infinity, -Infinity]",
        "",
    ],
)
def test_what_is_odd_is_read_likewise(text: str) -> None:
    assert parsed(text) == slowly(text)
