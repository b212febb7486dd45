"""Every exception of the vendors' libraries becomes an error that says what to do."""

from __future__ import annotations

import inspect
import itertools
import json
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routelock import errors
from routelock.errors import ProviderError
from routelock_providers.errors import LONGEST_WAIT, Answer, error_from_answer, shortened, to_provider_error

NOT_RETRYABLE = (
    errors.InvalidRequest,
    errors.AuthenticationFailed,
    errors.QuotaExhausted,
    errors.ProviderDefect,
)

MODEL, KEY = errors.ModelNotFound, errors.AuthenticationFailed


def mapped(error: BaseException, **more: Any) -> ProviderError:
    return to_provider_error(error, provider="openai", model="gpt-4o", **more)


def answered(status: int | None, body: object = "", **headers: str) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    names = {key.replace("_", "-"): value for key, value in headers.items()}
    return error_from_answer(Answer(status, names, text), provider="openai", model="gpt-4o", now=1000.0)


def chained(*links: BaseException) -> BaseException:
    """Return the first link, caused by the second, and so on."""
    for link, cause in itertools.pairwise(links):
        link.__context__ = cause
    return links[0]


def http_error(status: int, body: str = "", headers: dict[str, str] | None = None) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "https://api.example/v1/chat/completions")
    response = httpx.Response(status, text=body, headers=headers, request=request)
    return httpx.HTTPStatusError("status", request=request, response=response)


@pytest.mark.parametrize(
    "error",
    [
        httpx.LocalProtocolError("Illegal header value b'Bearer topsecret\\n'"),
        httpx.LocalProtocolError("Illegal header name b'topsecret '"),
        ValueError("Newline or carriage return detected in headers. Potential header injection attack."),
        UnicodeEncodeError("ascii", "Bearer topsecreté", 16, 17, "ordinal not in range(128)"),
    ],
    ids=["h11", "h11, a name", "aiohttp", "httpx"],
)
def test_a_header_that_cannot_be_sent_is_told_without_what_it_holds(error: Exception) -> None:
    found = mapped(error)
    assert type(found) is errors.InvalidRequest
    assert not found.retryable
    assert "Look at the key" in str(found)
    assert "topsecret" not in f"{found} {error}", "a traceback shows both"


def vendor_classes() -> Iterator[type[BaseException]]:
    import litellm.exceptions

    for module in (litellm.exceptions, openai):
        for name in dir(module):
            value = inspect.getattr_static(module, name, None)
            if inspect.isclass(value) and issubclass(value, Exception) and not issubclass(value, Warning):
                yield value


def bare(kind: type[BaseException]) -> BaseException:
    """Return an instance without running its __init__, whose arguments differ from class to class."""
    error = kind.__new__(kind, "something happened")
    error.args = ("something happened",)
    for name in ("message", "llm_provider", "model"):
        setattr(error, name, "something happened")
    for name in (
        "num_retries",
        "max_retries",
        "original_exception",
        "litellm_debug_info",
        "status_code",
        "code",
    ):
        setattr(error, name, None)
    return error


@pytest.mark.parametrize("kind", sorted(set(vendor_classes()), key=str), ids=lambda kind: kind.__qualname__)
def test_no_exception_class_of_litellm_or_openai_is_unmapped(kind: type[BaseException]) -> None:
    error = mapped(bare(kind))
    assert type(error) is not ProviderError
    assert error.provider == "openai"
    assert error.model == "gpt-4o"
    if isinstance(error, NOT_RETRYABLE) and error.status != 409:
        assert not error.retryable


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        (httpx.ConnectError, errors.ConnectionFailed),
        (httpx.ReadError, errors.ConnectionFailed),
        (httpx.RemoteProtocolError, errors.IncompleteResponse),
        (httpx.ReadTimeout, errors.ProviderTimeout),
        (httpx.PoolTimeout, errors.ProviderTimeout),
        (httpx.DecodingError, errors.UnreadableResponse),
        (anyio.BrokenResourceError, errors.ConnectionFailed),
        (anyio.EndOfStream, errors.IncompleteResponse),
        (TimeoutError, errors.ProviderTimeout),
        (ConnectionRefusedError, errors.ConnectionFailed),
    ],
)
def test_transport_errors_are_retryable_and_told_apart(kind: Any, want: type[ProviderError]) -> None:
    error = mapped(kind("boom"))
    assert type(error) is want
    assert error.retryable


