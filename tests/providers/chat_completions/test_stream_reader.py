"""A stream gives the same events however the network cuts it."""

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
    StreamReader,
    UnreadableEvent,
)

HEL = chunk({"content": "Hel"})
LO = chunk({"content": "lo\u2028é"})
CALL = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]})
DONE = event(b"[DONE]")


def read(*pieces: bytes) -> tuple[list[HandlerEvent], StreamReader]:
    """Feed the pieces, and then the end."""
    reader = StreamReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.end(), reader


def test_text_and_calls() -> None:
    told, reader = read(HEL + LO + CALL, DONE)
    assert told == [TextDelta("Hel"), TextDelta("lo\u2028é"), ToolCallDelta(0, "a", "f", "{}")]
    assert reader.saw_done
    assert reader.done().message.get("content") == "Hello\u2028é"


def test_event_comes_as_soon_as_it_is_whole() -> None:
    reader = StreamReader()
    assert reader.feed(HEL[:-1]) == []
    assert reader.feed(HEL[-1:] + LO[:20]) == [TextDelta("Hel")]
    assert reader.feed(LO[20:]) == [TextDelta("lo\u2028é")]


def test_events_after_done_are_ignored() -> None:
    told, reader = read(HEL + DONE + LO)
    assert told == [TextDelta("Hel")]
    assert reader.ended


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
def test_forms_that_the_protocol_allows(stream: bytes) -> None:
    events, _ = read(stream)
    assert events == [TextDelta("Hel"), TextDelta("lo\u2028é")]
    assert read(*[bytes([byte]) for byte in stream])[0] == events


@pytest.mark.parametrize(
    "bad",
    [event(b'{"choices": ['), event(b"\xff"), event({"choices": 5}), event({"choices": [{"delta": 5}]})],
)
def test_unreadable_event_is_raised_after_the_readable_ones(bad: bytes) -> None:
    reader = StreamReader()
    assert reader.feed(HEL + bad + LO) == [TextDelta("Hel")]
    with pytest.raises(UnreadableEvent):
        reader.feed(LO)
    with pytest.raises(UnreadableEvent):
        reader.done()


@pytest.mark.parametrize(
    "bad", [{"error": {"message": "no"}}, {"choices": [{"delta": {}, "finish_reason": "error"}]}]
)
def test_error_in_a_stream(bad: Any) -> None:
    with pytest.raises(FailedReply) as caught:
        StreamReader().feed(event(bad))
    assert "message" in str(caught.value.error)


def test_long_event_in_many_pieces() -> None:
    """It arrives byte by byte and gives no event before its end."""
    stream = chunk({"content": "x" * 10_000})
    reader = StreamReader()
    for byte in stream[:-1]:
        assert reader.feed(bytes([byte])) == []
    assert reader.feed(b"\n") == [TextDelta("x" * 10_000)]


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
def test_events_equal_those_of_the_decoder_and_the_assembler(
    said: list[Any], ascii_only: bool, line_end: bytes, between: bytes, cuts: list[int]
) -> None:
    chunks = [{"choices": [{"delta": delta}]} for delta in said] + [{"choices": [], "usage": USAGE}]
    events = [event(json.dumps(each, ensure_ascii=ascii_only).encode("utf-8", "replace")) for each in chunks]
    stream = between.join(events).replace(b"\n", line_end)
    decoder, assembler = EventDecoder(), Assembler()
    expected = [
        told
        for data in (*decoder.feed(stream), *decoder.flush())
        for told in assembler.feed(json.loads(data))
    ]
    marks = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    told, reader = read(*[stream[a:b] for a, b in pairwise(marks)])
    assert told == expected
    assert reader.done() == assembler.done()
