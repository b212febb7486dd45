"""Fixes change what litellm cannot read; everything else stays the same object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.litellm.fixes import fix_event, fix_reply, reply_in_events


def fixed(provider: str, reply: Any) -> Any:
    return json.loads(fix_reply(provider, json.dumps(reply).encode()))


def reply(**message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def test_reply_without_a_fix_is_the_same_object() -> None:
    body = json.dumps(reply(content="Hello")).encode()
    assert fix_reply("openai", body) is body
    line = b'data: {"choices": []}'
    assert fix_event("groq", line) is line


def test_reply_with_half_a_surrogate_pair_is_fixed() -> None:
    body = b'{"choices": [{"message": {"content": "cut \\ud83d"}}]}'
    assert json.loads(fix_reply("groq", body))["choices"][0]["message"]["content"] == "cut \ud83d"


def test_groqs_older_answers_get_a_service_tier() -> None:
    assert fixed("groq", reply(content="x"))["service_tier"] is None
    assert fixed("groq", {**reply(content="x"), "service_tier": "auto"})["service_tier"] == "auto"


def test_annotations_of_files_are_taken_out_and_links_stay() -> None:
    link, file = {"type": "url_citation", "url": "x"}, {"type": "file", "file": {}}
    assert fixed("openrouter", reply(annotations=[file, link]))["choices"][0]["message"]["annotations"] == [
        link
    ]
    citation = {"type": "file_citation", "file_id": "f"}
    part = {"type": "output_text", "text": "x", "annotations": [citation]}
    said = {"output": [{"type": "message", "content": [part]}, {"type": "file_search_call", "content": None}]}
    assert fixed("openai", said)["output"][0]["content"][0]["annotations"] == []


def test_snowflakes_empty_objects_are_removed() -> None:
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "custom": {"name": ""},
    }
    message = {
        "content": "",
        "function_call": {"name": "", "arguments": ""},
        "audio": {"id": "", "expires_at": 0},
    }
    said = reply(**message, tool_calls=[call], refusal="")
    said["choices"][0]["finish_reason"] = ""
    choice = fixed("openai", said)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert set(choice["message"]) == {"role", "content", "tool_calls"}
    assert "custom" not in choice["message"]["tool_calls"][0]


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled"])
def test_incomplete_response_gets_an_error(status: str) -> None:
    said = {"object": "response", "id": "resp_1", "status": status, "output": [], "error": None}
    assert status in fixed("openai", said)["error"]["message"]


def test_the_status_of_an_item_is_not_that_of_the_response() -> None:
    item = {"type": "function_call", "status": "in_progress"}
    said = {"object": "response", "status": "completed", "output": [item], "error": None}
    assert fixed("openai", said)["error"] is None


def test_a_prompt_that_gemini_blocked_is_a_reply_without_content() -> None:
    feedback = {"promptFeedback": {"blockReason": "OTHER"}}
    assert fixed("gemini", feedback)["candidates"] == [{"index": 0, "finishReason": "SAFETY"}]
    assert fixed("gemini", feedback)["usageMetadata"] == {}
    answered = {**feedback, "candidates": [{"content": {}}]}
    assert fixed("gemini", answered) == answered


@pytest.mark.parametrize("parts", [[], [{"text": "Once"}]])
def test_a_text_that_gemini_filtered_is_kept(parts: list[Any]) -> None:
    said = {"candidates": [{"content": {"parts": parts}, "finishReason": "SAFETY"}]}
    assert fixed("gemini", said)["candidates"][0]["finishReason"] == ("OTHER" if parts else "SAFETY")


def test_groqs_usage_moves_to_where_litellm_looks() -> None:
    event = {"choices": [], "x_groq": {"usage": {"prompt_tokens": 1}}}
    moved = json.loads(fix_event("groq", b"data: " + json.dumps(event).encode())[6:])
    assert moved["usage"] == {"prompt_tokens": 1}
    both = b"data: " + json.dumps({**event, "usage": {"prompt_tokens": 2}}).encode()
    assert fix_event("groq", both) is both


def events(*values: Any) -> bytes:
    return b"".join(b"event: x\ndata: " + json.dumps(value).encode() + b"\n\n" for value in values)


def test_the_whole_reply_is_found_in_a_stream_of_responses() -> None:
    final = {"id": "r", "output": [1]}
    body = events({"type": "response.created"}, {"type": "response.completed", "response": final})
    assert json.loads(reply_in_events(body) or b"") == final


def test_the_whole_reply_is_put_together_from_a_stream_of_coheres() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    body = events(
        {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}},
        {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "I will"}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hel"}}}},
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "lo"}}}},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {
            "type": "tool-call-delta",
            "index": 0,
            "delta": {"message": {"tool_calls": {"function": {"arguments": "{}"}}}},
        },
        {"type": "message-end", "delta": {"finish_reason": "TOOL_CALL", "usage": {"tokens": {}}}},
    )
    whole = json.loads(reply_in_events(body) or b"")
    assert (whole["id"], whole["finish_reason"], whole["usage"]) == ("m1", "TOOL_CALL", {"tokens": {}})
    assert "".join(part["text"] for part in whole["message"]["content"]) == "Hello"
    assert whole["message"]["tool_plan"] == "I will"
    assert whole["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_other_streams_hold_no_whole_reply() -> None:
    assert reply_in_events(events({"choices": []})) is None
    assert reply_in_events(b"") is None


@given(st.binary(), st.sampled_from(["groq", "openai"]))
def test_text_that_is_not_json_passes_unchanged(junk: bytes, provider: str) -> None:
    try:
        json.loads(junk)
    except ValueError:
        assert fix_reply(provider, junk) is junk
