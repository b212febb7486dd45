"""The one place where exceptions of vendors' libraries and answers over HTTP become routelock's errors.

Their classes cannot be taken at their word: litellm reports a refused connection, a missing key, a
bug of its own and a cassette miss alike as a retryable error 500. So the chain of causes is walked,
and the first of these that is found in it decides:

1. an error of routelock's own, a cassette miss, or an image that litellm was to fetch;
2. a true HTTP answer, held by an exception of httpx, httpx2, openai or aiohttp;
3. what the library found missing before it asked anyone: a key, a model, a package;
4. a timeout, a broken connection, an unreadable body;
5. a bug inside the library;
6. the class, by name, and what it says of itself.

Neither litellm nor openai is imported here: classes are known by the names in their ancestry.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, cast
from urllib.parse import urlsplit

from routelock._redaction import scrubbed
from routelock.errors import (
    AuthenticationFailed,
    CassetteMiss,
    ConnectionFailed,
    ContentRefused,
    ContextTooLong,
    IncompleteResponse,
    InvalidRequest,
    ModelNotFound,
    ProviderDefect,
    ProviderError,
    ProviderTimeout,
    QuotaExhausted,
    RateLimited,
    ServerFailed,
    UnreadableResponse,
)
from routelock_providers.vendors import has_one_key, provider_at

__all__ = [
    "LONGEST_WAIT",
    "Answer",
    "cause_of",
    "error_from_answer",
    "key_hint",
    "no_key",
    "shortened",
    "to_provider_error",
    "who",
]


LONGEST_WAIT = 86_400.0
"""Seconds, a day. An error quotes a server that asks for more; a program that sleeps so long would hang."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer: its status, or None when only an error object is known; headers; body text."""

    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: str = ""

    @property
    def is_error(self) -> bool:
        """Whether this is an error status, or an error object inside an answer that claims success."""
        if self.status is not None and self.status >= 400:
            return True
        return bool(_object(self.body).get("error"))


@dataclass(frozen=True, slots=True)
class _Said:
    """The error object of a body, however the vendor nests it."""

    message: str
    codes: tuple[str, ...]
    """Whatever the vendor calls code, type or status, as text."""
    retry_after: float | None

    @property
    def words(self) -> str:
        return f"{self.message} {' '.join(self.codes)}".lower()


def _any_of(*wordings: str) -> re.Pattern[str]:
    return re.compile("|".join(wordings), re.DOTALL)


_TOO_LONG = _any_of(
    "context_length_exceeded|context_window_exceeded|too_many_tokens|exceed_context_size",
    "max(imum)? (context|prompt|model) length|context (window|limit|size)|longer than the maximum",
    "prompt is too long|input is too long|reduce the length of|too large for model",
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
"""Of a 403: the key is fine, and may not use this model."""

_NOT_THE_KEY = _any_of(
    "approval_required|host_not_allowed",  # routelock's own server
    "unsupported_country|(country|region|territory|location).{0,40}not (supported|available|allowed)",
)
"""Of a 403: no other key would help."""

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
    # routelock's own server, within a stream; its types say less
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
    # AWS exceptions, which arrive inside the event stream
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
    ContextTooLong: "Shorten the history (an input filter or nested history does) or take a larger model.",
    ModelNotFound: "Check the model's name, and that this key may use it.",
    QuotaExhausted: "Waiting does not help: check plan and billing.",
    RateLimited: "Send fewer requests at a time, or let the run retry.",
    ServerFailed: "The fault is on the vendor's side; the same request may succeed later.",
    ProviderTimeout: "The vendor gave up waiting; the same request may succeed later.",
}


