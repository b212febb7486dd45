"""Turns the exceptions of vendors' libraries into the errors of routelock.

For HTTP answers see `http_errors.py`.

The classes of these exceptions are not reliable: litellm reports a refused connection, a missing key, a bug
of its own and a cassette miss alike as a retryable error 500. So the chain of causes is searched, and the
first match decides:

1. an error of routelock, a cassette miss, or an image that litellm could not fetch;
2. an HTTP answer, held by an exception of httpx, httpx2, openai or aiohttp;
3. something that the library missed before it sent the request: a key, a model, a package;
4. a timeout, a broken connection, an unreadable body;
5. a bug inside the library;
6. the name of the class, and its message.

Neither litellm nor openai is imported here: classes are recognised by the names of their base classes.
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
from routelock_providers.http_errors import Answer, error_from_answer, key_hint, shorten, vendor_label
from routelock_providers.model_names import unknown_provider_error
from routelock_providers.vendors import has_one_key

__all__ = ["cause_of", "to_provider_error"]


_TRUE_ANSWERS = ("httpx", "httpx2", "openai", "aiohttp", "litellm.llms.custom_httpx")
"""Packages whose exceptions hold the answer of the vendor; litellm's own classes hold an invented one."""


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_CASSETTE_MISS = _words("CannotOverwriteExistingCassetteException CassetteMiss", "AllMockedAssertionError")


_FETCH_ERRORS = _words("ImageFetchError SSRFError")


_TIMEOUTS = _words("TimeoutException APITimeoutError TimeoutError ServerTimeoutError")


_CUT_REPLIES = _words(
    "RemoteProtocolError ClientPayloadError ServerDisconnectedError IncompleteRead",
    "IncompleteReadError EndOfStream",
)


_NO_CONNECTION = _words(
    "TransportError ClientConnectionError ConnectionError gaierror SSLError",
    "BrokenResourceError ClosedResourceError",
)


_UNREADABLE_BODIES = _words(
    "JSONDecodeError DecodingError UnicodeDecodeError ContentTypeError HttpProcessingError",
    "APIResponseValidationError TooManyRedirects ParseError",
)


_DEFECTS = _words(
    "ImportError AttributeError ValidationError NameError TypeError LookupError",
    "AssertionError NotImplementedError RecursionError MemoryError",
)


_TRANSPORT: tuple[tuple[frozenset[str], type[ProviderError], str], ...] = (
    (_TIMEOUTS, ProviderTimeout, "did not answer in time"),
    (_CUT_REPLIES, IncompleteResponse, "closed the connection before the reply was complete"),
    (_NO_CONNECTION, ConnectionFailed, "could not be reached"),
    (_UNREADABLE_BODIES, UnreadableResponse, "sent something that is not a reply"),
)


_ADVICE: Mapping[type[ProviderError], str] = {
    ProviderTimeout: "The same request may pass later; raise timeout= if it may take longer.",
    IncompleteResponse: "What arrived is only a part of the reply; the run may ask again.",
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
    r"empty or invalid response|invalid response object|error parsing chunk"
    r"|unexpected (string )?response from azure",
    re.IGNORECASE,
)


_BAD_HEADER = re.compile(r"^Illegal header (name|value) |detected in headers\b|^'ascii' codec can't encode ")
"""The messages of h11, aiohttp and httpx about a header that they refuse to send."""


_NOT_HTTP = "HttpProcessingError"
"""The exception of aiohttp's parser, the base class of its errors about answers."""


_NO_HEAD = re.compile("illegal|malformed|buffer too long|too many bytes", re.IGNORECASE)
"""The messages of h11 about a head that it cannot read."""


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
    """Return the error of routelock for an exception of a vendor's library.

    Args:
        error: an exception of litellm, openai, httpx, httpx2, aiohttp or anyio.
        provider: the vendor's short name, such as ``"anthropic"``.
        model: the model that was asked.
        answer: the HTTP answer, if the caller saw it; otherwise it is searched in the chain of causes.
        until: an exception that was being handled before the call began: the chain ends there, so that the
            error of an earlier attempt does not decide.
        began: whether the headers of the answer had arrived; None if unknown. A connection that breaks before
            the headers is a `ConnectionFailed`, and one that breaks after them an `IncompleteResponse`.
        url: the address, if the app chose the server.

    Returns:
        An error with ``status``, ``retryable`` and ``retry_after`` set. Raise it from its `cause_of`.
    """
    chain = list(_chain(error, until))
    case = _Case(chain, provider, model, began, url)
    for link in chain:
        if offline := _blocked_network(case, link):
            return offline
        if isinstance(link, ProviderError):
            return link
    if unfetched := _unfetched_media(case):
        return unfetched
    answer = answer or next((found for link in chain if (found := _answer_of(link))), None)
    if answer is not None and answer.is_error:
        return error_from_answer(answer, provider=provider, model=model, url=url)
    return (
        _missing_requirement(case)
        or _unsendable_header(case)
        or _transport(case)
        or _defect(case)
        or _by_name(case)
    )


