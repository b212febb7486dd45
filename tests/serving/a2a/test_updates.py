"""Pieces of text are sent in batches."""

from __future__ import annotations

import anyio
import pytest

from routelock.serving.a2a.updates import TextBatches


@pytest.mark.anyio
async def test_pieces_are_sent_at_once_and_completely() -> None:
    sent: list[str] = []
    first = anyio.Event()

    async def send(text: str) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(text)
        first.set()

    pieces = TextBatches(send)

    async def work() -> None:
        pieces.add("one ")
        await first.wait()
        for word in ("two ", "", "three ", "four"):
            pieces.add(word)
            await anyio.lowlevel.checkpoint()

    await pieces.send_during(work)
    assert (sent[0], "".join(sent)) == ("one ", "one two three four")


@pytest.mark.anyio
async def test_pieces_before_an_error_are_sent() -> None:
    sent: list[str] = []

    async def send(text: str) -> None:
        sent.append(text)

    pieces = TextBatches(send)

    async def work() -> None:
        pieces.add("Half an ")
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await pieces.send_during(work)
    assert sent == ["Half an "]