def error_from_answer(
    answer: Answer, *, provider: str, model: str, url: str = "", now: float | None = None
) -> ProviderError:
    """Return the error that an HTTP answer means.

    Args:
        answer: an answer that was not a reply: an error status, or an error object inside a 200.
        provider: the vendor's short name.
        model: the model that was asked.
        url: where, if the caller knows; it is named where it may be what is wrong.
        now: seconds since the epoch, for a Retry-After that is a date; the clock by default.
    """
    said = _said(answer.body)
    status = _true_status(answer, said)
    kind = _kind(status, said)
    retry_after = _retry_after(answer.headers, time.time() if now is None else now)
    retry_after = said.retry_after if retry_after is None else retry_after
    if kind is QuotaExhausted and retry_after is not None and "insufficient" not in said.words:
        kind = RateLimited  # Gemini calls its per-minute limit a quota, and says when to come back
    retryable = _retryable(kind, status, answer.headers)
    if kind is AuthenticationFailed:
        advice = f"{_ADVICE[kind]} {key_hint(provider)}"
    elif kind is InvalidRequest:
        advice = _change(status, url, retryable)
    else:
        advice = _ADVICE.get(kind, "The same request may pass later.")
    where = f"{who(provider, url)} answered {status if status else 'with an error'}"
    what = said.message.rstrip(".") or "it gave no reason"
    if retry_after is not None and retry_after > LONGEST_WAIT:
        asked = _header(answer.headers, "retry-after") or f"{retry_after:g} s"
        advice, retry_after = (
            f"{advice} It asks to wait for {shortened(asked, 100)!r}.",
            LONGEST_WAIT,
        )
    return kind(
        f"{where} for model {model!r}: {what}. {advice}",
        status=status,
        retry_after=retry_after,
        provider=provider,
        model=model,
        retryable=retryable,
    )


def who(provider: str, url: str = "") -> str:
    """Name who was asked: the vendor, and the server where that is not the vendor's own.

    Args:
        provider: the vendor's short name; ``"local"`` is none.
        url: where, if that was chosen by the app.
    """
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    host = parts.hostname or ""
    if provider == "local" and place:
        return f"local ({place})"
    known = not place or provider in ("", place, host, provider_at(host))
    return f"{provider} ({place})" if not known else provider or "The provider"


def _change(status: int | None, url: str, retryable: bool | None) -> str:
    """Say what to change about a request that was refused."""
    if status == 404 and url:
        parts = urlsplit(url)
        place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        advice = f"Check the address: this was sent to {shortened(place)}."
        if re.search(r"/v\d|(^|&)api-version=", f"{parts.path}?&{parts.query}"):
            return advice
        wanted = place.removesuffix("/chat/completions")
        return f"{advice} Most servers want a version in it, such as {shortened(wanted)}/v1."
    if status == 403:
        return "The key is not what is wrong: the same request will be refused again."
    return f"The same request {'may pass later.' if retryable else 'will be refused again: change it.'}"


