"""Errors for HTTP answers that are not replies.

The status decides, except where it misleads: an error inside a 200, a stream that ends in an error event, a
wrong key answered with 400. There the words of the vendor decide. The wordings were taken from recorded
answers of the vendors named beside them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from routelock._redaction import scrubbed
from routelock._text import clip
from routelock.errors import (
    AuthenticationFailed,
    ContentRefused,
    ContextTooLong,
    InvalidRequest,
    ModelNotFound,
    ProviderError,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from routelock_providers.vendor_json import as_object, json_or_none
from routelock_providers.vendors import provider_at

__all__ = [
    "LONGEST_WAIT",
    "Answer",
    "error_from_answer",
    "key_hint",
    "missing_key_error",
    "redirect_error",
    "shorten",
    "vendor_label",
]


LONGEST_WAIT = 86_400.0
"""The longest wait, in seconds. A longer ``Retry-After`` is quoted in the error and cut to this, or the
program would hang."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: status (None if only an error object is known), headers and the text of the body."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=lambda: {})
    body: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the status is an error, or the body of a success holds an error object."""
        if self.status is not None and self.status >= 400:
            return True
        return bool(_outer_object(self.body).get("error"))


@dataclass(frozen=True, slots=True)
class _ErrorObject:
    """The error object of a body, in whatever way the vendor nests it."""

    message: str
    codes: tuple[str, ...]
    """The vendor's codes, types and statuses, as text."""
    retry_after: float | None

    @property
    def words(self) -> str:
        return f"{self.message} {' '.join(self.codes)}".lower()


def _any_of(*wordings: str) -> re.Pattern[str]:
    return re.compile("|".join(wordings), re.DOTALL)


_TOO_LONG = _any_of(
    "context_length_exceeded|context_window_exceeded|too_many_tokens|exceed_context_size",
    "max(imum)? (context|prompt|model) length|context (window|limit|size)|longer than the (maximum|model)",
    "prompt is too long|input is too long|too long to fit|reduce the length of|too large for model",
    "inputs? (token count|tokens?) .{0,40}exceed|input tokens exceed|too many (input )?tokens",
    r"exceeds the maximum number of tokens|must have less than \d+ tokens|max_new_tokens. must be",
)


_REFUSED = _any_of(
    "content_policy|content_filter|content (management|filtering) policy|content policy",
    "usage (policies|guidelines)",
    "responsibleaipolicy|data_inspection_failed|requires moderation|flagged|safety system|prohibited_content",
)


_KEY = _any_of(
    "api[_ -]?key (not valid|is invalid|expired|not found)|api_key_invalid|invalid[_ ]api[_ ]key",
    "incorrect api key|invalid x-api-key|(invalid|missing|no) (authentication|credentials|api key)",
    "authentication_error|invalid_authentication|unauthenticated",
)


_QUOTA = _any_of(
    "insufficient[_ ](quota|balance|credits|funds)|credit balance|out of credits|no credits",
    "exceeded your current quota|quota (has been )?exhausted|budget has been exceeded|spending limit",
    "billing_hard_limit|billing_not_active",
)


_MODEL = _any_of(
    "model_not_found|unknown_model|invalid model|no such model|not a valid model|deploymentnotfound",
    "model identifier is invalid|no endpoints found",
    r"models?/?\S*.{0,80}(does not exist|not found|is not supported|not exist|unavailable in)",
)


_NO_ACCESS = _any_of(
    "model_not_found|model_permission_blocked|(not|n't) have (access|permission) to (use )?(the )?model",
)
"""Matches the text of a 403 which means that the key is valid but may not use this model."""


_NOT_THE_KEY = _any_of(
    "approval_required|host_not_allowed",  # routelock's own server
    "unsupported_country|(country|region|territory|location).{0,40}not (supported|available|allowed)",
)
"""Matches the text of a 403 which means that another key would not help."""


