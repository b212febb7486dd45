"""The tap on the wire: what it notes, what it mends, and that it changes nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from routelock_providers.litellm.response_filter import Tap

SSE = {"content-type": "text/event-stream"}
ASKED = b'{"stream": true}'


def streaming(provider: str = "mistral", headers: Mapping[str, str] = SSE) -> Tap:
    tap = Tap(provider, streams=True)
    tap.begin("/v1/chat/completions", ASKED, 200, headers)
    return tap


def passed(tap: Tap, *pieces: bytes) -> bytes:
    return b"".join([tap.feed(piece) for piece in pieces]) + tap.end()


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
    tap = streaming()
    passed(tap, line(first))
    assert tap.was_cut
    passed(tap, line(last))
    assert not tap.was_cut


def test_an_object_that_only_pythons_parser_takes_is_nothing_strange() -> None:
    """Half a surrogate pair, say: litellm reads it."""
    tap = streaming()
    said = b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud800"}}]}\n\n'
    assert passed(tap, said) == said
    assert tap.strange is None


def test_the_end_of_bedrocks_binary_stream_is_known_across_a_cut() -> None:
    tap = streaming("bedrock", {"content-type": "application/vnd.amazon.eventstream"})
    begun = (
        b"\x0b:event-type\x07\x00\x0cmessageStart{}"
        + b'{"text": "messageStop"}\x0b:event-type\x07\x00\x0bmess'
    )
    assert tap.feed(begun) == begun
    assert tap.was_cut
    assert passed(tap, b"ageStop\x00") == b"ageStop\x00"
    assert not tap.was_cut


def test_a_picture_in_a_binary_stream_is_not_kept() -> None:
    tap = streaming("bedrock", {"content-type": "application/vnd.amazon.eventstream"})
    tap.feed(b'{"source": {"bytes": "')
    for _ in range(50):
        tap.feed(b"A" * 2**16)
    assert len(tap._rest) < 2**20


def test_a_finish_reason_within_an_argument_is_text() -> None:
    tap = streaming()
    said = chunk(tool_calls=[{"function": {"arguments": '{"finish_reason": "stop"}'}}])
    passed(tap, line(said))
    assert tap.was_cut


MARKS = {"done": True, "finish_reason": "stop", "finishReason": "STOP", "stop_reason": "end_turn"} | {
    "type": "message_stop",
    "promptFeedback": {"blockReason": "SAFETY"},
    "usage": {"a": 1},
    "usageMetadata": {"a": 1},
    "eval_count": 3,
}


@pytest.mark.parametrize("mark", MARKS)
def test_an_argument_that_is_called_like_a_mark_is_none(mark: str) -> None:
    """Gemini and Ollama send the arguments of a call as an object."""
    arguments = {mark: MARKS[mark], "more": [MARKS]}
    gemini = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": arguments}}]}}]}
    called = [{"function": {"name": "f", "arguments": arguments}}]
    for sent in (line(gemini), line({"message": {"tool_calls": called}, "done": False})[6:-1]):
        tap = streaming("gemini")
        passed(tap, sent)
        assert tap.was_cut
        assert not tap.is_complete
        assert not tap.usage_seen


@pytest.mark.parametrize("place", ["message", "response", "delta", "x_groq"])
def test_usage_within_what_holds_it_is_noticed(place: str) -> None:
    tap = streaming()
    passed(tap, line({place: {"usage": {"a": 1}}}))
    assert tap.usage_seen


@pytest.mark.parametrize("dialect", ENDS)
def test_half_an_event_at_the_end_is_none(dialect: str) -> None:
    first, last = (line(each) for each in ENDS[dialect])
    for cut in range(7, len(last) - 2):
        tap = streaming()
        assert passed(tap, first + last[:cut]) == first
        assert tap.was_cut
    tap = streaming()
    assert passed(tap, first + last.rstrip()) == first + last
    assert not tap.was_cut, "all of it is there but the empty line"


def test_an_event_in_several_lines_becomes_one() -> None:
    said = b'data: {"choices": [{"index": 0,\ndata: "finish_reason": "stop"}]}'
    for sent in (said, said + b"\n", said + b"\n\n"):
        tap = streaming()
        assert passed(tap, sent) == b'data: {"choices": [{"index": 0, "finish_reason": "stop"}]}\n\n'
        assert tap.is_complete


@pytest.mark.parametrize("name", [b"event: message_stop\n", b"event: message_stop\r\n"])
def test_the_name_of_an_event_stays_with_it_unless_it_is_a_chunk(name: bytes) -> None:
    named = name + line({"type": "message_stop"})
    assert passed(streaming(), named) == named
    assert passed(streaming(), name, line(chunk("stop"))) == line(chunk("stop"))
    assert passed(streaming(), name + b"\n", line(chunk("stop"))).strip() == line(chunk("stop")).strip()


@pytest.mark.parametrize("end", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data:[DONE]"])
def test_the_end_may_be_written_with_a_space_or_without(end: bytes) -> None:
    tap = streaming()
    assert passed(tap, line(chunk("stop")), end) == line(chunk("stop")) + b"data: [DONE]\n\n"
    assert not tap.was_cut
    assert not tap.is_broken


def test_an_end_after_nothing_is_no_reply() -> None:
    tap = streaming()
    assert passed(tap, b"data: [DONE]\n\n") == b"data: [DONE]\n\n"
    assert tap.gave_no_reason


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_a_byte_order_mark_at_the_beginning_is_taken_off(size: int) -> None:
    sent = b"\xef\xbb\xbf" + line(chunk("stop"))
    tap = streaming()
    assert passed(tap, *(sent[at : at + size] for at in range(0, len(sent), size))) == sent[3:]
    assert tap.is_complete
    tap = Tap("openai", streams=False)
    tap.begin("/v1", b"{}", 200, {})
    assert tap.whole(b'\xef\xbb\xbf{"usage": {}}') == b'{"usage": {}}'


@pytest.mark.parametrize("call", [{"id": 7}, {"function": {"name": 5}}, {"function": "f"}, "f"])
def test_a_call_that_litellm_would_leave_out_breaks_the_stream(call: Any) -> None:
    before = line(chunk(content="a"))
    for end in (b"", b"\n", b"\n\n"):
        tap = streaming()
        assert passed(tap, before + line(chunk(tool_calls=[call])).rstrip() + end) == before
        assert tap.is_broken
        assert b"tool_calls" in (tap.strange or b"")


def test_an_unknown_dialect_is_not_judged() -> None:
    tap = streaming()
    passed(tap, b"data: {}\n\n")
    assert not tap.was_cut
    assert tap.said_nothing


def test_done_without_a_finish_reason_gets_one_and_only_then() -> None:
    without, with_one = streaming(), streaming()
    mended = passed(without, line(chunk(content="a")), b"data: [DONE]\n\n")
    assert b'"finish_reason":"stop"' in mended
    assert mended.endswith(b"data: [DONE]\n\n")
    body = line(chunk("stop")) + b"data: [DONE]\n\n"
    assert passed(with_one, body) == body


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_what_python_takes_for_a_line_end_is_escaped_and_means_the_same(mark: str) -> None:
    said = chunk(content=f"a{mark}b")
    mended = passed(streaming(), line(said))
    assert len(mended.decode().splitlines()) == 2
    assert json.loads(mended[6:]) == said


def test_usage_of_the_vendors_own_is_noticed() -> None:
    for event in ({"usage": {"a": 1}}, {"usageMetadata": {"a": 1}}, {"done": True, "eval_count": 3}):
        tap = streaming()
        passed(tap, line(event))
        assert tap.usage_seen, event
    tap = streaming()
    passed(tap, line({"usage": None}))
    assert not tap.usage_seen


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
    tap = streaming()
    passed(tap, line(event))
    assert tap.answer is not None
    assert tap.answer.status == 200
    assert tap.answer.is_error
    assert not tap.was_cut


def test_an_error_within_an_argument_is_none() -> None:
    said = {"candidates": [{"content": {"parts": [{"functionCall": {"args": {"error": {"a": 1}}}}]}}]}
    tap = streaming("gemini")
    passed(tap, line(said), line({"error": None}))
    assert tap.answer is None


def test_an_error_status_is_noted_with_headers_and_body() -> None:
    tap = Tap("openai", streams=True)
    tap.begin("/v1", b"{}", 429, {"retry-after": "3"})
    assert tap.reads_whole
    assert tap.whole(b'{"error": "slow"}') == b'{"error": "slow"}'
    assert tap.answer is not None
    assert (tap.answer.status, tap.answer.headers["retry-after"]) == (429, "3")


def test_a_second_answer_of_the_same_call_replaces_the_first() -> None:
    tap = Tap("openai", streams=True)
    tap.begin("/v1", b"{}", 500, {})
    tap.whole(b"oops")
    tap.begin("/v1", b"{}", 200, {})
    tap.whole(b'{"choices": [], "usage": {"prompt_tokens": 1}}')
    assert tap.answer is None
    assert tap.usage_seen


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
def test_a_stream_is_what_was_asked_for_and_not_what_the_caller_hopes(
    path: str, asked: bytes, streams: bool
) -> None:
    for told in (False, True):
        tap = Tap("openai", streams=told)
        tap.begin(path, asked, 200, {})
        assert tap.streaming is (streams and told)


TEXTS = st.lists(st.text(), max_size=5)


@given(TEXTS, st.data())
def test_however_a_stream_is_cut_it_passes_unchanged_in_meaning(
    texts: list[str], data: st.DataObject
) -> None:
    events = [chunk(content=text) for text in texts] + [chunk("stop")]
    body = b"".join(map(line, events)) + b"data: [DONE]\n\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    tap = streaming()
    mended = passed(tap, *pieces)
    lines = [one for one in mended.split(b"\n") if one]
    assert [json.loads(one[6:]) for one in lines[:-1]] == events
    assert not tap.was_cut


@example(b"\xc2\x85", "groq")
@example(b"\xef\xbb\xbf\xef\xbb\xbf", "groq")
@given(st.binary(), st.sampled_from(["groq", "openai", "gemini"]))
def test_junk_passes(junk: bytes, provider: str) -> None:
    tap = streaming(provider)
    mended = passed(tap, junk)
    junk = junk.removeprefix(b"\xef\xbb\xbf")
    assume(not junk.rpartition(b"\n")[2].startswith((b"{", b"data:")))  # half an event is none
    assume(not re.search(rb"^(:|data:|event:|id:|retry:)", junk, re.MULTILINE))  # what is no junk
    for raw, escaped in (
        (b"\xe2\x80\xa8", rb"\u2028"),
        (b"\xe2\x80\xa9", rb"\u2029"),
        (b"\xc2\x85", rb"\u0085"),
    ):
        junk = junk.replace(raw, escaped)
    assert mended.removesuffix(b"\n") == junk.removesuffix(b"\n")


@pytest.mark.parametrize("dialect", ENDS)
def test_a_stream_cut_at_any_byte_before_its_end_is_never_taken_for_complete(dialect: str) -> None:
    body = line(ENDS[dialect][0])
    for cut in range(len(body) + 1):
        tap = streaming()
        passed(tap, body[:cut])
        assert not tap.is_complete
        assert tap.was_cut or tap.said_nothing