def key_hint(provider: str, handler: str = "") -> str:
    """Say where a key for this vendor is looked for.

    Args:
        provider: the vendor's short name.
        handler: how one with a key is made, where that is known, such as ``"OpenAI('m', api_key=...)"``.
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


def no_key(provider: str, model: str, handler: str) -> AuthenticationFailed:
    """Return the error for a model that was not asked, because there is no key for its vendor.

    Args:
        provider: the vendor's short name.
        model: the model that was to be asked.
        handler: how a handler with a key is made.
    """
    return AuthenticationFailed(
        f"There is no key for {provider}, so {model!r} was not asked. {key_hint(provider, handler)}",
        provider=provider,
        model=model,
    )


def shortened(text: str, limit: int = 400) -> str:
    """Return text fit for a message: one line, not too long, without what looks like a secret."""
    line = scrubbed(" ".join(text[: 2 * limit].split()), "...")
    return line if len(line) <= limit else f"{line[:limit]} ..."


def _kind(status: int | None, said: _Said) -> type[ProviderError]:
    words = said.words
    if status is not None and 400 <= status < 500:
        return _refusal(status, words)
    if status is None or status < 400:
        refused = ContentRefused if _REFUSED.search(words) else ServerFailed
        return refused if said.message else UnreadableResponse
    return ProviderTimeout if status == 504 else ServerFailed


def _refusal(status: int, words: str) -> type[ProviderError]:
    rules: tuple[tuple[bool, type[ProviderError]], ...] = (
        (status == 408, ProviderTimeout),
        (status == 498, ServerFailed),  # Groq: its flex tier has no room now
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
    advice = headers.get("x-should-retry")  # OpenAI and Anthropic say so themselves
    if advice in ("true", "false"):
        return advice == "true"
    if kind is InvalidRequest and status in (409, 425):
        return True  # a lock, or a replay guard, of the vendor's
    return False if status == 501 else None


def _true_status(answer: Answer, said: _Said) -> int | None:
    """Return the status, or what the words mean when an error came inside a 200."""
    if answer.status is not None and answer.status >= 400:
        return answer.status
    for code in said.codes:
        if code.isdigit() and 400 <= int(code) < 600:
            return int(code)
        if known := _STATUS_OF.get(code.lower()):
            return known
    return None if said.message else answer.status


def _said(body: str) -> _Said:
    found = _error_object(body)
    if not found:
        plain = "" if body.lstrip().startswith("<") else body
        title = re.search(r"<title>(.*?)</title>", body, re.DOTALL | re.IGNORECASE)
        return _Said(shortened(title.group(1) if title else plain), (), None)
    message = _message_in(found)
    codes = tuple(
        str(found[key])
        for key in ("code", "type", "status", "error_type", "__type", "message_code")
        if isinstance(found.get(key), str | int) and str(found[key]) != "error"
    )
    return _Said(shortened(message), codes, _delay_in(found))


def _error_object(body: str) -> Mapping[str, Any]:
    """Return the object that says what went wrong: the whole body, where nothing in it is the error."""
    outer = _object(body)
    inner: object = outer.get("error")
    if isinstance(inner, Mapping):
        return cast("Mapping[str, Any]", inner)
    return {**outer, "message": inner} if isinstance(inner, str) else outer


def _object(body: str) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(body)
    except ValueError:
        return {}
    if isinstance(value, list) and value:  # Gemini answers a stream's request with a list
        value = value[0]  # pyright: ignore[reportUnknownVariableType] - it is anything still
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _message_in(found: Mapping[str, Any]) -> str:
    keys = ("message", "Message", "detail", "msg", "text")
    message = next((found[key] for key in keys if found.get(key)), "")
    metadata = found.get("metadata")
    raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    text = message if isinstance(message, str) else json.dumps(message)
    return f"{text}: {raw}" if raw else text  # OpenRouter puts the vendor's words into "raw"


def _delay_in(found: Mapping[str, Any]) -> float | None:
    told = json.dumps(found.get("details")) + str(found.get("message"))
    asked = re.search(r'"retryDelay": "([\d.]+)s"|(?:retry|try again) in ([\d.]+) ?s', told)
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
    except (ValueError, TypeError, OverflowError):  # whatever a server may write there
        return None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e9 else None


_TRUE_ANSWERS = ("httpx", "httpx2", "openai", "aiohttp", "litellm.llms.custom_httpx")
"""Packages whose exceptions hold the vendor's own answer; litellm's own classes hold a made-up one."""


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_CASSETTE_MISS = _words("CannotOverwriteExistingCassetteException CassetteMiss")

_FETCHING = _words("ImageFetchError SSRFError")

_LATE = _words("TimeoutException APITimeoutError TimeoutError ServerTimeoutError")

_CUT = _words(
    "RemoteProtocolError ClientPayloadError ServerDisconnectedError IncompleteRead",
    "IncompleteReadError EndOfStream",
)

_UNREACHED = _words(
    "TransportError ClientConnectionError ConnectionError gaierror SSLError",
    "BrokenResourceError ClosedResourceError",
)

_UNREADABLE = _words(
    "JSONDecodeError DecodingError UnicodeDecodeError ContentTypeError HttpProcessingError",
    "APIResponseValidationError TooManyRedirects ParseError",
)

_DEFECTS = _words(
    "ImportError AttributeError ValidationError NameError TypeError LookupError",
    "AssertionError NotImplementedError RecursionError MemoryError",
)

_TRANSPORT: tuple[tuple[frozenset[str], type[ProviderError], str], ...] = (
    (_LATE, ProviderTimeout, "did not answer in time"),
    (_CUT, IncompleteResponse, "closed the connection before the reply was complete"),
    (_UNREACHED, ConnectionFailed, "could not be reached"),
    (_UNREADABLE, UnreadableResponse, "sent something that is not a reply"),
)

_NEXT: Mapping[type[ProviderError], str] = {
    ProviderTimeout: "The same request may pass later; raise timeout= if it may take longer.",
    IncompleteResponse: "What came is not a shorter answer but a part of one; the run may ask again.",
    ConnectionFailed: "Check the address and the network; the same request may pass later.",
    UnreadableResponse: "Check that the URL is that of the API; the same request may pass later.",
}

_MISSING_KEY = re.compile(
    r"missing credentials|missing .{0,30}(api.?key|credentials)|api_key client option must be set"
    r"|api.?key (is )?(required|missing|not (set|found|provided))|no api.?key|unable to locate credentials"
    r"|credentials were not found|please set .{0,40}(api.?key|environment variable)",
    re.IGNORECASE,
)

_NO_PROVIDER = re.compile(r"LLM Provider NOT provided|Unmapped LLM provider|isn't mapped yet", re.IGNORECASE)

_EMPTY = re.compile(
    r"empty or invalid response|invalid response object|error parsing chunk|unexpected response from azure",
    re.IGNORECASE,
)

_BAD_HEADER = re.compile(r"^Illegal header (name|value) |detected in headers\b|^'ascii' codec can't encode ")
"""How h11, aiohttp and httpx say that they do not send a header."""

_NO_HTTP_AT_ALL = "HttpProcessingError"
"""What aiohttp's parser raises; those of its errors that a server may cause are made of it."""

