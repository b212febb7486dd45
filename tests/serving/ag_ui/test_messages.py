"""The messages of AG-UI become chat messages."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from routelock.serving.ag_ui.messages import chat_messages
from routelock.serving.errors import Refusal


def user(*parts: Any) -> dict[str, Any]:
    return {"id": "1", "role": "user", "content": list(parts)}


def content_of(*parts: Any) -> Any:
    [message] = chat_messages([user(*parts)])
    return message.get("content")


@pytest.mark.parametrize("role", ["user", "system", "developer", "assistant"])
def test_text_stays_and_the_name_of_its_author_goes(role: str) -> None:
    given = {"id": "1", "role": role, "content": "Hi", "name": "Ann B."}
    assert chat_messages([given]) == [{"role": role, "content": "Hi"}]


def test_calls_and_results_keep_their_ids() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    given = [
        {"id": "1", "role": "assistant", "toolCalls": [{**call, "encryptedValue": "x"}]},
        {"id": "2", "role": "tool", "toolCallId": "c", "content": "done", "metadata": {}},
    ]
    assert chat_messages(given) == [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "Error: no camera"),
        ("half", "half\nError: no camera"),
        ([{"type": "text", "text": "half"}], "half\nError: no camera"),
    ],
)
def test_a_tool_that_failed_says_why(content: Any, told: str) -> None:
    given = {"id": "1", "role": "tool", "toolCallId": "c", "content": content, "error": "no camera"}
    assert chat_messages([given])[0].get("content") == told


@pytest.mark.parametrize(
    "message",
    [
        {"role": "activity", "activityType": "PLAN", "content": {}},
        {"role": "reasoning", "content": "Hm."},
        {"role": "assistant", "content": "Aside.", "subagentRunId": "s"},
        {"role": "assistant", "content": ""},
    ],
)
def test_what_only_the_client_shows_is_left_out(message: dict[str, Any]) -> None:
    assert chat_messages([{"id": "1", **message}]) == []


@pytest.mark.parametrize(
    ("part", "chat"),
    [
        (
            {"type": "image", "source": {"type": "url", "value": "https://a.example/1.png"}},
            {"type": "image_url", "image_url": {"url": "https://a.example/1.png"}},
        ),
        (
            {"type": "image", "source": {"type": "data", "value": "QQ==", "mimeType": "image/png"}},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
        (
            {"type": "audio", "source": {"type": "data", "value": "QQ==", "mimeType": "audio/mpeg"}},
            {"type": "input_audio", "input_audio": {"data": "QQ==", "format": "mp3"}},
        ),
        (
            {"type": "document", "source": {"type": "data", "value": "QQ==", "mimeType": "application/pdf"}},
            {"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,QQ=="}},
        ),
        (
            {"type": "binary", "mimeType": "image/png", "data": "QQ=="},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
        ),
    ],
)
def test_media_have_the_form_of_chat_messages(part: dict[str, Any], chat: dict[str, Any]) -> None:
    assert content_of({"type": "text", "text": "See:"}, part) == [{"type": "text", "text": "See:"}, chat]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video", "source": {"type": "data", "value": "QQ==", "mimeType": "video/mp4"}},
        {"type": "document", "source": {"type": "url", "value": "file:///etc/passwd"}},
        {"type": "image", "source": {"type": "file", "value": "file-1", "provider": "openai"}},
        {"type": "audio", "source": {"type": "data", "value": "QQ==", "mimeType": "audio/ogg"}},
        {"type": "image"},
        {"type": "hologram", "source": 7},
    ],
)
def test_a_part_that_no_chat_message_can_have_is_left_out_and_logged(
    part: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "routelock.serving"):
        assert content_of({"type": "text", "text": "See:"}, part) == "See:"
    assert "messages[0].content[1]" in caplog.text


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"role": "king", "content": "x"}, "messages[1].role"),
        ({"content": "x"}, "messages[1].role"),
        ({"role": "user", "content": 7}, "messages[1].content"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": ["x"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "image", "source": "x"}]}, "messages[1].content[0].source"),
        ({"role": "system", "content": None}, "messages[1].content"),
        ({"role": "tool", "content": "x"}, "messages[1].toolCallId"),
        ({"role": "assistant", "toolCalls": [{"id": "c"}]}, "messages[1].toolCalls[0].function"),
        ({"role": "assistant", "toolCalls": [{"id": "c"}] * 1025}, "messages[1].toolCalls"),
    ],
)
def test_a_wrong_message_is_refused_by_its_place(message: dict[str, Any], where: str) -> None:
    with pytest.raises(Refusal) as refused:
        chat_messages([{"role": "reasoning", "content": ""}, message])
    assert (refused.value.status, refused.value.param) == (400, where)
