"""Parts that litellm does not know are sent as marks and restored in the request."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.litellm.fixes import mark_parts, restore_parts

DOCUMENT = {"type": "document_url", "document_url": "https://example.com/a.pdf"}
TEXT = {"type": "text", "text": "Read this:"}


def contents(marked: Any) -> list[Any]:
    return [message["content"] for message in marked]


def user(*parts: Any) -> Any:
    return {"role": "user", "content": list(parts)}


def test_messages_without_such_parts_are_the_same_objects() -> None:
    messages: Any = [
        {"role": "user", "content": "Hi"},
        user(TEXT),
        {"role": "assistant", "content": [DOCUMENT]},
    ]
    marked, parts = mark_parts(messages)
    assert marked is messages
    assert parts == {}


def test_part_is_restored_in_its_place() -> None:
    messages = [user(TEXT, DOCUMENT), user(DOCUMENT | {"name": "b"})]
    marked, parts = mark_parts(messages)
    assert all(part["type"] == "text" for content in contents(marked) for part in content)
    body = json.dumps({"messages": marked, "model": "m"}).encode()
    assert json.loads(restore_parts(body, parts)) == {"messages": messages, "model": "m"}


def test_part_is_restored_after_litellm_joined_the_texts() -> None:
    marked, parts = mark_parts([user(TEXT, DOCUMENT)])
    joined = "".join(part["text"] for part in contents(marked)[0])
    body = json.dumps({"messages": [{"role": "user", "content": joined}]}).encode()
    assert json.loads(restore_parts(body, parts))["messages"][0]["content"] == [TEXT, DOCUMENT]


def test_part_is_restored_in_another_format() -> None:
    marked, parts = mark_parts([user(DOCUMENT)])
    body = json.dumps({"contents": [{"parts": [{"text": contents(marked)[0][0]["text"]}]}]}).encode()
    assert json.loads(restore_parts(body, parts))["contents"][0]["parts"] == [DOCUMENT]


def test_request_without_such_parts_is_not_read() -> None:
    body = b"not json"
    assert restore_parts(body, {}) is body


@given(st.text())
def test_text_that_looks_like_a_mark_stays_text(text: str) -> None:
    marklike = {"type": "text", "text": f"[routelock part {'0' * 32}]"}
    messages: Any = [{"role": "user", "content": text}, user(marklike, DOCUMENT)]
    marked, parts = mark_parts(messages)
    body = json.dumps({"messages": marked}).encode()
    assert json.loads(restore_parts(body, parts)) == {"messages": messages}