_NO_HTTP = re.compile("illegal|malformed|buffer too long|too many bytes", re.IGNORECASE)
"""How h11 says that it cannot read the head of an answer."""

_ENDED = re.compile(r"stream ended|without a finish|incomplete (chunked )?(read|message)", re.IGNORECASE)

_BY_NAME: Mapping[str, tuple[type[ProviderError], int | None]] = {
    # litellm
    "ContextWindowExceededError": (ContextTooLong, 400),
    "ContentPolicyViolationError": (ContentRefused, 400),
    "RejectedRequestError": (ContentRefused, 400),
    "GuardrailRaisedException": (ContentRefused, 400),
    "BlockedPiiEntityError": (ContentRefused, 400),
    "ModifyResponseException": (ContentRefused, 400),
    "SensitiveDataRouteException": (ContentRefused, 400),
    "BudgetExceededError": (QuotaExhausted, 429),
    "ModelNotMappedError": (ModelNotFound, None),
    "LiteLLMUnknownProvider": (ModelNotFound, None),
    "JSONSchemaValidationError": (UnreadableResponse, None),
    "ServiceUnavailableError": (ServerFailed, 503),
    "BadGatewayError": (ServerFailed, 502),
    "Timeout": (ProviderTimeout, 408),
    # openai, from which most of litellm's own descend
    "AuthenticationError": (AuthenticationFailed, 401),
    "OAuthError": (AuthenticationFailed, 401),
    "SubjectTokenProviderError": (AuthenticationFailed, None),
    "PermissionDeniedError": (AuthenticationFailed, 403),
    "NotFoundError": (ModelNotFound, 404),
    "RateLimitError": (RateLimited, 429),
    "ConflictError": (InvalidRequest, 409),
    "BadRequestError": (InvalidRequest, 400),
    "UnprocessableEntityError": (InvalidRequest, 422),
    "APITimeoutError": (ProviderTimeout, None),
    "APIConnectionError": (ConnectionFailed, None),
    "APIResponseValidationError": (UnreadableResponse, None),
    "InternalServerError": (ServerFailed, 500),
    "LengthFinishReasonError": (IncompleteResponse, None),
    "ContentFilterFinishReasonError": (ContentRefused, None),
    "APIError": (ServerFailed, None),
    "OpenAIError": (ProviderDefect, None),
    # httpx and httpx2
    "InvalidURL": (InvalidRequest, None),
    "UnsupportedProtocol": (InvalidRequest, None),
    "HTTPError": (ConnectionFailed, None),
    "StreamError": (IncompleteResponse, None),
}