def test_aiohttps_and_httpx2s_errors_are_known_by_name() -> None:
    class ClientConnectorError(OSError):
        __module__ = "aiohttp.client_exceptions"

    ClientConnectorError.__mro__  # noqa: B018 - it descends from OSError, not from ConnectionError
    kind = type("ClientConnectionError", (ClientConnectorError,), {"__module__": "aiohttp.client_exceptions"})
    assert type(mapped(kind("no route"))) is errors.ConnectionFailed
    httpx2 = type("ReadTimeout", (type("TimeoutException", (Exception,), {}),), {"__module__": "httpx2"})
    assert type(mapped(httpx2("late"))) is errors.ProviderTimeout


def litellm_says(name: str, text: str = "boom") -> BaseException:
    import litellm.exceptions

    kind = getattr(litellm.exceptions, name)
    if name == "MidStreamFallbackError":
        return kind(text, "m", "p")
    if name in ("APIError",):
        return kind(500, text, "p", "m")
    return (
        kind(text, "p", "m")
        if name in ("InternalServerError", "APIConnectionError")
        else kind(text, "m", "p")
    )


def test_a_missing_module_dressed_up_as_a_connection_error_is_a_defect_and_never_retried() -> None:
    cause = ModuleNotFoundError("No module named 'mcp'", name="mcp")
    error = mapped(chained(litellm_says("APIConnectionError"), cause))
    assert type(error) is errors.ProviderDefect
    assert not error.retryable
    assert "'mcp'" in str(error)


def test_a_bug_of_litellms_dressed_up_as_a_server_error_is_a_defect() -> None:
    cause = AttributeError("'ModelResponse' object has no attribute 'service_tier'")
    error = mapped(chained(litellm_says("InternalServerError"), cause))
    assert type(error) is errors.ProviderDefect
    assert "service_tier" in str(error)


def test_a_refused_request_of_litellms_own_is_not_a_server_error() -> None:
    error = mapped(chained(litellm_says("APIConnectionError"), ValueError("Invalid user message at index 4")))
    assert type(error) is errors.InvalidRequest
    assert "index 4" in str(error)


def test_a_refused_connection_dressed_up_as_error_500_is_a_failed_connection_without_a_status() -> None:
    request: Any = httpx.Request("POST", "http://x")  # openai 3 declares its own kind of request
    cause = chained(openai.APIConnectionError(request=request), httpx.ConnectError("no"))
    error = mapped(chained(litellm_says("InternalServerError"), cause))
    assert type(error) is errors.ConnectionFailed
    assert error.status is None
    assert error.retryable


def test_a_missing_key_names_the_variable_to_set() -> None:
    cause = openai.OpenAIError("Missing credentials. Please pass an `api_key`, or set OPENAI_API_KEY")
    error = mapped(chained(litellm_says("InternalServerError"), cause))
    assert type(error) is errors.AuthenticationFailed
    assert "OPENAI_API_KEY" in str(error)


def test_an_unknown_provider_is_told_how_a_model_string_looks() -> None:
    error = mapped(litellm_says("BadRequestError", "LLM Provider NOT provided. Pass in the LLM provider"))
    assert type(error) is errors.ModelNotFound
    assert "provider/model" in str(error)


def test_a_miss_of_vcrpy_is_a_cassette_miss_and_not_retried() -> None:
    from vcr.errors import CannotOverwriteExistingCassetteException as Miss

    miss = Miss.__new__(Miss)
    miss.args = ("No match for https://api.openai.com/v1/chat/completions",)
    error = mapped(
        chained(litellm_says("InternalServerError"), openai.OpenAIError("Connection error."), miss)
    )
    assert type(error) is errors.CassetteMiss
    assert "No match for https" in str(error)
    assert not error.retryable


def test_a_miss_keeps_its_lines_and_learns_who_was_asked() -> None:
    miss = errors.CassetteMiss("POST https://x is not in a.yaml.\n--- recorded\n+++ asked")
    error = mapped(chained(litellm_says("InternalServerError"), httpx.ConnectError("x"), miss))
    assert type(error) is errors.CassetteMiss
    assert not error.retryable
    assert str(error) == str(miss)
    assert (error.provider, error.model) == ("openai", "gpt-4o")


def test_a_connection_that_was_blocked_is_not_retried() -> None:
    from routelock.testing import NetworkBlocked

    blocked = NetworkBlocked("api.openai.com", "Connecting to")
    error = mapped(chained(litellm_says("InternalServerError"), httpx.ConnectError("x"), blocked))
    assert type(error) is errors.ConnectionFailed
    assert not error.retryable
    assert str(blocked) in str(error)


def test_the_true_answer_beats_litellms_class() -> None:
    cause = http_error(
        529, '{"error": {"type": "overloaded_error", "message": "Overloaded"}}', {"retry-after": "7"}
    )
    error = mapped(chained(litellm_says("InternalServerError"), cause))
    assert type(error) is errors.ServerFailed
    assert (error.status, error.retry_after, error.retryable) == (529, 7.0, True)


