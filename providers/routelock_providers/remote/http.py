"""Carrying one request to a remote agent: who may get it, and how much may come back.

The openai library does the HTTP, over aiohttp where that can, with redirects and cookies switched off: each
hop is looked at here, before anything is sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import uuid4

from anyio.lowlevel import RunVar

from routelock.errors import (
    AuthenticationFailed,
    ConfigError,
    InvalidRequest,
    ProviderError,
    UnreadableResponse,
)
from routelock_providers.chat_completions.chat import Incoming, Response
from routelock_providers.chat_completions.httpx_client import encoded, httpx_client
from routelock_providers.http.body import beginning, is_packed, parsed
from routelock_providers.http_errors import Answer, error_from_answer, key_hint, shortened
from routelock_providers.remote.urls import AgentUrl, UrlNotAllowed, redirect_target

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["Courier", "Trip"]


_REDIRECTS = (301, 302, 303, 307, 308)

_SAME_REQUEST = (307, 308)
"""Redirects that keep method and body (RFC 9110, section 15.4); the others make a GET of a POST."""

_LOOP_DETECTED = 508  # RFC 5842; routelock's own server says so when too many servers were passed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """Where one request goes, and what goes with it."""

    url: AgentUrl
    may_go_to: Callable[[AgentUrl], bool]
    """Whether a redirect may lead there."""
    headers: Mapping[str, str]
    """For every server on the way; all names are in lower case."""
    secrets: Mapping[str, str] = field(repr=False)
    """Headers for the servers of ``trusted`` alone."""
    trusted: str
    """The origin that the secrets belong to."""


class Courier:
    """Posts requests, with connections that belong to the event loop they were made on.

    Args:
        model: whom errors name.
        timeout: seconds for one request.
        max_redirects: how many redirects are followed.
    """

    def __init__(self, *, model: str, timeout: float | None, max_redirects: int) -> None:
        self._model = model
        self._timeout = timeout
        self._max_redirects = max_redirects
        # anyio before 4.10 tells run variables apart by their names alone
        self._clients: RunVar[AsyncOpenAI | None] = RunVar(f"routelock {uuid4().hex}", None)

    async def post(self, body: Mapping[str, Any], trip: Trip) -> Incoming:
        """Send the body and return the answer as soon as its headers are there.

        Raises:
            ProviderError: the server refused, or redirects elsewhere than it may.
        """
        url, headers = trip.url, {**_OURS, **trip.headers}
        trusted = url.origin == trip.trusted
        for _ in range(self._max_redirects + 1):
            try:
                return await self._post(body, url, {**headers, **trip.secrets} if trusted else headers)
            except _Moved as moved:
                url = self._next(url, moved, trip)
                trusted &= url.origin == trip.trusted  # who led away must not choose where the key goes
        raise UnreadableResponse(
            f"{trip.url.authority} redirected more than {self._max_redirects} times, last to {url.origin}.",
            provider=trip.url.authority,
            model=self._model,
            retryable=False,
        )

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.get()
        self._clients.set(None)
        if client is not None:
            await client.close()

    async def _post(self, body: Mapping[str, Any], url: AgentUrl, headers: Mapping[str, str]) -> Incoming:
        from openai import AsyncStream, omit  # noqa: PLC0415 - openai costs 0.7 s to import

        client, content = self._the_client(), encoded(body)
        # what the library says of itself and of the machine, and what the environment tells OpenAI alone
        hushed: dict[str, Any] = dict.fromkeys((*client.default_headers, *_MORE), omit)
        try:
            return await client.post(
                str(url),
                cast_to=object,
                body=body if content is None else None,
                content=content,
                options={"headers": hushed | {**headers}, "timeout": self._timeout, "max_retries": 0},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except Exception as error:
            if isinstance(error.__cause__, _Moved | ProviderError):
                raise error.__cause__ from None  # it comes from _look_at
            raise

    def _next(self, url: AgentUrl, moved: _Moved, trip: Trip) -> AgentUrl:
        """Return where to go instead, if one may."""
        try:
            target = redirect_target(url, moved.location)
        except ConfigError as error:
            raise self._refused(UrlNotAllowed, url, moved, str(error)) from error
        if moved.status not in _SAME_REQUEST:
            why = "A request with a body cannot follow that: use the new URL instead."
            raise self._refused(InvalidRequest, url, moved, why)
        if not trip.may_go_to(target):
            raise self._refused(UrlNotAllowed, url, moved, "It is neither the same server nor in allow=.")
        return target

    def _refused(self, kind: type[ProviderError], url: AgentUrl, moved: _Moved, why: str) -> ProviderError:
        where = shortened(moved.location, 200)
        return kind(
            f"{url.authority} answered {moved.status}, a redirect to {where!r}. {why}",
            status=moved.status,
            provider=url.authority,
            model=self._model,
        )

    def _the_client(self) -> AsyncOpenAI:
        client = self._clients.get()
        if client is None:
            from openai import AsyncOpenAI  # noqa: PLC0415 - see above

            client = AsyncOpenAI(
                api_key="none", base_url="http://no.invalid", http_client=httpx_client(self._look_at)
            )
            self._clients.set(client)
        return client

    async def _look_at(self, response: _Answered) -> None:
        """Let an answer pass if it may hold a reply; the library would read all of any other."""
        status, headers = response.status_code, response.headers
        host = str(response.request.url.netloc, "ascii")
        if status in _REDIRECTS and (location := headers.get("location")):
            raise _Moved(status, location)
        if status >= 300:
            answer = Answer(status, headers, (await beginning(response)).decode("utf-8", "replace"))
            raise _refusal(answer, host, self._model, str(response.request.url))
        if is_packed(headers):
            raise UnreadableResponse(
                f"{host} sent a compressed reply for model {self._model!r}, though it was asked not to: its "
                "true size cannot be known before it is unpacked. Switch compression off for this URL.",
                status=status,
                provider=host,
                model=self._model,
                retryable=False,
            )


_OURS = {
    "accept": "application/json, text/event-stream",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "routelock",
}

_MORE = ("Authorization", "x-stainless-retry-count", "x-stainless-read-timeout")
"""Headers of the library that are not among its default ones."""


class _Url(Protocol):
    @property
    def netloc(self) -> bytes: ...


class _Asked(Protocol):
    @property
    def url(self) -> _Url: ...


class _Answered(Response, Protocol):
    @property
    def request(self) -> _Asked: ...


class _Moved(Exception):
    """The answer was a redirect."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(f"{status} to {location}")
        self.status = status
        self.location = location


def _refusal(answer: Answer, host: str, model: str, url: str) -> ProviderError:
    """Return the error that an answer means, in words that fit an agent."""
    error = error_from_answer(answer, provider=host, model=model, url=url)
    if isinstance(error, AuthenticationFailed):
        advice = "Pass RemoteAgent the api_key= or headers= that it wants; only the server of url= gets them."
        error.args = (str(error).replace(key_hint(host), advice),)
    elif answer.status == _LOOP_DETECTED:
        error = InvalidRequest(
            f"{host} refused the request (508), because it has passed too many agents: they call one another "
            f"in a circle, so one of them has to answer by itself. {_excuse(answer.body)}".rstrip(),
            status=answer.status,
            provider=host,
            model=model,
        )
    return error


def _excuse(body: str) -> str:
    """Return the message of an error body, if it has one."""
    said = parsed(body)
    error = cast("Mapping[str, Any]", said).get("error") if isinstance(said, Mapping) else None
    message = cast("Mapping[str, Any]", error).get("message") if isinstance(error, Mapping) else error
    return f"It said: {shortened(message, 200)}" if isinstance(message, str) else ""
