"""The events of a stream do not depend on how it is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.chat_completions.stream_reader import EventDecoder


def decoded(*pieces: bytes) -> list[str]:
    decoder = EventDecoder()
    events = [event for piece in pieces for event in decoder.feed(piece)] + decoder.flush()
    return [event.decode("utf-8", "surrogateescape") for event in events]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", ["a", "b"]),
        (b"data:a\n\n", ["a"]),
        (b"data:  a\n\n", [" a"]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", ["a", "b"]),
        (b"data: a\r\rdata: b\r\r", ["a", "b"]),
        (b"data: a\ndata: b\n\n", ["a\nb"]),
        (b": ping\n\ndata: a\n\n", ["a"]),
        (b"event: x\nid: 1\nretry: 5\ndata: a\n\n", ["a"]),
        (b"\n\n\ndata: a\n\n\n\n", ["a"]),
        (b"", []),
        ('data: {"x": "\u2028\u0085"}\n\n'.encode(), ['{"x": "\u2028\u0085"}']),
        (b"data: \xff\n\n", ["\udcff"]),
        (b"data: a\n\ndata: [DONE]", ["a", "[DONE]"]),
        (b"data: a\n\ndata: [DONE]\n", ["a", "[DONE]"]),
        (b"<html>no\n\n</html>", []),
    ],
)
def test_streams(stream: bytes, events: list[str]) -> None:
    assert decoded(stream) == events
    assert decoded(*(stream[i : i + 1] for i in range(len(stream)))) == events


def test_an_event_comes_as_soon_as_it_is_whole() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\ndata: b") == [b"a"]
    assert decoder.feed(b"\n\n") == [b"b"]
    assert decoder.flush() == []


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1)),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.data(),
)
def test_any_cut_gives_the_same_events(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[i:j] for i, j in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decoded(*pieces) == [text for text in texts if text.encode().strip()]  # spaces are a sign of life
