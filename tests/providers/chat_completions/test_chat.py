"""Reading one chat completion: forms of a stream, and anything else that a server may send."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from answers import Answers
from hypothesis import given
from hypothesis import strategies as st
from remote_agents import ask, request
from servers import HELLO_STREAM, SSE, Reply, chunk, event

from routelock.errors import IncompleteResponse, ProviderError, UnreadableResponse
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta
from routelock.handlers.port import Request
from routelock.usage import Usage
from routelock_providers.chat_completions.chat import Chat
from routelock_providers.vendors import VendorRules

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("answers_of_respx")]


# Forms of a stream

PLAIN = b"".join(HELLO_STREAM.pieces)
SPLIT = PLAIN.replace(b'"choices": [', b'\ndata: "choices": [\ndata: ')  # one event over several lines


@pytest.mark.pairwise
@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(PLAIN.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(PLAIN.replace(b"\n", b"\r"), id="CR"),
        pytest.param(PLAIN.replace(b"data: ", b"data:"), id="no space"),
        pytest.param(PLAIN.replace(b"data:", b": ping\n\ndata:"), id="comments"),
        pytest.param(PLAIN.replace(b"data:", b"event: message\nid: 1\nretry: 5\ndata:"), id="other fields"),
        pytest.param(SPLIT, id="data over several lines"),
        pytest.param(PLAIN.replace(b"data: [DONE]\n\n", b""), id="no [DONE]"),
        pytest.param(PLAIN.rstrip(), id="no blank line at the end"),
    ],
)
async def test_forms_of_a_stream(body: bytes, size: int) -> None:
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    with Answers(Reply(pieces, content_type=SSE)) as server:
        events = await ask(server.url, request(stream=True))
    assert events[:2] == [TextDelta("Hel"), TextDelta("lo")]
    done = events[-1]
    assert isinstance(done, MessageDone)
    assert done.usage == Usage(requests=1, input_tokens=5, output_tokens=7)


# Any other answer


@dataclass
class Answer:
    """An answer in memory, in these pieces."""

    pieces: Sequence[bytes]
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": SSE})
    status_code: int = 200
    closed: bool = False

    @property
    def response(self) -> Answer:
        return self

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await anyio.lowlevel.checkpoint()
            yield piece

    async def close(self) -> None:
        self.closed = True


def read(answer: Answer, **options: Any) -> list[HandlerEvent]:
    """What a chat makes of this answer."""

    async def post(body: Mapping[str, Any]) -> Answer:
        return answer

    async def reading() -> list[HandlerEvent]:
        asked = Request(messages=[{"role": "user", "content": "Hi"}], stream=True)
        return [each async for each in chat.stream(asked, post)]

    limits: dict[str, Any] = {"timeout": None, "chunk_timeout": None, **options}
    chat = Chat(provider="p", model="m", rules=VendorRules(), **limits)
    try:
        return anyio.run(reading)
    finally:
        assert answer.closed


def cut_into(body: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(body)]
    return [body[start:end] for start, end in pairwise(edges) if end > start]


@given(st.integers(0, len(PLAIN)), st.lists(st.integers(0, len(PLAIN)), max_size=6))
def test_a_stream_cut_anywhere_is_whole_or_an_error(cut: int, places: list[int]) -> None:
    """However the network splits it: no success before the finish reason was there."""
    last = PLAIN.index(b'"stop"}]}') + len(b'"stop"}]}')
    answer = Answer(cut_into(PLAIN[:cut], [place for place in places if place < cut]))
    if cut < last:
        with pytest.raises(IncompleteResponse):
            read(answer, needs_finish=True)
    else:
        done = read(answer, needs_finish=True)[-1]
        assert isinstance(done, MessageDone)
        assert done.message.get("content") == "Hello"


NAMES = st.sampled_from(
    "choices delta message content tool_calls function name arguments index id finish_reason usage error "
    "prompt_tokens thinking_blocks reasoning_details type text x".split()
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.sampled_from(["stop", "error"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
DELTAS = st.dictionaries(NAMES, JSON, max_size=4).map(
    lambda delta: {"choices": [{"delta": delta, "message": delta, "finish_reason": "stop"}]}
)


@given(st.lists(JSON | DELTAS, max_size=4), st.booleans())
def test_json_of_any_shape_is_a_reply_or_a_typed_error(chunks: list[Any], streamed: bool) -> None:
    """Data of an unknown server must not crash a handler."""
    if streamed:
        answer = Answer([event(each) for each in chunks])
    else:
        answer = Answer([json.dumps(chunks[0] if chunks else None).encode()], {})
        answer.headers = {"content-type": "application/json"}
    try:
        events = read(answer)
    except ProviderError:
        return
    assert isinstance(events[-1], MessageDone)


@given(st.binary(max_size=60), st.sampled_from([SSE, "application/json", "text/html", ""]))
def test_bytes_of_any_kind_are_a_reply_or_a_typed_error(body: bytes, kind: str) -> None:
    try:
        events = read(Answer([body], {"content-type": kind}))
    except ProviderError:
        return
    assert isinstance(events[-1], MessageDone)


def test_line_in_many_pieces_takes_linear_time() -> None:
    """Searching the whole line again with each piece took minutes for ten megabytes."""
    words = "x" * 2_000_000
    body = chunk({"content": words}, finish="stop")
    events = read(Answer([body[start : start + 500] for start in range(0, len(body), 500)]))
    assert events[0] == TextDelta(words)


# Whole replies

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}


def whole(message: dict[str, Any], finish: str) -> Answer:
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    body = {"id": "r", "model": "m", "choices": [choice], "usage": usage}
    return Answer([json.dumps(body).encode()], {"content-type": "application/json"})


@pytest.mark.parametrize(
    ("message", "finish", "expected"),
    [
        ({"content": "Hi", "refusal": None, "annotations": []}, "stop", {"content": "Hi"}),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls", {"content": None, "tool_calls": [CALL]}),
        (
            {"content": "I look.", "tool_calls": [CALL, {**CALL, "id": "b"}]},
            "tool_calls",
            {"content": "I look.", "tool_calls": [CALL, {**CALL, "id": "b"}]},
        ),
        ({"content": ""}, "length", {"content": ""}),
        ({"content": None}, "stop", {"content": ""}),
    ],
)
def test_whole_reply(message: dict[str, Any], finish: str, expected: dict[str, Any]) -> None:
    (done,) = read(whole({"role": "assistant", **message}, finish))
    assert done == MessageDone(
        message={"role": "assistant", **expected},  # type: ignore[typeddict-item]
        usage=Usage(requests=1, input_tokens=5, output_tokens=7),
        finish_reason=finish,
        model="m",
        response_id="r",
    )


@pytest.mark.parametrize("body", [b"[]", b"5", b"", b"{}", b"<html>"])
def test_body_that_is_not_a_completion(body: bytes) -> None:
    with pytest.raises(UnreadableResponse, match="Asked for model 'm'"):
        read(Answer([body], {"content-type": "application/json"}))


def test_stream_of_pieces_that_do_not_fit_together() -> None:
    delta = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": {"n": 1}, "arguments": "{}"}}]}
    with pytest.raises(UnreadableResponse):
        read(Answer([event({"choices": [{"index": 0, "delta": delta, "finish_reason": "stop"}]})]))


def test_stream_of_json_that_is_not_an_object() -> None:
    with pytest.raises(UnreadableResponse, match="'5'"):
        read(Answer([b"data: 5\n\ndata: [DONE]\n\n"]))
