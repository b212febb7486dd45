"""The response filter records facts, fixes what litellm cannot read, and changes nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from routelock_providers.litellm.response_filter import ResponseFilter
from routelock_providers.vendor_items import collector_for

SSE = {"content-type": "text/event-stream"}
ASKED = b'{"stream": true}'


def streaming(provider: str = "mistral", headers: Mapping[str, str] = SSE) -> ResponseFilter:
    response_filter = ResponseFilter(provider, streams=True)
    response_filter.begin("/v1/chat/completions", ASKED, 200, headers)
    return response_filter


def passed(response_filter: ResponseFilter, *pieces: bytes) -> bytes:
    return b"".join([response_filter.feed(piece) for piece in pieces]) + response_filter.end()


def line(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


ENDS = {
    "chat": [chunk(content="a"), chunk("stop")],
    "anthropic": [{"type": "message_start", "message": {}}, {"type": "message_stop"}],
    "anthropic, by its reason": [
        {"type": "message_start", "message": {}},
        {"delta": {"stop_reason": "end_turn"}},
    ],
    "gemini, blocked": [{"candidates": [{"content": {}}]}, {"promptFeedback": {"blockReason": "SAFETY"}}],
    "responses, failed": [{"type": "response.created"}, {"type": "response.failed", "response": {}}],
    "gemini": [{"candidates": [{"content": {}}]}, {"candidates": [{"finishReason": "STOP"}]}],
    "responses": [{"type": "response.created"}, {"type": "response.completed", "response": {}}],
    "ollama": [{"message": {"content": "a"}, "done": False}, {"done": True}],
    "cohere": [{"type": "content-delta"}, {"type": "message-end"}],
}


@pytest.mark.parametrize("dialect", ENDS)
def test_the_end_of_a_reply_is_known_in_every_dialect(dialect: str) -> None:
    first, last = ENDS[dialect]
    response_filter = streaming()
    passed(response_filter, line(first))
    assert response_filter.was_cut
    passed(response_filter, line(last))
    assert not response_filter.was_cut


def test_half_a_surrogate_pair_is_readable() -> None:
    """litellm reads it."""
    response_filter = streaming()
    said = b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud800"}}]}\n\n'
    assert passed(response_filter, said) == said
    assert response_filter.unreadable is None


def test_the_end_of_bedrocks_binary_stream_is_known_across_a_cut() -> None:
    response_filter = streaming("bedrock", {"content-type": "application/vnd.amazon.eventstream"})
    begun = (
        b"\x0b:event-type\x07\x00\x0cmessageStart{}"
        + b'{"text": "messageStop"}\x0b:event-type\x07\x00\x0bmess'
    )
    assert response_filter.feed(begun) == begun
    assert response_filter.was_cut
    assert passed(response_filter, b"ageStop\x00") == b"ageStop\x00"
    assert not response_filter.was_cut


def test_a_picture_in_a_binary_stream_is_not_kept() -> None:
    response_filter = streaming("bedrock", {"content-type": "application/vnd.amazon.eventstream"})
    response_filter.feed(b'{"source": {"bytes": "')
    for _ in range(50):
        response_filter.feed(b"A" * 2**16)
    assert len(response_filter._rest) < 2**20


def test_a_finish_reason_within_an_argument_is_text() -> None:
    response_filter = streaming()
    said = chunk(tool_calls=[{"function": {"arguments": '{"finish_reason": "stop"}'}}])
    passed(response_filter, line(said))
    assert response_filter.was_cut


MARKS = {"done": True, "finish_reason": "stop", "finishReason": "STOP", "stop_reason": "end_turn"} | {
    "type": "message_stop",
    "promptFeedback": {"blockReason": "SAFETY"},
    "usage": {"a": 1},
    "usageMetadata": {"a": 1},
    "eval_count": 3,
}


@pytest.mark.parametrize("mark", MARKS)
def test_argument_named_like_a_mark_is_ignored(mark: str) -> None:
    """Gemini and Ollama send the arguments of a call as an object."""
    arguments = {mark: MARKS[mark], "more": [MARKS]}
    gemini = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": arguments}}]}}]}
    called = [{"function": {"name": "f", "arguments": arguments}}]
    for sent in (line(gemini), line({"message": {"tool_calls": called}, "done": False})[6:-1]):
        response_filter = streaming("gemini")
        passed(response_filter, sent)
        assert response_filter.was_cut
        assert not response_filter.is_complete
        assert not response_filter.usage_seen


@pytest.mark.parametrize("place", ["message", "response", "delta", "x_groq"])
def test_nested_usage_is_seen(place: str) -> None:
    response_filter = streaming()
    passed(response_filter, line({place: {"usage": {"a": 1}}}))
    assert response_filter.usage_seen


@pytest.mark.parametrize("dialect", ENDS)
def test_half_an_event_at_the_end_is_dropped(dialect: str) -> None:
    first, last = (line(each) for each in ENDS[dialect])
    for cut in range(7, len(last) - 2):
        response_filter = streaming()
        assert passed(response_filter, first + last[:cut]) == first
        assert response_filter.was_cut
    response_filter = streaming()
    assert passed(response_filter, first + last.rstrip()) == first + last
    assert not response_filter.was_cut, "all of it is there but the empty line"


def test_an_event_in_several_lines_becomes_one() -> None:
    said = b'data: {"choices": [{"index": 0,\ndata: "finish_reason": "stop"}]}'
    for sent in (said, said + b"\n", said + b"\n\n"):
        response_filter = streaming()
        assert (
            passed(response_filter, sent) == b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n'
        )
        assert response_filter.is_complete


@pytest.mark.parametrize("name", [b"event: message_stop\n", b"event: message_stop\r\n"])
def test_the_name_of_an_event_stays_with_it_unless_it_is_a_chunk(name: bytes) -> None:
    named = name + line({"type": "message_stop"})
    assert passed(streaming(), named) == named
    assert passed(streaming(), name, line(chunk("stop"))) == line(chunk("stop"))
    assert passed(streaming(), name + b"\n", line(chunk("stop"))).strip() == line(chunk("stop")).strip()


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data:[DONE]"])
def test_the_end_may_be_written_with_a_space_or_without(end: bytes) -> None:
    response_filter = streaming()
    assert passed(response_filter, line(chunk("stop")), end) == line(chunk("stop")) + b"data: [DONE]\n\n"
    assert not response_filter.was_cut
    assert not response_filter.is_broken


def test_done_without_an_event_is_not_a_reply() -> None:
    response_filter = streaming()
    assert passed(response_filter, b"data: [DONE]\n\n") == b"data: [DONE]\n\n"
    assert response_filter.ended_without_reason


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_byte_order_mark_is_removed(size: int) -> None:
    sent = b"\xef\xbb\xbf" + line(chunk("stop"))
    response_filter = streaming()
    assert passed(response_filter, *(sent[at : at + size] for at in range(0, len(sent), size))) == sent[3:]
    assert response_filter.is_complete
    response_filter = ResponseFilter("openai", streams=False)
    response_filter.begin("/v1", b"{}", 200, {})
    assert response_filter.whole(b'\xef\xbb\xbf{"usage": {}}') == b'{"usage": {}}'


@pytest.mark.parametrize("call", [{"id": 7}, {"function": {"name": 5}}, {"function": "f"}, "f"])
def test_call_that_litellm_would_drop_breaks_the_stream(call: Any) -> None:
    before = line(chunk(content="a"))
    for end in (b"", b"\n", b"\n\n"):
        response_filter = streaming()
        assert passed(response_filter, before + line(chunk(tool_calls=[call])).rstrip() + end) == before
        assert response_filter.is_broken
        assert b"tool_calls" in (response_filter.unreadable or b"")


def test_an_unknown_dialect_is_not_judged() -> None:
    response_filter = streaming()
    passed(response_filter, b"data: {}\n\n")
    assert not response_filter.was_cut
    assert response_filter.has_no_reply


def test_done_without_a_finish_reason_gets_one() -> None:
    without, with_one = streaming(), streaming()
    fixed = passed(without, line(chunk(content="a")), b"data: [DONE]\n\n")
    assert b'"finish_reason":"stop"' in fixed
    assert fixed.endswith(b"data: [DONE]\n\n")
    body = line(chunk("stop")) + b"data: [DONE]\n\n"
    assert passed(with_one, body) == body


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_line_ends_of_python_are_escaped(mark: str) -> None:
    said = chunk(content=f"a{mark}b")
    fixed = passed(streaming(), line(said))
    assert len(fixed.decode().splitlines()) == 2
    assert json.loads(fixed[6:]) == said


def test_usage_of_the_vendor_is_seen() -> None:
    for event in ({"usage": {"a": 1}}, {"usageMetadata": {"a": 1}}, {"done": True, "eval_count": 3}):
        response_filter = streaming()
        passed(response_filter, line(event))
        assert response_filter.usage_seen, event
    response_filter = streaming()
    passed(response_filter, line({"usage": None}))
    assert not response_filter.usage_seen


@pytest.mark.parametrize(
    "event",
    [
        {"error": {"type": "overloaded_error"}},
        {"type": "error", "error": {"message": "x"}},
        {"type": "response.failed", "response": {"error": {"code": "server_error"}}},
        {"choices": [{"delta": {}, "finish_reason": "error", "error": {"code": 502}}]},
        {"choices": [{"delta": {}, "finish_reason": "error"}]},
    ],
)
def test_an_error_event_is_noted(event: dict[str, Any]) -> None:
    response_filter = streaming()
    passed(response_filter, line(event))
    assert response_filter.answer is not None
    assert response_filter.answer.status == 200
    assert response_filter.answer.is_error
    assert not response_filter.was_cut


def test_error_inside_an_argument_is_ignored() -> None:
    said = {"candidates": [{"content": {"parts": [{"functionCall": {"args": {"error": {"a": 1}}}}]}}]}
    response_filter = streaming("gemini")
    passed(response_filter, line(said), line({"error": None}))
    assert response_filter.answer is None


def test_an_error_status_is_noted_with_headers_and_body() -> None:
    response_filter = ResponseFilter("openai", streams=True)
    response_filter.begin("/v1", b"{}", 429, {"retry-after": "3"})
    assert response_filter.reads_whole
    assert response_filter.whole(b'{"error": "slow"}') == b'{"error": "slow"}'
    assert response_filter.answer is not None
    assert (response_filter.answer.status, response_filter.answer.headers["retry-after"]) == (429, "3")


def test_a_second_answer_of_the_same_call_replaces_the_first() -> None:
    response_filter = ResponseFilter("openai", streams=True)
    response_filter.begin("/v1", b"{}", 500, {})
    response_filter.whole(b"oops")
    response_filter.begin("/v1", b"{}", 200, {})
    response_filter.whole(b'{"choices": [], "usage": {"prompt_tokens": 1}}')
    assert response_filter.answer is None
    assert response_filter.usage_seen


@pytest.mark.parametrize(
    ("path", "asked", "streams"),
    [
        ("/v1/responses", b'{"stream": true}', True),
        ("/v1/responses", b'{"stream": false}', False),
        ("/upstream/v1/chat/completions", b'{"stream": false}', False),
        ("/v1/responses", rb'{"input": "say \"stream\": true"}', False),
        ("/v1beta/models/x:streamGenerateContent", b"{}", True),
        ("/upstream/models/x:generateContent", b'{"args": {"stream": true}}', False),
        ("/model/x/converse-stream", b"{}", True),
        ("/model/x/converse", b'{"input": {"stream": true}}', False),
    ],
)
def test_request_decides_whether_an_answer_streams(path: str, asked: bytes, streams: bool) -> None:
    for told in (False, True):
        response_filter = ResponseFilter("openai", streams=told)
        response_filter.begin(path, asked, 200, {})
        assert response_filter.streaming is (streams and told)


TEXTS = st.lists(st.text(), max_size=5)


@given(TEXTS, st.data())
def test_cut_stream_keeps_its_meaning(texts: list[str], data: st.DataObject) -> None:
    events = [chunk(content=text) for text in texts] + [chunk("stop")]
    body = b"".join(map(line, events)) + b"data: [DONE]\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    response_filter = streaming()
    fixed = passed(response_filter, *pieces)
    lines = [one for one in fixed.split(b"\n") if one]
    assert [json.loads(one[6:]) for one in lines[:-1]] == events
    assert not response_filter.was_cut


@example(b"\xc2\x85", "groq")
@example(b"\xef\xbb\xbf\xef\xbb\xbf", "groq")
@given(st.binary(), st.sampled_from(["groq", "openai", "gemini"]))
def test_junk_passes(junk: bytes, provider: str) -> None:
    response_filter = streaming(provider)
    fixed = passed(response_filter, junk)
    junk = junk.removeprefix(b"\xef\xbb\xbf")
    assume(not junk.rpartition(b"\n")[2].startswith((b"{", b"data:")))  # half an event is none
    assume(not re.search(rb"^(:|data:|event:|id:|retry:)", junk, re.MULTILINE))  # what is no junk
    for raw, escaped in (
        (b"\xe2\x80\xa8", rb"\u2028"),
        (b"\xe2\x80\xa9", rb"\u2029"),
        (b"\xc2\x85", rb"\u0085"),
    ):
        junk = junk.replace(raw, escaped)
    assert fixed.removesuffix(b"\n") == junk.removesuffix(b"\n")


@pytest.mark.parametrize("dialect", ENDS)
def test_cut_stream_is_never_complete(dialect: str) -> None:
    body = line(ENDS[dialect][0])
    for cut in range(len(body) + 1):
        response_filter = streaming()
        passed(response_filter, body[:cut])
        assert not response_filter.is_complete
        assert response_filter.was_cut or response_filter.has_no_reply


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_a_collector_cannot_read_is_broken(stream: bool) -> None:
    part = {"candidates": [{"content": {"parts": [{"text": "a"}, {"text": 1}]}}]}
    response_filter = ResponseFilter("gemini", streams=stream, collector=collector_for("gemini"))
    response_filter.begin(
        "/v1/models/m:streamGenerateContent", b"", 200, {"content-type": "text/event-stream"}
    )
    body = json.dumps(part).encode()
    if stream:
        response_filter.feed(b"data: " + body + b"\n\n")
    else:
        response_filter.whole(body)
    assert response_filter.is_broken
