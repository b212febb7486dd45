"""An HTTP answer that is not a reply becomes the error for its status and message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import errors
from routelock.errors import ProviderError
from routelock_providers.http_errors import LONGEST_WAIT, Answer, error_from_answer, shorten

MODEL, KEY = errors.ModelNotFound, errors.AuthenticationFailed


def answered(status: int | None, body: object = "", **headers: str) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    names = {key.replace("_", "-"): value for key, value in headers.items()}
    return error_from_answer(Answer(status, names, text), provider="openai", model="gpt-4o", now=1000.0)


@pytest.mark.parametrize(
    ("status", "want", "retryable"),
    [
        (400, errors.InvalidRequest, False),
        (401, errors.AuthenticationFailed, False),
        (402, errors.QuotaExhausted, False),
        (403, errors.AuthenticationFailed, False),
        (404, errors.InvalidRequest, False),
        (408, errors.ProviderTimeout, True),
        (409, errors.InvalidRequest, True),
        (413, errors.InvalidRequest, False),
        (422, errors.InvalidRequest, False),
        (425, errors.InvalidRequest, True),
        (429, errors.RateLimited, True),
        (498, errors.ServerFailed, True),
        (500, errors.ServerFailed, True),
        (501, errors.ServerFailed, False),
        (502, errors.ServerFailed, True),
        (503, errors.ServerFailed, True),
        (504, errors.ProviderTimeout, True),
        (529, errors.ServerFailed, True),
    ],
)
def test_statuses(status: int, want: type[ProviderError], retryable: bool) -> None:
    error = answered(status, {"error": {"message": "something"}})
    assert type(error) is want
    assert error.retryable is retryable
    assert error.status == status


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"code": "approval_required", "type": "permission_error"}, errors.InvalidRequest),
        ({"code": "host_not_allowed", "type": "permission_error"}, errors.InvalidRequest),
        ({"message": "Country, region, or territory not supported"}, errors.InvalidRequest),
        ({"code": "unsupported_country_region_territory"}, errors.InvalidRequest),
        ({"code": "model_not_found", "message": "Project `p` does not have access to model `m`"}, MODEL),
        ({"message": "You don't have access to the model with the specified model ID."}, MODEL),
        ({"code": "model_permission_blocked_org"}, MODEL),
        ({"message": "Rejected by our content policy"}, errors.ContentRefused),
        ({"code": "scope_denied", "type": "permission_error"}, errors.AuthenticationFailed),
        ({"type": "permission_error", "message": "Your API key does not have permission"}, KEY),
        ({"status": "PERMISSION_DENIED", "message": "denied on resource (or it may not exist)"}, KEY),
        ({"message": "Missing scopes: model.request"}, KEY),
    ],
)
def test_a_403_is_about_the_key_unless_it_says_otherwise(said: Any, want: type[ProviderError]) -> None:
    error = answered(403, {"error": said})
    assert type(error) is want
    assert ("API_KEY" in str(error)) == (want is KEY)
    assert said.get("message", "") in str(error)


def at(url: str, provider: str = "local", status: int = 404) -> str:
    answer = Answer(status, {}, '{"detail": "Not Found"}')
    return str(error_from_answer(answer, provider=provider, model="m", url=url))


@pytest.mark.parametrize("base", ["http://box:8000", "http://box:8000/api"])
def test_a_404_without_a_version_in_the_address_says_so(base: str) -> None:
    told = at(f"{base}/chat/completions")
    assert f"this was sent to {base}/chat/completions." in told
    assert f"such as {base}/v1." in told


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1beta/openai/chat/completions", "/chat/completions?api-version=1"]
)
def test_a_404_with_a_version_in_the_address_names_the_address(path: str) -> None:
    told = at(f"https://x.org{path}", "x")
    assert f"this was sent to https://x.org{path.partition('?')[0]}." in told
    assert "Most servers" not in told


def test_an_address_is_named_without_its_secrets() -> None:
    told = at("http://me:hush@box:8000/chat/completions?key=hush")
    assert "hush" not in told
    assert "http://box:8000/chat/completions" in told


def test_two_local_servers_can_be_told_apart() -> None:
    assert at("http://127.0.0.1:1234/v1", status=500).startswith("local (127.0.0.1:1234) answered 500")


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 1048565 tokens. However, you requested 1250025 tokens",
        "prompt is too long: 3333404 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 1 + 2 > 3",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "The following errors: Input Tokens Exceeded: Number of input tokens exceeds x",
        "Input is too long for requested model.",
        "Prompt contains 150000 tokens, too large for model with 128000 maximum context length",
        "This endpoint's maximum context length is 163840 tokens. However, you requested about 200000 tokens",
        "too many tokens: size limit exceeded by 25836 tokens. Try using shorter or fewer inputs.",
        "Please reduce the length of the messages or completion. Current length is 8193 while limit is 8192",
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "`inputs` must have less than 4096 tokens. Given: 5000",
        "The prompt (total length 5000) is too long to fit into the model (context length 4096).",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    ],
)
def test_every_vendors_words_for_too_long_a_context_are_known(words: str) -> None:
    error = answered(400, {"error": {"message": words, "type": "invalid_request_error"}})
    assert type(error) is errors.ContextTooLong
    assert not error.retryable


@pytest.mark.parametrize(
    ("status", "body", "want"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "check your plan"}}, errors.QuotaExhausted),
        (400, {"error": {"message": "Your credit balance is too low"}}, errors.QuotaExhausted),
        (
            400,
            {"error": {"message": "API key not valid. Please pass a valid API key."}},
            errors.AuthenticationFailed,
        ),
        (
            400,
            {"error": {"code": "content_filter", "message": "The response was filtered"}},
            errors.ContentRefused,
        ),
        (400, {"error": {"message": "gpt-9 is not a valid model ID"}}, errors.ModelNotFound),
        (404, {"error": {"code": "model_not_found", "message": "does not exist"}}, errors.ModelNotFound),
        (
            404,
            {"error": {"message": "models/gemini-9 is not found for API version v1"}},
            errors.ModelNotFound,
        ),
        (404, {"type": "error", "error": {"message": "model: claude-9 not found"}}, errors.ModelNotFound),
        (400, "<html><title>Bad Request</title></html>", errors.InvalidRequest),
        (200, "", errors.UnreadableResponse),
        (200, "<html>hello</html>", errors.UnreadableResponse),
    ],
)
def test_words_are_more_exact_than_the_status(status: int, body: object, want: type[ProviderError]) -> None:
    assert type(answered(status, body)) is want


@pytest.mark.parametrize(
    ("body", "status", "want"),
    [
        ({"error": {"code": 502, "message": "Provider returned error"}}, 502, errors.ServerFailed),
        ({"error": {"code": 429, "message": "slow down"}}, 429, errors.RateLimited),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            529,
            errors.ServerFailed,
        ),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}, 429, errors.RateLimited),
        ({"error": {"type": "invalid_request_error", "code": "tool_use_failed"}}, 400, errors.InvalidRequest),
        ({"error": {"message": "something unheard of"}}, None, errors.ServerFailed),
        ({"error": "a plain text"}, None, errors.ServerFailed),
    ],
)
def test_an_error_inside_a_success_has_the_status_that_it_means(
    body: object, status: int | None, want: type[ProviderError]
) -> None:
    assert Answer(200, {}, json.dumps(body)).is_error
    error = answered(200, body)
    assert type(error) is want
    assert error.status == status


def test_a_reply_is_not_an_error_though_it_may_speak_of_errors() -> None:
    assert not Answer(200, {}, '{"choices": [], "error": null}').is_error
    assert not Answer(200, {}, '{"message": "an \\"error\\" happened"}').is_error
    assert not Answer(200, {}, "error").is_error


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "12"}, 12.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"Retry_After": "12"}, 12.0),
        ({"retry_after_ms": "250", "retry_after": "1"}, 0.25),
        ({"retry_after": "Thu, 01 Jan 1970 00:20:00 GMT"}, 200.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry_after": "Thu, 01 Jan 1970 00:20:00 -0000"}, 200.0),
        ({"retry_after": "Dec 99999999999999999999 23:59:59 31"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-4"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_seconds_milliseconds_or_as_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert answered(429, "", **headers).retry_after == seconds


def test_geminis_limit_per_minute_is_a_rate_limit() -> None:
    message = "You exceeded your current quota, please check your plan. Please retry in 48.9s."
    error = answered(429, {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}})
    assert type(error) is errors.RateLimited
    assert error.retry_after == 48.9
    details = [{"@type": "x"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "7s"}]
    assert answered(429, {"error": {"message": "current quota", "details": details}}).retry_after == 7.0


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("false", False)])
def test_a_vendor_that_says_whether_to_retry_is_believed(said: str, retryable: bool) -> None:
    assert answered(500, "", x_should_retry=said).retryable is retryable


def test_openrouters_raw_message_is_quoted() -> None:
    body = {
        "error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "limited upstream"}}
    }
    assert "limited upstream" in str(answered(429, body))


def test_a_key_in_a_url_is_not_repeated() -> None:
    assert "secret" not in shorten("GET https://x/v1?key=secret&a=1 and ?api_key=secret")


@given(st.integers(100, 599) | st.none(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_answer_becomes_an_error_with_a_message(
    status: int | None, body: str, headers: dict[str, str]
) -> None:
    error = error_from_answer(Answer(status, headers, body), provider="", model="m")
    assert isinstance(error, ProviderError)
    assert str(error)


@pytest.mark.parametrize("code", ["\u00b9", "5" * 5000])
def test_code_that_is_not_a_status(code: str) -> None:
    assert answered(200, {"code": code, "message": "no"}).status is None


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from(["error", "message", "code", "type", "details", "metadata", "status"]), inner
)))  # fmt: skip
def test_any_json_becomes_an_error_with_a_message(body: Any) -> None:
    assert str(answered(200, body))


@pytest.mark.parametrize(
    ("headers", "body", "told"),
    [
        ({"retry_after": "Thu, 01 Jan 2099 00:00:00 GMT"}, "", "Thu, 01 Jan 2099"),
        ({"retry_after": "31536000"}, "", "31536000"),
        ({"retry_after_ms": "864000000"}, "", "864000 s"),
        ({}, {"error": {"message": "Please retry in 9999999s", "code": 429}}, "9999999"),
    ],
)
def test_wait_of_years_is_limited_and_quoted(headers: dict[str, str], body: object, told: str) -> None:
    """A program that sleeps for ``retry_after`` is not to sleep for seventy years."""
    error = answered(429, body, **headers)
    assert error.retry_after == LONGEST_WAIT
    assert told in str(error)


def test_wait_of_hours_is_kept() -> None:
    error = answered(429, "", retry_after="7200")
    assert error.retry_after == 7200.0
    assert "7200" not in str(error)