@dataclass(frozen=True, slots=True)
class _Case:
    """A failed call: the exception with its causes, nearest first, and the vendor and model."""

    chain: list[BaseException]
    provider: str
    model: str
    began: bool | None
    url: str

    @property
    def vendor(self) -> str:
        return vendor_label(self.provider, self.url) if self.provider else "the provider"

    def fail(self, kind: type[ProviderError], text: str, retryable: bool | None = None) -> ProviderError:
        return kind(text, provider=self.provider, model=self.model, retryable=retryable)


def _chain(error: BaseException, until: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes, the nearest first, each of them once."""
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


def _blocked_network(case: _Case, link: BaseException) -> ProviderError | None:
    """Recognise a test that must not reach the network: it fails at once and is not retried."""
    names = _names(link)
    if _CASSETTE_MISS.intersection(names):
        # with the line breaks, because the text shows a difference
        return case.fail(CassetteMiss, scrubbed(str(link), "..."))
    if "NetworkBlocked" in names:
        return case.fail(ConnectionFailed, str(link), retryable=False)
    return None


def _unfetched_media(case: _Case) -> ProviderError | None:
    """Recognise an image or file of the conversation that litellm could not fetch."""
    causes = [link for link in case.chain if not _FETCH_ERRORS.isdisjoint(_names(link))]
    if not causes:
        return None
    why = shorten(str(causes[-1]).removeprefix("litellm.BadRequestError: ")).rstrip(".")
    return case.fail(
        InvalidRequest,
        f"{case.model!r} was not asked: an image or a file in the conversation could not be fetched, which "
        f"litellm does for {case.provider or 'this vendor'}: {why}. Check its address, or send the bytes as "
        "a data: URL.",
    )


def _missing_requirement(case: _Case) -> ProviderError | None:
    """Recognise a model, package or key that the library missed before it sent the request."""
    for link in case.chain:
        text = str(link)
        if _NO_PROVIDER.search(text):
            return unknown_provider_error(case.model, case.provider)
        if isinstance(link, ImportError):
            package = f"the package {link.name!r}" if link.name else "a package that is not there"
            return case.fail(
                ProviderDefect,
                f"Asking {case.vendor} for {case.model!r} needs {package}: {shorten(text.rstrip('.'))}. "
                "Install it, or a version of the library that works without it.",
            )
        if _MISSING_KEY.search(text):
            first = next(each for each in reversed(case.chain) if _MISSING_KEY.search(str(each)))
            return _without_key(case, str(first))  # litellm's own exception repeats it with more around it
    return None


def _without_key(case: _Case, text: str) -> ProviderError:
    hint = key_hint(case.provider, f"such as LiteLLM({case.model!r}, api_key=...)")
    # other vendors have more credentials than a key, and the library names them
    more = "" if has_one_key(case.provider) else f" ({shorten(text, 200)})"
    if case.provider == "vertex_ai" and "/" not in case.model:  # litellm's choice for a bare name of Gemini
        hint = f"{hint} With a GEMINI_API_KEY, write 'gemini/{case.model}'."
    text = f"There is no key for {case.vendor}, so {case.model!r} was not asked. {hint}{more}"
    return case.fail(AuthenticationFailed, text)


def cause_of(provider_error: ProviderError, error: BaseException) -> BaseException | None:
    """Return the exception that a provider error is raised from.

    It is None for a missing key, where the error says everything.
    """
    return (
        None if isinstance(provider_error, AuthenticationFailed) and provider_error.status is None else error
    )


def _unsendable_header(case: _Case) -> ProviderError | None:
    """Recognise a header that cannot be sent. Its value is not shown, because it may be the key."""
    unsendable = [link for link in case.chain if _BAD_HEADER.search(str(link))]
    for link in unsendable:
        link.args = ("a header cannot be sent",)  # h11 shows the header, and tracebacks show the chain
    if unsendable:
        return case.fail(
            InvalidRequest,
            f"{case.model!r} was not asked: a header for {case.vendor} holds a character that headers cannot "
            "hold. Check the key, which may end with a newline if it was read from a file, and "
            "extra_headers.",
        )
    return None


def _transport(case: _Case) -> ProviderError | None:
    for names, kind, what in _TRANSPORT:
        for link in case.chain:
            invented = type(link).__module__.startswith("litellm.exceptions")
            if names.intersection(_names(link)) and not invented:
                kind, what = _in_its_phase(case, kind, what, link)
                vendor = vendor_label(case.provider, case.url)
                text = f"{vendor} {what} (model {case.model!r}): {_error_text(link).rstrip('.: ')}"
                return case.fail(kind, f"{text}. {_ADVICE[kind]}")
    return None


def _in_its_phase(
    case: _Case, kind: type[ProviderError], what: str, link: BaseException
) -> tuple[type[ProviderError], str]:
    """Return the error of a broken connection, which depends on whether the answer had begun."""
    if case.began and (kind is ConnectionFailed or _NOT_HTTP in _names(link)):
        return IncompleteResponse, "broke the connection before the reply was complete"
    if kind is IncompleteResponse and case.began is False:
        if _NO_HEAD.search(str(link)) or any(_NOT_HTTP in _names(each) for each in case.chain):
            return UnreadableResponse, "sent something that is not HTTP"
        return ConnectionFailed, "closed the connection without an answer"
    return kind, what


def _defect(case: _Case) -> ProviderError | None:
    for link in case.chain:
        if _DEFECTS.intersection(_names(link)):
            return case.fail(
                ProviderDefect,
                f"The library that calls {case.vendor} failed on {case.model!r} with an error of its own: "
                f"{_error_text(link)}. The same request will fail again; use another version of the library.",
            )
    return None


def _by_name(case: _Case) -> ProviderError:
    """Decide by the names and messages of the exceptions: no answer was found in them."""
    text = _error_text(case.chain[0])
    if _ENDED.search(text):
        next_step = _ADVICE[IncompleteResponse]
        return case.fail(IncompleteResponse, f"The reply of {case.model!r} was cut off: {text}. {next_step}")
    if _EMPTY.search(text):
        return case.fail(UnreadableResponse, f"{case.vendor} sent no reply for {case.model!r}: {text}")
    known = (found for link in reversed(case.chain) if (found := _known(link)))
    kind, status = next(known, (ProviderDefect, None))
    local = [link for link in case.chain if type(link).__module__ == "builtins"]
    if local and (kind.retryable or kind is ProviderDefect):
        # the library refused the request itself and called that a server error
        kind = InvalidRequest if isinstance(local[-1], ValueError) else ProviderDefect
        return case.fail(kind, f"Calling {case.model!r} failed: {_error_text(local[-1])}")
    headers: object = getattr(case.chain[0], "litellm_response_headers", None)
    return _more_exact(case, kind, Answer(status, _as_headers(headers), text))


def _known(link: BaseException) -> tuple[type[ProviderError], int | None] | None:
    for name in _names(link):
        if name in _BY_NAME:
            kind, status = _BY_NAME[name]
            claimed = getattr(link, "status_code", None)
            return kind, claimed if isinstance(claimed, int) and claimed >= 400 and status else status
    return None


def _more_exact(case: _Case, kind: type[ProviderError], answer: Answer) -> ProviderError:
    """Return an error of class ``kind``, or of a more exact class if the answer shows which one."""
    if answer.status is not None:
        exact = error_from_answer(answer, provider=case.provider, model=case.model, url=case.url)
        if issubclass(type(exact), kind) or not issubclass(kind, type(exact)):
            return exact
    error = case.fail(kind, f"Calling {case.model!r} failed: {answer.body}")
    error.status = answer.status
    return error


def _answer_of(link: BaseException) -> Answer | None:
    """Return the HTTP answer that an exception holds, unless litellm invented it."""
    if not type(link).__module__.startswith(_TRUE_ANSWERS):
        return None
    if link.__cause__ is not None and _NOT_HTTP in _names(link.__cause__):
        return None  # aiohttp invents a status for an answer that it cannot read
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


def _error_text(link: BaseException) -> str:
    return shorten(f"{type(link).__name__}: {link}")
