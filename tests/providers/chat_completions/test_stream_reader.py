"""A stream says the same however the network cuts it, and whichever way it is read."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import USAGE, chunk, event

from routelock.handlers.events import HandlerEvent, TextDelta, ToolCallDelta
from routelock.handlers.stream_assembler import Assembler
from routelock_providers.chat_completions.stream_reader import (
    EventDecoder,
    FailedReply,
    Reading,
    UnreadableEvent,
)

HEL = chunk({"content": "Hel"})
LO = chunk({"content": "lo\u2028é"})
CALL = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]})
DONE = event(b"[DONE]")


def read(*pieces: bytes) -> tuple[list[HandlerEvent], Reading]:
    """Feed the pieces, and then the end."""
    reading = Reading()
    told = [told for piece in pieces for told in reading.feed(piece)]
    return told + reading.end(), reading


def test_text_and_calls() -> None:
    told, reading = read(HEL + LO + CALL, DONE)
    assert told == [TextDelta("Hel"), TextDelta("lo\u2028é"), ToolCallDelta(0, "a", "f", "{}")]
    assert reading.marked
    assert reading.done().message.get("content") == "Hello\u2028é"


def test_it_tells_as_soon_as_an_event_is_whole() -> None:
    reading = Reading()
    assert reading.feed(HEL[:-1]) == []
    assert reading.feed(HEL[-1:] + LO[:20]) == [TextDelta("Hel")]
    assert reading.feed(LO[20:]) == [TextDelta("lo\u2028é")]


def test_nothing_after_the_end_mark_counts() -> None:
    told, reading = read(HEL + DONE + LO)
    assert told == [TextDelta("Hel")]
    assert reading.ended


@pytest.mark.parametrize(
    "stream",
    [
        HEL.replace(b"\n", b"\r\n") + LO.replace(b"\n", b"\r"),
        b": ping\n\n" + HEL + b"\n\n\n" + LO,
        b"event: chunk\nid: 1\n" + HEL + b"retry: 5\n\n" + LO,
        HEL.replace(b"data: ", b"data:") + LO,
        HEL.replace(b"data: ", b"data:   ") + LO.replace(b"\n\n", b" \n\n"),
        HEL.replace(b"{", b"{\ndata:", 1) + LO,
        HEL + LO.rstrip(),
        HEL + b"data: 5\n\n" + LO,
        HEL + LO + b'data: {"choices": [{"del',
        b"\xef\xbb\xbf" + HEL + LO,
    ],
    ids=["CR", "comments", "fields", "no space", "spaces", "two lines", "no end", "a number", "cut", "BOM"],
)
def test_what_the_protocol_allows(stream: bytes) -> None:
    told, _ = read(stream)
    assert told == [TextDelta("Hel"), TextDelta("lo\u2028é")]
    assert read(*[bytes([byte]) for byte in stream])[0] == told


@pytest.mark.parametrize(
    "bad",
    [event(b'{"choices": ['), event(b"\xff"), event({"choices": 5}), event({"choices": [{"delta": 5}]})],
)
def test_what_cannot_be_read_is_told_after_what_can(bad: bytes) -> None:
    reading = Reading()
    assert reading.feed(HEL + bad + LO) == [TextDelta("Hel")]
    with pytest.raises(UnreadableEvent):
        reading.feed(LO)
    with pytest.raises(UnreadableEvent):
        reading.done()


@pytest.mark.parametrize(
    "bad", [{"error": {"message": "no"}}, {"choices": [{"delta": {}, "finish_reason": "error"}]}]
)
def test_an_error_in_a_stream(bad: Any) -> None:
    with pytest.raises(FailedReply) as caught:
        Reading().feed(event(bad))
    assert "message" in str(caught.value.error)


def test_a_long_event_in_many_pieces_is_put_together_once() -> None:
    """One byte at a time, ten thousand times: nothing is copied until its end has come."""
    stream = chunk({"content": "x" * 10_000})
    reading = Reading()
    for byte in stream[:-1]:
        assert reading.feed(bytes([byte])) == []
    assert len(reading._held) == len(stream) - 1
    assert reading.feed(b"\n") == [TextDelta("x" * 10_000)]


deltas = st.one_of(
    st.builds(lambda text: {"content": text}, st.text()),
    st.builds(lambda text: {"content": text, "role": "assistant"}, st.text()),
    st.builds(lambda text: {"reasoning_content": text}, st.text()),
    st.builds(lambda text: {"content": [{"type": "text", "text": text}]}, st.text()),
    st.builds(
        lambda index, text: {
            "tool_calls": [{"index": index, "id": f"i{index}", "function": {"arguments": text}}]
        },
        st.integers(0, 2),
        st.text(),
    ),
)


@given(
    said=st.lists(deltas, max_size=8),
    ascii_only=st.booleans(),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    between=st.sampled_from([b"", b": ping\n\n", b"\n"]),
    cuts=st.lists(st.integers(0, 3000), max_size=8),
)
def test_it_reads_what_the_slow_way_reads(
    said: list[Any], ascii_only: bool, line_end: bytes, between: bytes, cuts: list[int]
) -> None:
    chunks = [{"choices": [{"delta": delta}]} for delta in said] + [{"choices": [], "usage": USAGE}]
    events = [event(json.dumps(each, ensure_ascii=ascii_only).encode("utf-8", "replace")) for each in chunks]
    stream = between.join(events).replace(b"\n", line_end)
    slow, assembler = EventDecoder(), Assembler()
    expected = [
        told for data in (*slow.feed(stream), *slow.flush()) for told in assembler.feed(json.loads(data))
    ]
    marks = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    told, reading = read(*[stream[a:b] for a, b in pairwise(marks)])
    assert told == expected
    assert reading.done() == assembler.done()
