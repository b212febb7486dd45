"""Parts that litellm does not know pass it under a mark."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from routelock_providers.litellm.fixes import put_back, set_aside

DOCUMENT = {"type": "document_url", "document_url": "https://example.com/a.pdf"}
TEXT = {"type": "text", "text": "Read this:"}


def contents(marked: Any) -> list[Any]:
    return [message["content"] for message in marked]


def user(*parts: Any) -> Any:
    return {"role": "user", "content": list(parts)}


def test_messages_that_litellm_knows_are_the_same_objects() -> None:
    messages: Any = [
        {"role": "user", "content": "Hi"},
        user(TEXT),
        {"role": "assistant", "content": [DOCUMENT]},
    ]
    marked, parts = set_aside(messages)
    assert marked is messages
    assert parts == {}


def test_a_foreign_part_comes_back_where_it_was() -> None:
    messages = [user(TEXT, DOCUMENT), user(DOCUMENT | {"name": "b"})]
    marked, parts = set_aside(messages)
    assert all(part["type"] == "text" for content in contents(marked) for part in content)
    body = json.dumps({"messages": marked, "model": "m"}).encode()
    assert json.loads(put_back(body, parts)) == {"messages": messages, "model": "m"}


def test_it_comes_back_though_litellm_joined_the_texts() -> None:
    marked, parts = set_aside([user(TEXT, DOCUMENT)])
    joined = "".join(part["text"] for part in contents(marked)[0])
    body = json.dumps({"messages": [{"role": "user", "content": joined}]}).encode()
    assert json.loads(put_back(body, parts))["messages"][0]["content"] == [TEXT, DOCUMENT]


def test_it_comes_back_in_another_vendors_format() -> None:
    marked, parts = set_aside([user(DOCUMENT)])
    body = json.dumps({"contents": [{"parts": [{"text": contents(marked)[0][0]["text"]}]}]}).encode()
    assert json.loads(put_back(body, parts))["contents"][0]["parts"] == [DOCUMENT]


def test_a_request_without_foreign_parts_is_not_even_read() -> None:
    body = b"not json"
    assert put_back(body, {}) is body


@given(st.text())
def test_a_text_that_looks_like_a_mark_stays_text(text: str) -> None:
    marklike = {"type": "text", "text": f"[routelock part {'0' * 32}]"}
    messages: Any = [{"role": "user", "content": text}, user(marklike, DOCUMENT)]
    marked, parts = set_aside(messages)
    body = json.dumps({"messages": marked}).encode()
    assert json.loads(put_back(body, parts)) == {"messages": messages}