def test_a_mid_stream_wrapper_is_judged_by_its_original() -> None:
    wrapper: Any = litellm_says("MidStreamFallbackError")
    wrapper.original_exception = chained(
        litellm_says("RateLimitError"), http_error(429, "", {"retry-after": "3"})
    )
    error = mapped(wrapper)
    assert type(error) is errors.RateLimited
    assert error.retry_after == 3.0


def test_retry_after_is_found_in_litellms_own_place() -> None:
    limited: Any = litellm_says("RateLimitError")
    limited.litellm_response_headers = httpx.Headers({"Retry-After": "9"})
    assert mapped(limited).retry_after == 9.0


def test_an_error_event_that_openai_raises_has_no_response_and_is_read_from_its_body() -> None:
    request: Any = httpx.Request("POST", "http://x")  # openai 3 declares its own kind of request
    event = openai.APIError("late", request, body={"message": "Overloaded", "type": "overloaded_error"})
    error = mapped(event)
    assert type(error) is errors.ServerFailed
    assert error.status == 529


def test_what_failed_before_this_attempt_does_not_judge_it() -> None:
    earlier = http_error(401)
    error = mapped(chained(httpx.ConnectError("no"), earlier), until=earlier)
    assert type(error) is errors.ConnectionFailed


def test_causes_that_go_in_a_circle_end() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__context__, two.__context__ = two, one
    assert type(mapped(one)) is errors.ProviderDefect


class ImageFetchError(Exception):
    """Named as litellm's own."""


class SSRFError(ValueError):
    """Likewise; this one is what made litellm give up."""


@pytest.mark.parametrize(
    "causes",
    [
        (SSRFError("DNS resolution failed for 'nohost.example'"), socket.gaierror(-2, "not known")),
        (httpx.ConnectError("nohost.example"), socket.gaierror(-2, "not known")),
        (http_error(503, "nohost.example"),),
        (httpx.ReadTimeout("nohost.example"),),
    ],
)
def test_an_image_that_cannot_be_fetched_is_not_the_vendors_failure(
    causes: tuple[BaseException, ...],
) -> None:
    said = ImageFetchError("litellm.BadRequestError: Unable to fetch image from nohost.example")
    for chain in (chained(said, *causes), chained(litellm_says("APIConnectionError"), said, *causes)):
        error = mapped(chain)
        assert type(error) is errors.InvalidRequest
        assert (error.retryable, error.status) == (False, None)
        assert "nohost.example" in str(error)
        assert "openai could not be reached" not in str(error)
        assert "data: URL" in str(error)


def test_an_error_of_our_own_is_returned_as_it_is() -> None:
    own = errors.ContentRefused("no")
    assert mapped(chained(litellm_says("APIConnectionError"), own)) is own


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


def test_geminis_limit_per_minute_is_no_exhausted_quota_and_says_when_to_come_back() -> None:
    message = "You exceeded your current quota, please check your plan. Please retry in 48.9s."
    error = answered(429, {"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED"}})
    assert type(error) is errors.RateLimited
    assert error.retry_after == 48.9
    details = [{"@type": "x"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "7s"}]
    assert answered(429, {"error": {"message": "current quota", "details": details}}).retry_after == 7.0


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("false", False)])
def test_a_vendor_that_says_whether_to_retry_is_believed(said: str, retryable: bool) -> None:
    assert answered(500, "", x_should_retry=said).retryable is retryable


def test_openrouters_raw_words_are_told() -> None:
    body = {
        "error": {"code": 429, "message": "Provider returned error", "metadata": {"raw": "limited upstream"}}
    }
    assert "limited upstream" in str(answered(429, body))


def test_a_key_in_a_url_is_not_repeated() -> None:
    assert "secret" not in shortened("GET https://x/v1?key=secret&a=1 and ?api_key=secret")


@given(st.integers(100, 599) | st.none(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_answer_becomes_an_error_with_a_message(
    status: int | None, body: str, headers: dict[str, str]
) -> None:
    error = error_from_answer(Answer(status, headers, body), provider="", model="m")
    assert isinstance(error, ProviderError)
    assert str(error)


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
def test_a_wait_of_years_is_bounded_and_told(headers: dict[str, str], body: object, told: str) -> None:
    """A program that sleeps for ``retry_after`` is not to sleep for seventy years."""
    error = answered(429, body, **headers)
    assert error.retry_after == LONGEST_WAIT
    assert told in str(error)


def test_a_wait_of_hours_is_as_it_was_told() -> None:
    error = answered(429, "", retry_after="7200")
    assert error.retry_after == 7200.0
    assert "7200" not in str(error)