def to_provider_error(
    error: BaseException,
    *,
    provider: str,
    model: str,
    answer: Answer | None = None,
    until: BaseException | None = None,
    began: bool | None = None,
    url: str = "",
) -> ProviderError:
    """Return the routelock error that a vendor library's exception means, with the cause to chain.

    Args:
        error: what was caught, from litellm, openai, httpx, httpx2, aiohttp or anyio.
        provider: the vendor's short name, such as ``"anthropic"``.
        model: the model that was asked.
        answer: the HTTP answer, where the caller saw it; otherwise it is looked for in the chain.
        until: an exception that was being handled before the call began: the chain of causes ends
            there, so that a retry is not judged by what the attempt before it met.
        began: whether the answer's headers had come; None where the caller cannot tell. A connection that
            breaks before is a failed connection, whatever the library calls it, and later a cut reply.
        url: where, if the app has chosen the server.

    Returns:
        An error with ``status``, ``retryable`` and ``retry_after`` set. Raise it from its `cause_of`.
    """
    chain = list(_chain(error, until))
    case = _Case(chain, provider, model, began, url)
    for link in chain:
        if offline := _offline(case, link):
            return offline
        if isinstance(link, ProviderError):
            return link
    if unfetched := _unfetched(case):
        return unfetched
    answer = answer or next((found for link in chain if (found := _answer_of(link))), None)
    if answer is not None and answer.is_error:
        return error_from_answer(answer, provider=provider, model=model, url=url)
    return _missing(case) or _unsent(case) or _transport(case) or _defect(case) or _by_name(case)


@dataclass(frozen=True, slots=True)
class _Case:
    """A failed call: the exception with its causes, nearest first, and what was asked of whom."""

    chain: list[BaseException]
    provider: str
    model: str
    began: bool | None
    url: str

    @property
    def vendor(self) -> str:
        return who(self.provider, self.url) if self.provider else "the provider"

    def fail(self, kind: type[ProviderError], text: str, retryable: bool | None = None) -> ProviderError:
        return kind(text, provider=self.provider, model=self.model, retryable=retryable)


