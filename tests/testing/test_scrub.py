"""Secrets go, everything else stays to the byte."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock.testing.scrub import SCRUBBED, Scrubber, secrets_in

SCRUB = Scrubber()
DIGITS = "0123456789abcdef0123456789abcdef01234567"

SHAPES = {
    # none of these was ever a key; they are put together here so that no scanner takes them for one
    "OpenAI": "sk-" + "proj-" + DIGITS,
    "Anthropic": "sk-" + "ant-api03-" + DIGITS,
    "OpenRouter": "sk-" + "or-v1-" + DIGITS,
    "Groq": "gsk" + "_" + DIGITS,
    "Hugging Face": "hf" + "_" + DIGITS,
    "Replicate": "r8" + "_" + DIGITS,
    "xAI": "xai" + "-" + DIGITS,
    "Google key": "AI" + "za" + DIGITS[:35],
    "Google token": "ya" + "29." + DIGITS,
    "AWS": "AK" + "IA" + DIGITS.upper()[:16],
    "GitHub": "gh" + "p_" + DIGITS,
    "GitHub fine-grained": "github" + "_pat_" + DIGITS,
    "GitLab": "gl" + "pat-" + DIGITS,
    "Slack": "xo" + "xb-" + DIGITS,
    "Stripe": "sk" + "_live_" + DIGITS,
    "Stripe test": "rk" + "_test_" + DIGITS,
    "Stripe hook": "wh" + "sec_" + DIGITS,
    "npm": "npm" + "_" + DIGITS,
    "PyPI": "py" + "pi-" + DIGITS,
    "Shopify": "sh" + "pat_" + DIGITS,
    "DigitalOcean": "dop" + "_v1_" + DIGITS,
    "Perplexity": "pp" + "lx-" + DIGITS,
    "Cerebras": "cs" + "k-" + DIGITS,
    "Fireworks": "fw" + "_" + DIGITS,
    "NVIDIA": "nv" + "api-" + DIGITS,
    "Together": "tgp" + "_v1_" + DIGITS,
    "LangSmith": "lsv2" + "_pt_" + DIGITS,
    "AWS for a session": "AS" + "IA" + DIGITS.upper()[:16],
    "JSON web token": "ey" + "J" + DIGITS + ".ey" + "J" + DIGITS + "." + DIGITS,
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----\n" + DIGITS + "\n-----END " + "RSA PRIVATE KEY-----",
}


PLACES = ["{}", "my key is {}.", '{{"note": "{}"}}', r"line\n{}", r"a\u0026{}", "q=%20{}", "({})", "x={}&y=1"]


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
def test_known_shape_is_replaced_anywhere(secret: str) -> None:
    for text in PLACES:
        scrubbed = SCRUB.text(text.format(secret))
        assert DIGITS[:16] not in scrubbed.lower(), text
        assert SCRUBBED in scrubbed, text


@pytest.mark.parametrize(
    "secret",
    ["sk-" + DIGITS[:16], "r8_" + DIGITS[:16], "xoxb-" + DIGITS[:10], "rk_live_" + DIGITS[:10]],
)
def test_the_shortest_of_a_shape_goes(secret: str) -> None:
    assert SCRUB.text(f"a {secret} b") == f"a {SCRUBBED} b"
    assert SCRUB.text(f"a {secret[:-1]} b") == f"a {secret[:-1]} b"


@pytest.mark.parametrize(
    "name",
    "api_key apiKey api-key x-api-key access_token refresh_token id_token client_secret password "
    "authorization secret_key private_key aws_session_token cookie".split(),
)
def test_value_with_a_secret_name_is_replaced(name: str) -> None:
    once = json.dumps({name: 'a "quoted" \\ value', "model": "m"})
    twice = json.dumps({"arguments": json.dumps({name: "hunter2", "model": "m"})})
    assert json.loads(SCRUB.text(once)) == {name: SCRUBBED, "model": "m"}
    assert json.loads(json.loads(SCRUB.text(twice))["arguments"]) == {name: SCRUBBED, "model": "m"}
    assert SCRUB.text(f"https://h/p?a=1&{name}=hunter2&b=2") == f"https://h/p?a=1&{name}={SCRUBBED}&b=2"
    assert SCRUB.text(f"{name}=hunter2&b=2") == f"{name}={SCRUBBED}&b=2"


def test_a_key_in_an_address_goes() -> None:
    assert SCRUB.text("https://user:hunter2@host/path") == f"https://{SCRUBBED}@host/path"
    assert SCRUB.text("https://host/v1/models/m:generate?key=hunter2") == (
        f"https://host/v1/models/m:generate?key={SCRUBBED}"
    )


def test_a_token_after_its_scheme_goes() -> None:
    assert SCRUB.text("curl -H 'Authorization: Bearer abc123def456'") == (
        f"curl -H 'Authorization: Bearer {SCRUBBED}'"
    )
    assert SCRUB.text("basic dXNlcjpwYXNz=") == f"basic {SCRUBBED}"


def test_environment_secret_of_any_shape_is_replaced() -> None:
    scrub = Scrubber(secrets=frozenset({"correct horse", "correct horse battery"}))
    assert scrub.text("say correct horse battery staple") == f"say {SCRUBBED} staple"


_AWKWARD = 'ab+c/d"e\\f g=\u00e9\n&9kk'


@pytest.mark.parametrize(
    "spelled",
    [
        _AWKWARD,
        json.dumps(_AWKWARD),
        json.dumps(_AWKWARD, ensure_ascii=False),
        json.dumps(_AWKWARD).replace("&", "\\u0026"),
        json.dumps(json.dumps({"x": _AWKWARD})),
        quote(_AWKWARD),
        quote(_AWKWARD, safe=""),
        quote_plus(_AWKWARD),
        quote(_AWKWARD, safe="").replace("%2B", "%2b"),
        quote(_AWKWARD, safe="=&"),
    ],
)
def test_environment_secret_in_any_encoding_is_replaced(spelled: str) -> None:
    cleaned = Scrubber(secrets=frozenset({_AWKWARD})).text(f"before {spelled} behind")
    assert SCRUBBED in cleaned
    assert "kk" not in cleaned
    assert "ab" not in cleaned


def test_secrets_of_the_environment_are_known_by_their_names() -> None:
    environment = {
        "OPENAI_API_KEY": "long enough 1",
        "SERVICE_TOKEN": "long enough 2",
        "db_password": "long enough 3",
        "SHORT_KEY": "short",
        "KEYBOARD": "long enough 4",
        "HOME": "/home/somebody",
    }
    assert secrets_in(environment) == {"long enough 1", "long enough 2", "long enough 3"}


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens": 10, "logprobs": [{"token": "Hello"}], "total_tokens": 3}',
        '{"signature": "EqQBCkYIBxgCKkDsk+AIzaFghp/AKIAxoxbEqQBCkYIBxgCKkDsk0123456789abcdef0123"}',
        '{"properties": {"password": {"type": "string"}, "api_key": {"type": "string"}}}',
        '{"api_key": "", "password": null}',
        "basic arithmetic and bearer certificates",
        "a task-oriented-assistant-for-everyone asks",
        "https://api.openai.com/v1/chat/completions?api-version=2024-10-21",
        '{"id": "call_0123456789abcdef0123456789abcdef", "key": "value"}',
        'data: {"choices": []}\r\n\r\n: comment\u2028\u0085\n',
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert SCRUB.text(text) == text


def test_bytes_that_are_no_text_stay() -> None:
    assert SCRUB.body(b"\xff\xfe\x00 api_key\x80") == b"\xff\xfe\x00 api_key\x80"


@pytest.mark.parametrize(("body", "expected"), [(None, None), (b"", b""), ("", b""), ("a", b"a")])
def test_a_body_may_be_missing_empty_or_text(body: bytes | str | None, expected: bytes | None) -> None:
    assert SCRUB.body(body) == expected


def test_only_harmless_headers_are_kept() -> None:
    sent = {"Content-Type": "application/json", "Authorization": "Bearer x", "X-Anything": "x"}
    assert SCRUB.request_headers(sent) == {"Content-Type": "application/json"}
    received = {
        "Retry-After": ["1"],
        "Set-Cookie": ["a", "b"],
        "openai-organization": ["me"],
        "Content-Type": "a/b",
    }
    assert SCRUB.response_headers(received) == {"Retry-After": ["1"], "Content-Type": ["a/b"]}


def test_more_headers_can_be_kept() -> None:
    scrub = Scrubber(keep_response_headers=frozenset({"x-request-id"}))
    assert scrub.response_headers({"X-Request-Id": ["1"]}) == {"X-Request-Id": ["1"]}


_MIXED = st.lists(
    st.sampled_from(
        [*SHAPES.values(), '"', "\\", '"api_key": "', "password=", "&", "Bearer ", "://u:p@", "x", "\n"]
    )
    | st.text(max_size=5)
).map("".join)


@given(_MIXED)
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    once = SCRUB.text(text)
    assert SCRUB.text(once) == once


@given(st.binary())
def test_scrubbing_never_fails(body: bytes) -> None:
    assert isinstance(SCRUB.body(body), bytes)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_stays_json(value: object) -> None:
    json.loads(SCRUB.text(json.dumps({"api_key": "x", "value": value})))


def test_all_headers_can_be_kept_without_secret_values() -> None:
    scrub = Scrubber(keep_request_headers=None, keep_response_headers=None)
    headers = {"X-Api-Key": "hunter2", "x-shop": "7", "authorization": "Bearer hunter2", "x-max-tokens": "9"}
    kept = {"X-Api-Key": SCRUBBED, "x-shop": "7", "authorization": SCRUBBED, "x-max-tokens": "9"}
    assert scrub.request_headers(headers) == kept
    assert scrub.response_headers({"set-cookie": ["a=1", "b=2"], "link": ["</x>"]}) == {
        "set-cookie": [SCRUBBED, SCRUBBED],
        "link": ["</x>"],
    }
