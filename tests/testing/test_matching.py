"""Requests are compared by what they mean, and the difference is shown so that it can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.testing.cassette import MAX_LINES, HTTPRequest, canonical, difference, nearest

URL = "https://api.example.com/v1/chat/completions"


def asked(body: object = None, url: str = URL, method: str = "POST") -> HTTPRequest:
    return HTTPRequest(method=method, url=url, body=json.dumps(body).encode())


def dialogue(call_id: str) -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "a", "arguments": "{}"}}
    return {
        "messages": [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "ok"},
        ]
    }


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
FLAT_TOOLS = [{"name": "a"}, {"name": "b"}]

SAME = {
    "keys in another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "tools in another order": ({"tools": TOOLS}, {"tools": TOOLS[::-1]}),
    "Anthropic's tools in another order": ({"tools": FLAT_TOOLS}, {"tools": FLAT_TOOLS[::-1]}),
    "other call ids": (dialogue("call_1"), dialogue("toolu_2")),
    "other response ids": ({"id": "resp_1"}, {"id": "resp_2"}),
    "another UUID": (
        {"user": "run 0b6f9a7e-27f3-4a36-8d2f-6f0c8f3f2a11"},
        {"user": "run 5a0d6a7e-27f3-4a36-8d2f-6f0c8f3f2a22"},
    ),
    "another run": ({"handoff_context": {"run_id": "0b" * 16}}, {"handoff_context": {"run_id": "5a" * 16}}),
    "another moment": ({"now": "2026-01-02T03:04:05Z"}, {"now": "2027-01-02 03:04:05.678+01:00"}),
    "arguments written otherwise": (
        {"function": {"arguments": '{"a": 1, "b": 2}'}},
        {"function": {"arguments": '{"b":2,"a":1}'}},
    ),
}

DIFFERENT = {
    "another prompt": ({"content": "Hi"}, {"content": "Ho"}),
    "messages in another order": ({"messages": ["a", "b"]}, {"messages": ["b", "a"]}),
    "an answer to another call": (
        {"messages": [{"call_id": "1"}, {"call_id": "2"}, {"tool_call_id": "1"}]},
        {"messages": [{"call_id": "1"}, {"call_id": "2"}, {"tool_call_id": "2"}]},
    ),
    "a run of the user's": ({"run_id": "nightly-1"}, {"run_id": "nightly-2"}),
    "an id of the user's": ({"id": "order-1"}, {"id": "order-2"}),
    "broken arguments": ({"arguments": '{"a":'}, {"arguments": '{"b":'}),
    "arguments that cannot be parsed": ({"arguments": "[" * 9000}, {"arguments": "[" * 9001}),
    "true is not 1 as text": ({"a": "1"}, {"a": 1}),
    "one tool less": ({"tools": TOOLS}, {"tools": TOOLS[:1]}),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equivalent_requests_match(one: object, other: object) -> None:
    assert asked(one).matches(asked(other), body=True)
    assert difference(asked(one), asked(other)) == ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_requests_do_not_match(one: object, other: object) -> None:
    assert not asked(one).matches(asked(other), body=True)
    assert asked(one).matches(asked(other), body=False)
    assert difference(asked(one), asked(other))


@pytest.mark.parametrize(
    "url",
    [
        "https://h/v1alpha/models/m:generateContent",
        "https://h/v1beta/models/m%3AgenerateContent?alt=sse&key=x",
        "https://H/v1beta1/models/m:generateContent",
        "https://user:pass@h/v1/models/m:generateContent",
    ],
)
def test_an_apis_stage_and_the_query_do_not_count(url: str) -> None:
    assert asked(url=url).matches(asked(url="https://h/v1/models/m:generateContent"), body=True)


@pytest.mark.parametrize(
    "other",
    [
        asked(method="GET"),
        asked(url="https://api.example.org/v1/chat/completions"),
        asked(url="https://api.example.com:8443/v1/chat/completions"),
        asked(url="https://api.example.com/v2/chat/completions"),
        asked(url="https://api.example.com/v1/responses"),
    ],
)
def test_other_endpoint_does_not_match(other: HTTPRequest) -> None:
    assert not asked().matches(other, body=False)


def test_what_is_not_json_is_compared_as_text() -> None:
    form = HTTPRequest(method="POST", url=URL, body=b"a=1&at=2026-01-02T03:04:05Z")
    later = HTTPRequest(method="POST", url=URL, body=b"a=1&at=2026-01-02T03:04:06Z")
    assert form.matches(later, body=True)
    assert canonical(b"\xff") == "\ufffd"


def test_the_difference_shows_the_line_that_changed() -> None:
    recorded = asked({"messages": [{"role": "user", "content": "Hi"}], "model": "m"})
    now = asked({"messages": [{"role": "user", "content": "Ho"}], "model": "m"})
    lines = difference(recorded, now).splitlines()
    assert '-      "content": "Hi",' in lines
    assert '+      "content": "Ho",' in lines
    assert not any("model" in line and line[0] in "+-" for line in lines)


def test_difference_names_the_other_endpoint() -> None:
    shown = difference(asked(), asked(url="https://api.example.com/v1/responses"))
    assert "-POST api.example.com /v1/chat/completions" in shown
    assert "+POST api.example.com /v1/responses" in shown


def test_a_long_difference_is_cut() -> None:
    shown = difference(asked(list(range(500))), asked(list(range(1000, 1500))))
    assert len(shown.splitlines()) == MAX_LINES + 1
    assert shown.endswith("more lines")


def test_nearest_request_prefers_the_same_endpoint() -> None:
    body = {"messages": ["a long text", "another"]}
    recorded = [asked(body, url="https://h/v1/responses"), asked({"messages": ["else"]}), asked({"x": 1})]
    assert nearest(asked(body), recorded) == 1


def test_empty_cassette_has_no_nearest_request() -> None:
    assert nearest(asked(), []) is None


def test_difference_shows_only_the_changed_sentence() -> None:
    def asked(word: str) -> HTTPRequest:
        prompt = "You settle invoices of one shop. " * 50 + f"Be {word}.\n" + "Ask before you pay. " * 50
        return HTTPRequest(method="POST", url="https://x/v1", body=json.dumps({"content": prompt}).encode())

    changed = [line for line in difference(asked("kind"), asked("brief")).splitlines() if line[0] in "-+"]
    assert changed == ["--- recorded", "+++ asked", "-Be kind.\\n", "+Be brief.\\n"]
