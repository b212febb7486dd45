"""Requests are compared by what they mean, and the difference is shown so that it can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from routelock.testing.matching import MAX_LINES, HTTPRequest, canonical, difference, nearest

ENDPOINT = ("method", "host", "port", "path")
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
    assert asked(one).matches(asked(other))
    assert difference(asked(one), asked(other)) == ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_requests_do_not_match(one: object, other: object) -> None:
    assert not asked(one).matches(asked(other))
    assert asked(one).matches(asked(other), ENDPOINT)
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
    assert asked(url=url).matches(asked(url="https://h/v1/models/m:generateContent"))


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
    assert not asked().matches(other, ENDPOINT)


def test_what_is_not_json_is_compared_as_text() -> None:
    form = HTTPRequest(method="POST", url=URL, body=b"a=1&at=2026-01-02T03:04:05Z")
    later = HTTPRequest(method="POST", url=URL, body=b"a=1&at=2026-01-02T03:04:06Z")
    assert form.matches(later)
    assert canonical(b"\xff") == "\ufffd"


def test_a_changed_value_stands_below_its_path() -> None:
    recorded = asked({"messages": [{"role": "user", "content": "Hi"}], "model": "m"})
    now = asked({"messages": [{"role": "user", "content": "Ho"}], "model": "m"})
    assert difference(recorded, now) == '$.messages[0].content\n  - "Hi"\n  + "Ho"'


def test_fields_that_are_new_or_gone_are_shown() -> None:
    recorded, now = asked({"a": 1, "b": [1, {"x y": None}]}), asked({"b": [1, {}], "c": {"d": True}})
    assert difference(recorded, now).splitlines() == [
        "$.a",
        "  - 1",
        '$.b[1]["x y"]',
        "  - null",
        "$.c",
        '  + {"d": true}',
    ]


def test_a_message_in_between_does_not_change_the_others() -> None:
    before, after = [{"content": text} for text in ("one", "two", "three")], [{"content": "one"}]
    after += [{"content": "new"}, {"content": "two"}, {"content": "other"}]
    assert difference(asked(before), asked(after)).splitlines() == [
        "$[1]",
        '  + {"content": "new"}',
        "$[3].content",
        '  - "three"',
        '  + "other"',
    ]


def test_items_that_are_gone_are_shown_at_their_recorded_place() -> None:
    assert difference(asked([1, 2, 3, 4]), asked([1, 4])) == "$[1]\n  - 2\n$[2]\n  - 3"


def test_difference_names_the_other_endpoint() -> None:
    other = asked(url="http://localhost:8080/v1/responses", method="GET")
    assert difference(asked(), other).splitlines() == [
        "method",
        '  - "POST"',
        '  + "GET"',
        "host",
        '  - "api.example.com"',
        '  + "localhost"',
        "port",
        "  - 443",
        "  + 8080",
        "path",
        '  - "/v1/chat/completions"',
        '  + "/v1/responses"',
    ]


@pytest.mark.parametrize(
    ("part", "one", "other"),
    [
        ("method", asked(), asked(method="GET")),
        ("scheme", asked(), asked(url=URL.replace("https", "http"))),
        ("host", asked(), asked(url=URL.replace("api.", ""))),
        ("port", asked(), asked(url=URL.replace(".com", ".com:81"))),
        ("path", asked(), asked(url=URL + "/x")),
        ("query", asked(url=URL + "?a=1"), asked(url=URL + "?a=2")),
        ("uri", asked(), asked(url=URL.replace("v1", "v1beta"))),
        ("body", asked(1), asked(2)),
    ],
)
def test_each_part_can_be_compared(part: str, one: HTTPRequest, other: HTTPRequest) -> None:
    assert not one.matches(other, [part])
    assert one.matches(one, [part])
    assert difference(other, one, [part]).startswith("$" if part == "body" else part)


def test_parts_that_are_not_compared_are_not_shown() -> None:
    assert difference(asked(1), asked(2, method="GET"), ["method"]) == 'method\n  - "POST"\n  + "GET"'


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

    assert difference(asked("kind"), asked("brief")).splitlines() == [
        "$.content",
        '  - "Be kind.\\n"',
        '  + "Be brief.\\n"',
    ]


def test_difference_shows_tags_as_they_are_sent() -> None:
    told = difference(
        asked({"content": "<answer>Paris</answer>"}), asked({"content": "<answer>Rome</answer>"})
    )
    assert '- "<answer>Paris</answer>"' in told
    assert '+ "<answer>Rome</answer>"' in told