def _chain(error: BaseException, until: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, the nearest first, each once."""
    seen, waiting = {id(until)}, [error]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        original = getattr(link, "original_exception", None)  # litellm's MidStreamFallbackError
        causes = (original, link.__cause__, link.__context__)
        waiting += [cause for cause in causes if isinstance(cause, BaseException)]


def _offline(case: _Case, link: BaseException) -> ProviderError | None:
    """Recognise a test that is not to reach the network: it must fail at once, not be tried again."""
    names = _names(link)
    if _CASSETTE_MISS.intersection(names):
        return case.fail(CassetteMiss, scrubbed(str(link), "..."))  # with its lines, which show a difference
    if "NetworkBlocked" in names:
        return case.fail(ConnectionFailed, str(link), retryable=False)
    return None


def _unfetched(case: _Case) -> ProviderError | None:
    """Recognise that litellm could not fetch what the conversation names, which it does for some vendors."""
    causes = [link for link in case.chain if not _FETCHING.isdisjoint(_names(link))]
    if not causes:
        return None
    why = shortened(str(causes[-1]).removeprefix("litellm.BadRequestError: ")).rstrip(".")
    return case.fail(
        InvalidRequest,
        f"{case.model!r} was not asked: an image or a file in the conversation could not be fetched, which "
        f"litellm does for {case.provider or 'this vendor'}: {why}. Check its address, or send the bytes as "
        "a data: URL.",
    )


def _missing(case: _Case) -> ProviderError | None:
    """Recognise what the library found missing before it asked anyone."""
    for link in case.chain:
        text = str(link)
        if _NO_PROVIDER.search(text):
            return case.fail(
                ModelNotFound,
                f"No provider is known for model {case.model!r}. Write it as 'provider/model', such as "
                "'openai/gpt-4o-mini', 'anthropic/claude-haiku-4-5' or 'ollama_chat/llama3'.",
            )
        if isinstance(link, ImportError):
            package = f"the package {link.name!r}" if link.name else "a package that is not there"
            return case.fail(
                ProviderDefect,
                f"Asking {case.vendor} for {case.model!r} needs {package}: {shortened(text.rstrip('.'))}. "
                "Install it, or a version of the library that works without it.",
            )
        if _MISSING_KEY.search(text):
            return _without_key(case, text)
    return None


def _without_key(case: _Case, text: str) -> ProviderError:
    hint = key_hint(case.provider, f"such as LiteLLM({case.model!r}, api_key=...)")
    # other vendors have other ways beside a key, of which the library tells
    more = "" if has_one_key(case.provider) else f" ({shortened(text, 200)})"
    text = f"There is no key for {case.vendor}, so {case.model!r} was not asked. {hint}{more}"
    return case.fail(AuthenticationFailed, text)


def cause_of(meant: ProviderError, error: BaseException) -> BaseException | None:
    """Return what to raise an error from: from nothing, where a key is missing and it says all there is."""
    return None if isinstance(meant, AuthenticationFailed) and meant.status is None else error


def _unsent(case: _Case) -> ProviderError | None:
    """Recognise a header that cannot be sent. What it holds is not told: it may be the key."""
    unsendable = [link for link in case.chain if _BAD_HEADER.search(str(link))]
    for link in unsendable:
        link.args = ("a header cannot be sent",)  # h11 tells the header, and a traceback the whole chain
    if unsendable:
        return case.fail(
            InvalidRequest,
            f"{case.model!r} was not asked: a header for {case.vendor} holds a character that may not be "
            "there. Look at the key, which may end with a newline when it is read from a file, and at "
            "extra_headers.",
        )
    return None


def _transport(case: _Case) -> ProviderError | None:
    for names, kind, what in _TRANSPORT:
        for link in case.chain:
            made_up = type(link).__module__.startswith("litellm.exceptions")
            if names.intersection(_names(link)) and not made_up:
                kind, what = _in_its_phase(case, kind, what, link)
                vendor = who(case.provider, case.url)
                told = f"{vendor} {what} (model {case.model!r}): {_told(link).rstrip('.: ')}"
                return case.fail(kind, f"{told}. {_NEXT[kind]}")
    return None


def _in_its_phase(
    case: _Case, kind: type[ProviderError], what: str, link: BaseException
) -> tuple[type[ProviderError], str]:
    """Return what a broken connection means before an answer has begun, or after."""
    if case.began and (kind is ConnectionFailed or _NO_HTTP_AT_ALL in _names(link)):
        return IncompleteResponse, "broke the connection before the reply was complete"
    if kind is IncompleteResponse and case.began is False:
        if _NO_HTTP.search(str(link)) or any(_NO_HTTP_AT_ALL in _names(each) for each in case.chain):
            return UnreadableResponse, "sent something that is not HTTP"
        return ConnectionFailed, "closed the connection without an answer"
    return kind, what


def _defect(case: _Case) -> ProviderError | None:
    for link in case.chain:
        if _DEFECTS.intersection(_names(link)):
            return case.fail(
                ProviderDefect,
                f"The library that speaks to {case.vendor} failed by itself on {case.model!r}: {_told(link)}"
                ". The same request will fail again; another version of the library may not.",
            )
    return None


def _by_name(case: _Case) -> ProviderError:
    """Fall back on the classes' names and words: no trace of an answer was found."""
    text = _told(case.chain[0])
    if _ENDED.search(text):
        next_step = _NEXT[IncompleteResponse]
        return case.fail(IncompleteResponse, f"The reply of {case.model!r} was cut off: {text}. {next_step}")
    if _EMPTY.search(text):
        return case.fail(UnreadableResponse, f"{case.vendor} sent no reply for {case.model!r}: {text}")
    known = (found for link in reversed(case.chain) if (found := _known(link)))
    kind, status = next(known, (ProviderDefect, None))
    local = [link for link in case.chain if type(link).__module__ == "builtins"]
    if local and (kind.retryable or kind is ProviderDefect):
        # nobody was asked: the library refused the request itself and called that a server error
        kind = InvalidRequest if isinstance(local[-1], ValueError) else ProviderDefect
        return case.fail(kind, f"Calling {case.model!r} failed: {_told(local[-1])}")
    headers: object = getattr(case.chain[0], "litellm_response_headers", None)
    return _worded(case, kind, Answer(status, _as_headers(headers), text))


def _known(link: BaseException) -> tuple[type[ProviderError], int | None] | None:
    for name in _names(link):
        if name in _BY_NAME:
            kind, status = _BY_NAME[name]
            claimed = getattr(link, "status_code", None)
            return kind, claimed if isinstance(claimed, int) and claimed >= 400 and status else status
    return None


def _worded(case: _Case, kind: type[ProviderError], answer: Answer) -> ProviderError:
    """Return the error of a class, or the more exact one that its words and status tell."""
    if answer.status is not None:
        exact = error_from_answer(answer, provider=case.provider, model=case.model, url=case.url)
        if issubclass(type(exact), kind) or not issubclass(kind, type(exact)):
            return exact
    error = case.fail(kind, f"Calling {case.model!r} failed: {answer.body}")
    error.status = answer.status
    return error


def _answer_of(link: BaseException) -> Answer | None:
    """Return the HTTP answer that an exception holds, unless litellm made it up."""
    if not type(link).__module__.startswith(_TRUE_ANSWERS):
        return None
    if link.__cause__ is not None and _NO_HTTP_AT_ALL in _names(link.__cause__):
        return None  # aiohttp makes up a status for what it cannot read
    response = getattr(link, "response", None)
    status = getattr(response, "status_code", None) or getattr(link, "status", None)
    headers = _as_headers(getattr(response, "headers", None) or getattr(link, "headers", None))
    # an error event in a stream: openai raises an APIError that has a body and no response
    answer = Answer(status if isinstance(status, int) else None, headers, _body_of(link, response))
    return answer if answer.is_error else None


def _as_headers(headers: object) -> Mapping[str, str]:
    if headers is None or not hasattr(headers, "items"):
        return {}
    return {str(key).lower(): str(value) for key, value in cast("Mapping[Any, Any]", headers).items()}


def _body_of(link: BaseException, response: object) -> str:
    for source, name in ((link, "text"), (response, "text"), (link, "body")):
        try:
            value: object = getattr(source, name, None)
        except Exception:  # a streamed body that was not read has no text
            continue
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, str) and value:
            return value
        if isinstance(value, Mapping) and value:
            return json.dumps({"error": value}, default=str)
    return ""


def _names(link: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(link).__mro__]


def _told(link: BaseException) -> str:
    return shortened(f"{type(link).__name__}: {link}")
