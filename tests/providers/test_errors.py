"""Every exception of the vendors' libraries becomes an error that says what to do."""

from __future__ import annotations

import inspect
import itertools
import socket
from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import openai
import pytest

from routelock import errors
from routelock.errors import ProviderError
from routelock_providers.errors import to_provider_error

NOT_RETRYABLE = (
    errors.InvalidRequest,
    errors.AuthenticationFailed,
    errors.QuotaExhausted,
    errors.ProviderDefect,
)

MODEL, KEY = errors.ModelNotFound, errors.AuthenticationFailed


def mapped(error: BaseException, **more: Any) -> ProviderError:
    return to_provider_error(error, provider="openai", model="gpt-4o", **more)


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
def test_header_that_cannot_be_sent_is_not_shown(error: Exception) -> None:
    found = mapped(error)
    assert type(found) is errors.InvalidRequest
    assert not found.retryable
    assert "Check the key" in str(found)
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
def test_transport_errors_are_distinct_and_retryable(kind: Any, want: type[ProviderError]) -> None:
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


def test_missing_module_as_a_connection_error_is_a_defect() -> None:
    cause = ModuleNotFoundError("No module named 'mcp'", name="mcp")
    error = mapped(chained(litellm_says("APIConnectionError"), cause))
    assert type(error) is errors.ProviderDefect
    assert not error.retryable
    assert "'mcp'" in str(error)


def test_bug_of_litellm_as_a_server_error_is_a_defect() -> None:
    cause = AttributeError("'ModelResponse' object has no attribute 'service_tier'")
    error = mapped(chained(litellm_says("InternalServerError"), cause))
    assert type(error) is errors.ProviderDefect
    assert "service_tier" in str(error)


def test_text_in_place_of_a_reply_of_azure_is_unreadable() -> None:
    text = "AzureException APIError - Unexpected string response from Azure: data: {}"
    assert type(mapped(litellm_says("InternalServerError", text))) is errors.UnreadableResponse


def test_a_refused_request_of_litellms_own_is_not_a_server_error() -> None:
    error = mapped(chained(litellm_says("APIConnectionError"), ValueError("Invalid user message at index 4")))
    assert type(error) is errors.InvalidRequest
    assert "index 4" in str(error)


def test_refused_connection_as_error_500_is_a_failed_connection() -> None:
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


def test_unknown_provider_shows_the_form_of_a_model_string() -> None:
    said = litellm_says("BadRequestError", "LLM Provider NOT provided. Pass in the LLM provider")
    error = to_provider_error(said, provider="", model="nonsense")
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


def test_cassette_miss_keeps_its_lines_and_names_the_provider() -> None:
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


def test_earlier_failure_does_not_decide() -> None:
    earlier = http_error(401)
    error = mapped(chained(httpx.ConnectError("no"), earlier), until=earlier)
    assert type(error) is errors.ConnectionFailed


def test_loop_of_causes_ends() -> None:
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


def test_error_of_routelock_is_returned_unchanged() -> None:
    own = errors.ContentRefused("no")
    assert mapped(chained(litellm_says("APIConnectionError"), own)) is own
