"""One request on its way in: who asks, and what they are told when they get no answer."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import anyio

from routelock.errors import RoutelockError
from routelock.serving.config import ServedRequest
from routelock.serving.guards import Guards, Principal
from routelock.serving.refusals import Refusal
from routelock.serving.wire import (
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientGone,
    headers_of,
    read_body,
    send_json,
)

__all__ = ["Endpoint", "Handle", "Incoming", "ServedRoute", "closing", "log_refusal"]

_LONGEST_TRACEPARENT = 256
_SECRETS = ("authorization", "cookie", "proxy-authorization")

_logger = logging.getLogger("routelock.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """A request that may be answered."""

    scope: AsgiScope
    receive: AsgiReceive
    send: AsgiSend
    request_id: str
    headers: Mapping[str, str]
    principal: Principal

    @property
    def own_headers(self) -> dict[str, str]:
        """What every response to it carries."""
        return {"x-request-id": self.request_id}

    def about(
        self, model: str, *, user: str | None = None, handoff_context: Mapping[str, Any] | None = None
    ) -> ServedRequest:
        """Return what the app's own code is told of it."""
        context = dict(handoff_context or {})
        if trace := self.headers.get("traceparent", "")[:_LONGEST_TRACEPARENT]:
            context["traceparent"] = trace
        return ServedRequest(
            request_id=self.request_id,
            model=model,
            principal=self.principal.name,
            scopes=self.principal.scopes,
            user=user,
            headers={name: value for name, value in self.headers.items() if name not in _SECRETS},
            handoff_context=context,
        )

    async def reply(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        """Answer.

        Args:
            body: what is sent as JSON.
            headers: more headers than every response carries.
        """
        await send_json(self.send, 200, body, {**self.own_headers, **(headers or {})})

    async def read(self, limit: int, seconds: float) -> bytes:
        """Return the body.

        Raises:
            Refusal: 413 when it is longer than the limit, 408 when it takes longer than that.
            ClientGone: it broke off.
        """
        with anyio.move_on_after(seconds):
            return await read_body(self.receive, limit, self.headers.get("content-length"))
        raise Refusal(
            408, "The body did not arrive in time.", "body_timeout", headers={"connection": "close"}
        )


Handle = Callable[[Incoming], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """A route of an app."""

    path: str
    handle: Handle
    method: str
    open: bool = False
    """Whether a request needs no key."""
    refused: Callable[[Refusal, str], Mapping[str, Any]] = Refusal.body
    """Makes the body of a refusal, of it and of the request's id, as this route's clients read it."""


class Endpoint:
    """Answers the requests that may be made. A class, so that Starlette takes it for an app.

    Args:
        guards: who may ask.
        route: what answers, and in which form it refuses.
    """

    def __init__(self, guards: Guards, route: ServedRoute) -> None:
        self._guards = guards
        self._route = route

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request, as an ASGI app does."""
        request_id, headers = f"req_{uuid.uuid4().hex}", headers_of(scope)
        started = False

        async def tracked(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        def incoming() -> Incoming:
            self._guards.check_host(headers.get("host", ""))
            return Incoming(
                scope=scope,
                receive=receive,
                send=tracked,
                request_id=request_id,
                headers=headers,
                principal=self._principal(headers),
            )

        try:
            await self._route.handle(incoming())
        except ClientGone:
            _logger.info("%s: the client has left", request_id)
        except (asyncio.CancelledError, Exception) as error:
            if not started:
                await self._refuse(_refusal_of(error), request_id, send)
            elif not isinstance(error, asyncio.CancelledError):
                raise
            # servers on asyncio cancel what still runs when they end; to pass it on would only be logged

    async def _refuse(self, refusal: Refusal, request_id: str, send: AsgiSend) -> None:
        log_refusal(request_id, refusal)
        shown = {"x-request-id": request_id, **refusal.headers}
        await send_json(send, refusal.status, self._route.refused(refusal, request_id), shown)

    def _principal(self, headers: Mapping[str, str]) -> Principal:
        if self._route.open:
            return self._guards.anonymous
        return self._guards.authenticate(headers.get("authorization", ""))


def _refusal_of(error: BaseException) -> Refusal:
    """Return what a client is told about an error that no answer was made of."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, asyncio.CancelledError):
        return closing()
    refusal = Refusal(500, "The server failed.", "internal_error")
    refusal.__cause__ = error
    return refusal


def closing() -> Refusal:
    """Return what clients are told whose runs the end of the server cancels."""
    return Refusal(503, "The server is shutting down.", "shutting_down", headers={"x-should-retry": "false"})


def log_refusal(request_id: str, refusal: Refusal) -> None:
    """Tell the server's owner what the client is told, and what the client is not told: the cause."""
    cause = refusal.__cause__
    if refusal.status >= 500:
        _logger.error("%s: %s", request_id, refusal, exc_info=cause)
    elif isinstance(cause, RoutelockError):
        _logger.warning("%s: %s (%s: %s)", request_id, refusal, type(cause).__name__, cause)
    elif refusal.for_log:
        _logger.warning("%s: %s (%s)", request_id, refusal, refusal.for_log)
    else:
        _logger.info("%s: %s", request_id, refusal)
