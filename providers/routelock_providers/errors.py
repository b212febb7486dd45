"""The one place where exceptions of vendors' libraries become routelock's errors; answers: `http_errors.py`.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

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
from routelock_providers.http_errors import Answer, error_from_answer, key_hint, shortened, who
from routelock_providers.vendors import has_one_key

__all__ = ["cause_of", "to_provider_error"]


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