_OVERLOADED = _any_of("overloaded|at capacity|engine is currently|resource_temporarily_unavailable")


_STATUS_OF: Mapping[str, int] = {
    # Anthropic and OpenAI error types
    "invalid_request_error": 400,
    "tool_use_failed": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    # routelock's own server, inside a stream
    "shutting_down": 503,
    # Google RPC codes
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "resource_exhausted": 429,
    "internal": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
    # AWS exceptions, inside the event stream
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelstreamerrorexception": 502,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}


_ADVICE: Mapping[type[ProviderError], str] = {
    AuthenticationFailed: "Check the key and what it may do.",
    ContentRefused: "The vendor's content policy stopped it; another wording or model may pass.",
    ContextTooLong: "Shorten the history, as RunConfig(compact=...) does, or take a larger model.",
    ModelNotFound: "Check the model's name, and that this key may use it.",
    QuotaExhausted: "Waiting does not help: check plan and billing.",
    RateLimited: "Send fewer requests at a time, or let the run retry.",
    ServerFailed: "The fault is on the vendor's side; the same request may succeed later.",
    ProviderTimeout: "The vendor gave up waiting; the same request may succeed later.",
}


def error_from_answer(
    answer: Answer, *, provider: str, model: str, url: str = "", now: float | None = None
) -> ProviderError:
    """Return the error for an HTTP answer that is not a reply.

    Args:
        answer: has an error status, or an error object inside a 200.
        provider: the vendor's short name.
        model: the model that was asked.
        url: the address that was asked, if it is known; named in the error if it may be wrong.
        now: seconds since the epoch, for a Retry-After that is a date; default: the clock.
    """
    found = _error_object(answer.body)
    status = _true_status(answer, found)
    kind = _kind(status, found)
    retry_after = _retry_after(answer.headers, time.time() if now is None else now)
    retry_after = found.retry_after if retry_after is None else retry_after
    if kind is QuotaExhausted and retry_after is not None and "insufficient" not in found.words:
        kind = RateLimited  # Gemini calls its per-minute limit a quota, and says when to retry
    retryable = _retryable(kind, status, answer.headers)
    if kind is AuthenticationFailed:
        advice = f"{_ADVICE[kind]} {key_hint(provider)}"
    elif kind is InvalidRequest:
        advice = _advice_for_refusal(status, url, retryable)
    else:
        advice = _ADVICE.get(kind, "The same request may pass later.")
    where = f"{vendor_label(provider, url)} answered {status if status else 'with an error'}"
    what = found.message.rstrip(".") or "it gave no reason"
    if retry_after is not None and retry_after > LONGEST_WAIT:
        asked = _header(answer.headers, "retry-after") or f"{retry_after:g} s"
        advice = f"{advice} It asks to wait for {shorten(asked, 100)!r}."
        retry_after = LONGEST_WAIT
    return kind(
        f"{where} for model {model!r}: {what}. {advice}",
        status=status,
        retry_after=retry_after,
        provider=provider,
        model=model,
        retryable=retryable,
    )


def vendor_label(provider: str, url: str = "") -> str:
    """Return the vendor's name for an error, with the server if it is not the vendor's own.

    Args:
        provider: the vendor's short name; ``"local"`` is not a vendor.
        url: the address, if the app chose it.
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    host = parts.hostname or ""
    if provider == "local" and place:
        return f"local ({place})"
    known = not place or provider in ("", place, host, provider_at(host))
    return f"{provider} ({place})" if not known else provider or "The provider"


def _advice_for_refusal(status: int | None, url: str, retryable: bool | None) -> str:
    """Return what to change about a request that was refused."""
    if status == 404 and url:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        advice = f"Check the address: this was sent to {shorten(place)}."
        if re.search(r"/v\d|(^|&)api-version=", f"{parts.path}?&{parts.query}"):
            return advice
        wanted = place.removesuffix("/chat/completions")
        return f"{advice} Most servers want a version in it, such as {shorten(wanted)}/v1."
    if status == 403:
        return "The key is not the cause: the same request will be refused again."
    return f"The same request {'may pass later.' if retryable else 'will be refused again: change it.'}"


def key_hint(provider: str, handler: str = "") -> str:
    """Return how to pass a key for this vendor.

    Args:
        provider: the vendor's short name.
        handler: how to make a handler with a key, such as ``"OpenAI('m', api_key=...)"``.
    """
    names = {
        "azure": "AZURE_API_KEY",
        "bedrock": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "gemini": "GEMINI_API_KEY",
        "cohere_chat": "COHERE_API_KEY",
        "ollama_chat": "OLLAMA_API_KEY",
        "perplexity": "PERPLEXITYAI_API_KEY",
        "vertex_ai": "GOOGLE_APPLICATION_CREDENTIALS",
        "": "the vendor's key variable",
    }
    setting = f"Set {names.get(provider, f'{provider.upper()}_API_KEY')} in the environment"
    if provider in ("bedrock", "vertex_ai"):
        return f"{setting}."
    return f"{setting}, or pass api_key= to the handler{f', {handler}' if handler else ''}."


def missing_key_error(provider: str, model: str, handler: str) -> AuthenticationFailed:
    """Return the error for a model that was not asked because its vendor's key is missing.

    Args:
        provider: the vendor's short name.
        model: the model that was to be asked.
        handler: how to make a handler with a key.
    """
    return AuthenticationFailed(
        f"There is no key for {provider}, so {model!r} was not asked. {key_hint(provider, handler)}",
        provider=provider,
        model=model,
    )


def redirect_error(
    status: int,
    headers: Mapping[str, str],
    *,
    url: str,
    provider: str,
    model: str,
    argument: str = "base_url",
) -> InvalidRequest:
    """Return the error for a redirect, which is not followed: it would pass on the key and the conversation.

    Args:
        status: the status of the answer, from 300 to 399.
        headers: the headers of the answer, found by names in lower case.
        url: the address that was asked: a redirect may be relative to it.
        provider: the vendor's short name.
        model: the model that was asked.
        argument: the argument of the handler that takes the address.
    """
    location = headers.get("location", "")
    where = repr(shorten(_joined(url, location), 200)) if location else "nowhere"
    return InvalidRequest(
        f"{provider} answered {status}, a redirect to {where}, which is not followed: the key would be sent "
        f"there too. Pass the new address as {argument}.",
        status=status,
        provider=provider,
        model=model,
    )


def _joined(url: str, location: str) -> str:
    """Return the full address of a redirect, so that its host can be seen."""
    try:
        return urljoin(url, location)
    except ValueError:  # a server may write anything there
        return location


def shorten(text: str, limit: int = 400) -> str:
    """Return text for an error message: one line of at most ``limit`` characters, without secrets."""
    return clip(scrubbed(" ".join(text[: 2 * limit].split()), "..."), limit)


def _kind(status: int | None, found: _ErrorObject) -> type[ProviderError]:
    words = found.words
    if status is not None and 400 <= status < 500:
        return _refusal(status, words)
    if status is None or status < 400:
        refused = ContentRefused if _REFUSED.search(words) else ServerFailed
        return refused if found.message else UnreadableResponse
    return ProviderTimeout if status == 504 else ServerFailed


def _refusal(status: int, words: str) -> type[ProviderError]:
    rules: tuple[tuple[bool, type[ProviderError]], ...] = (
        (status == 408, ProviderTimeout),
        (status == 498, ServerFailed),  # Groq: its flex tier is full
        (status == 402 or bool(_QUOTA.search(words)), QuotaExhausted),
        (status == 429, RateLimited),
        (bool(_TOO_LONG.search(words)), ContextTooLong),
        (bool(_REFUSED.search(words)), ContentRefused),
        (status == 403 and bool(_NO_ACCESS.search(words)), ModelNotFound),
        (status == 403 and bool(_NOT_THE_KEY.search(words)), InvalidRequest),
        (status in (401, 403) or bool(_KEY.search(words)), AuthenticationFailed),
        (bool(_MODEL.search(words)), ModelNotFound),
        (bool(_OVERLOADED.search(words)), ServerFailed),
    )
    return next((kind for matches, kind in rules if matches), InvalidRequest)


def _retryable(kind: type[ProviderError], status: int | None, headers: Mapping[str, str]) -> bool | None:
    if issubclass(kind, QuotaExhausted):
        return False
    advice = headers.get("x-should-retry")  # OpenAI and Anthropic send this header
    if advice in ("true", "false"):
        return advice == "true"
    if kind is InvalidRequest and status in (409, 425):
        return True  # a lock or a replay guard of the vendor
    return False if status == 501 else None


def _true_status(answer: Answer, found: _ErrorObject) -> int | None:
    """Return the status; for an error object inside a 200, the status that it means."""
    if answer.status is not None and answer.status >= 400:
        return answer.status
    for code in found.codes:
        if len(code) == 3 and code.isdecimal() and 400 <= int(code) < 600:
            return int(code)
        if known := _STATUS_OF.get(code.lower()):
            return known
    return None if found.message else answer.status


def _error_object(body: str) -> _ErrorObject:
    found = _inner_object(body)
    if not found:
        plain = "" if body.lstrip().startswith("<") else body
        title = re.search(r"<title>(.*?)</title>", body, re.DOTALL | re.IGNORECASE)
        return _ErrorObject(shorten(title.group(1) if title else plain), (), None)
    message = _message_in(found)
    codes = tuple(
        str(found[key])
        for key in ("code", "type", "status", "error_type", "__type", "message_code")
        if isinstance(found.get(key), str | int) and str(found[key]) != "error"
    )
    return _ErrorObject(shorten(message), codes, _delay_in(found))


def _inner_object(body: str) -> Mapping[str, Any]:
    """Return the error object of a body, or the whole body if no part of it is one."""
    outer = _outer_object(body)
    inner: object = outer.get("error")
    if isinstance(inner, Mapping):
        return cast("Mapping[str, Any]", inner)
    return {**outer, "message": inner} if isinstance(inner, str) else outer


def _outer_object(body: str) -> Mapping[str, Any]:
    value = json_or_none(body)
    if isinstance(value, list):  # Gemini answers a request for a stream with a list
        return as_object(next(iter(cast("list[object]", value)), None)) or {}
    return as_object(value) or {}


def _message_in(found: Mapping[str, Any]) -> str:
    keys = ("message", "Message", "detail", "msg", "text")
    message = next((found[key] for key in keys if found.get(key)), "")
    metadata = found.get("metadata")
    raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    text = message if isinstance(message, str) else json.dumps(message)
    return f"{text}: {raw}" if raw else text  # OpenRouter puts the vendor's words into "raw"


def _delay_in(found: Mapping[str, Any]) -> float | None:
    text = json.dumps(found.get("details")) + str(found.get("message"))
    asked = re.search(r'"retryDelay": "([\d.]+)s"|(?:retry|try again) in ([\d.]+) ?s', text)
    return _seconds(asked.group(1) or asked.group(2)) if asked else None


def _header(headers: Mapping[str, str], name: str) -> str:
    return next((value for key, value in headers.items() if key.lower() == name), "")


def _retry_after(headers: Mapping[str, str], now: float) -> float | None:
    if (milliseconds := _seconds(_header(headers, "retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = _header(headers, "retry-after")
    seconds = _seconds(value)
    return _until(value, now) if seconds is None else seconds


def _until(date: str, now: float) -> float | None:
    try:
        when = parsedate_to_datetime(date)
        return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)
    except (ValueError, TypeError, OverflowError):  # a server may write anything there
        return None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None
