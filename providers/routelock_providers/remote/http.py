"""Sends a request to a remote agent, and follows only the redirects that are allowed.

The openai library does the HTTP, over aiohttp on asyncio, with redirects and cookies switched off: each
redirect is checked here before anything is sent to its address.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    InvalidRequest,
    ProviderError,
    UnreadableResponse,
)
from routelock_providers.chat_completions.chat import Incoming, Response
from routelock_providers.chat_completions.httpx_client import ClientPerLoop, encoded, httpx_client
from routelock_providers.http.body import is_packed, read_error_body
from routelock_providers.http_errors import Answer, error_from_answer, key_hint, shorten
from routelock_providers.remote.urls import AgentUrl, UrlNotAllowed, redirect_target
from routelock_providers.vendor_json import json_object

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["RemoteTarget", "RequestSender"]


_SAME_REQUEST = (307, 308)
"""Redirects that keep method and body (RFC 9110, section 15.4); the others make a GET of a POST."""

_LOOP_DETECTED = 508  # RFC 5842; routelock's own server sends it after too many servers


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """The address of one request, and its headers."""

    url: AgentUrl
    may_go_to: Callable[[AgentUrl], bool]
    """Returns whether a redirect may lead to an address."""
    headers: Mapping[str, str]
    """Headers for every server; all names are in lower case."""
    secrets: Mapping[str, str] = field(repr=False)
    """Headers for the server of ``trusted`` only."""
    trusted: str
    """The origin that gets the secrets."""


class RequestSender:
    """Posts requests over connections that belong to one event loop each.

    Args:
        model: the model, for errors.
        timeout: seconds for one request.
        max_redirects: the largest number of redirects that are followed.
    """

    def __init__(self, *, model: str, timeout: float | None, max_redirects: int) -> None:
        self._model = model
        self._timeout = timeout
        self._max_redirects = max_redirects
        self._clients = ClientPerLoop()

    async def post(self, body: Mapping[str, Any], target: RemoteTarget) -> Incoming:
        """Send the body and return the answer when its headers have arrived.

        Raises:
            ProviderError: the server refused, or its redirect is not allowed.
        """
        url, headers = target.url, {**_OUR_HEADERS, **target.headers}
        trusted = url.origin == target.trusted
        for _ in range(self._max_redirects + 1):
            try:
                return await self._post(body, url, {**headers, **target.secrets} if trusted else headers)
            except _Redirected as redirect:
                url = self._next_url(url, redirect, target)
                trusted &= url.origin == target.trusted  # another server must not decide where the key goes
        raise UnreadableResponse(
            f"{target.url.authority} redirected more than {self._max_redirects} times, last to {url.origin}.",
            provider=target.url.authority,
            model=self._model,
            retryable=False,
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    async def _post(self, body: Mapping[str, Any], url: AgentUrl, headers: Mapping[str, str]) -> Incoming:
        from openai import AsyncStream, omit  # noqa: PLC0415 - openai costs 0.7 s to import

        client, content = self._clients.get(self._new_client), encoded(body)
        # the library's headers about itself and the machine, and those for OpenAI from the environment
        omitted: dict[str, Any] = dict.fromkeys((*client.default_headers, *_LIBRARY_HEADERS), omit)
        try:
            return await client.post(
                str(url),
                cast_to=object,
                body=body if content is None else None,
                content=content,
                options={"headers": omitted | {**headers}, "timeout": self._timeout, "max_retries": 0},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except Exception as error:
            if isinstance(error.__cause__, _Redirected | ProviderError):
                raise error.__cause__ from None  # the cause is the error of _check_answer
            raise

    def _next_url(self, url: AgentUrl, redirect: _Redirected, target: RemoteTarget) -> AgentUrl:
        """Return the address of a redirect, if it is allowed."""
        try:
            new_url = redirect_target(url, redirect.location)
        except ConfigError as error:
            raise self._refused(UrlNotAllowed, url, redirect, str(error)) from error
        if redirect.status not in _SAME_REQUEST:
            why = "A request with a body cannot follow it: use the new URL instead."
            raise self._refused(InvalidRequest, url, redirect, why)
        if not target.may_go_to(new_url):
            raise self._refused(UrlNotAllowed, url, redirect, "It is neither the same server nor in allow=.")
        return new_url

    def _refused(
        self, kind: type[ProviderError], url: AgentUrl, redirect: _Redirected, why: str
    ) -> ProviderError:
        where = shorten(redirect.location, 200)
        return kind(
            f"{url.authority} answered {redirect.status}, a redirect to {where!r}. {why}",
            status=redirect.status,
            provider=url.authority,
            model=self._model,
        )

    def _new_client(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI  # noqa: PLC0415 - openai costs 0.7 s to import

        http_client = httpx_client(self._check_answer)
        return AsyncOpenAI(api_key="none", base_url="http://no.invalid", http_client=http_client)

    async def _check_answer(self, response: _RequestedResponse) -> None:
        """Raise the error of an answer that is not a reply; the library would read all of its body."""
        status, headers = response.status_code, response.headers
        host = str(response.request.url.netloc, "ascii")
        if 300 <= status < 400 and (location := headers.get("location")):
            raise _Redirected(status, location)
        if status >= 300:
            answer = Answer(status, headers, (await read_error_body(response)).decode("utf-8", "replace"))
            raise _refusal(answer, host, self._model, str(response.request.url))
        if is_packed(headers):
            raise UnreadableResponse(
                f"{host} sent a compressed reply for model {self._model!r}, though it was asked not to: its "
                "size cannot be known before it is unpacked. Switch compression off for this URL.",
                status=status,
                provider=host,
                model=self._model,
                retryable=False,
            )


_OUR_HEADERS = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "routelock",
}

_LIBRARY_HEADERS = ("Authorization", "x-stainless-retry-count", "x-stainless-read-timeout")
"""Headers of the library that are not among its default headers."""


class _Url(Protocol):
    @property
    def netloc(self) -> bytes: ...


class _SentRequest(Protocol):
    @property
    def url(self) -> _Url: ...


class _RequestedResponse(Response, Protocol):
    @property
    def request(self) -> _SentRequest: ...


class _Redirected(Exception):
    """The answer was a redirect."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"{status} to {location}")
        self.status = status
        self.location = location


def _refusal(answer: Answer, host: str, model: str, url: str) -> ProviderError:
    """Return the error for an answer, in words about an agent instead of a vendor."""
    error = error_from_answer(answer, provider=host, model=model, url=url)
    if isinstance(error, AuthenticationFailed):
        advice = "Pass RemoteAgent its api_key= or headers=; they are sent to the server of url= only."
        error.args = (str(error).replace(key_hint(host), advice),)
    elif answer.status == _LOOP_DETECTED:
        error = InvalidRequest(
            f"{host} refused the request (508), because it has passed too many agents: they call each other "
            f"in a loop, so one has to answer without the others. {_message_in(answer.body)}".rstrip(),
            status=answer.status,
            provider=host,
            model=model,
        )
    return error


def _message_in(body: str) -> str:
    """Return the message of an error body, if it has one."""
    error: object = json_object(body).get("error")
    message = cast("Mapping[str, Any]", error).get("message") if isinstance(error, Mapping) else error
    return f"Its message: {shorten(message, 200)}" if isinstance(message, str) else ""
