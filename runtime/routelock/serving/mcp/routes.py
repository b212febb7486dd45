"""The route of MCP's streamable HTTP, with the session manager of the protocol's SDK.

Access, bodies and runs are those of the app. Imported when an app is made, because Starlette is an extra.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from routelock.serving.bounded_store import BoundedStore, bounds_of
from routelock.serving.catalog import ServedApp
from routelock.serving.config import MCP, ServeConfig
from routelock.serving.errors import closing, log_refusal
from routelock.serving.http import Endpoint, Incoming, RpcCall, event_text, read_call
from routelock.serving.mcp.messages import check_id, request_id_of
from routelock.serving.mcp.tool_calls import CALLER, Caller, ToolCalls
from routelock.serving.mcp.tools import json_rpc_refusal
from routelock.serving.requests import bad_request
from routelock_skills.mcp.connection import running_loop, start_background_task

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

__all__ = ["MCPRoutes"]


_PATH = "/mcp"

_SESSION = "mcp-session-id"
"""The header with the id of a session."""

_logger = logging.getLogger("routelock.serving")


class MCPRoutes:
    """The protocol's route.

    Args:
        app: the agents, settings and checks of the app.
        settings: the settings of the protocol.

    Raises:
        ConfigError: the agents cannot be tools.
        MissingExtra: version 2.2 of the SDK, or a newer one, is not installed.
    """

    def __init__(self, app: ServedApp, settings: MCP) -> None:
        self._app, self._config, self._access = app, app.config, app.access
        self._calls = ToolCalls(app, settings)
        self._sessions: _Sessions | None = None
        self._users: dict[str, Any] = {}
        """The callers as the SDK knows them; as many as there are keys."""
        self._open: set[tuple[str, str, str]] = set()
        """The requests that are not answered yet, each by its caller, its session and its id."""

    def routes(self) -> list[BaseRoute]:
        """Return the route, also with a slash at the end."""
        answer = Endpoint(self._access, self._answer, body_of=json_rpc_refusal)
        methods = ["GET", "POST", "DELETE"]
        return [Route(path, answer, methods=methods) for path in (_PATH, f"{_PATH}/")]

    async def close(self) -> None:
        """End all sessions."""
        if self._sessions is not None:
            await self._sessions.close()

    async def _answer(self, incoming: Incoming) -> None:
        """Answer a request of the protocol."""
        request = incoming.request
        self._check_origin(incoming.headers.get("origin"))
        call = RpcCall(head={}, receive=request.receive)
        if request.method == "POST":
            call = await read_call(incoming, self._app)
            check_id(call.head)
        sessions, call_id = await self._running_sessions(), request_id_of(call.head)
        caller = Caller(incoming.about)
        headers = request.scope["headers"]
        if request.method == "GET":  # nothing is kept to resume a stream from, and the SDK would not answer
            headers = [(name, value) for name, value in headers if name != b"last-event-id"]
        scope = {
            **request.scope,
            "headers": headers,
            CALLER: caller,
            "user": self._user(incoming.principal.name),
        }
        last = partial(_last_events, call_id, incoming.id)
        with self._own_id(incoming, call_id):
            try:
                await incoming.respond(_Passed(partial(sessions.answer, scope), call.receive, last))
            finally:
                # unread answers are not kept, so a run whose client has left is of no use
                caller.while_connected.cancel()

    def _user(self, caller: str) -> Any:
        if caller not in self._users:
            self._users[caller] = _user(caller)
        return self._users[caller]

    @contextmanager
    def _own_id(self, incoming: Incoming, call_id: str | int | None) -> Generator[None]:
        """Keep the id of a request from other requests of its session while the block lasts.

        The SDK would send the answer of either to the newer one, and leave the older one open.

        Raises:
            Refusal: 400, an open request of the session has the id.
        """
        session = incoming.headers.get(_SESSION)
        if session is None or call_id is None:
            yield
            return
        key = (incoming.principal.name, session, str(call_id))  # the SDK takes 2 and "2" for the same
        if key in self._open:
            short = str(call_id)[:100]
            why = (
                f"The session has another request with the id {short!r}. Give each request an id of its own."
            )
            raise bad_request(why, "id")
        self._open.add(key)
        try:
            yield
        finally:
            self._open.discard(key)

    def _check_origin(self, origin: str | None) -> None:
        """Refuse pages of other hosts, as the protocol says.

        Raises:
            Refusal: 403.
        """
        if origin is not None:
            with suppress(ValueError):  # no address; it is refused as a whole
                origin = urlsplit(origin).netloc or origin
            self._access.check_host(origin)

    async def _running_sessions(self) -> _Sessions:
        if self._sessions is None or self._sessions.loop is not running_loop():
            self._sessions = _Sessions(self._new_manager(), self._config)
        await self._sessions.ready.wait()
        return self._sessions

    def _new_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        return StreamableHTTPSessionManager(
            self._calls.server,
            max_request_body_size=self._config.max_body,
            session_idle_timeout=self._config.pending_ttl,
            # `_Sessions` ends one for each that is opened beyond max_pending
            max_sessions=self._config.max_pending + self._config.max_concurrent,
        )


class _Sessions:
    """The clients' sessions of one event loop, bounded so that no client takes the place of all others.

    They are kept by a task of their own: they outlive requests, and an app that is mounted in another app has
    no lifespan.

    Args:
        manager: the SDK's manager of sessions. It ends those that are idle for too long.
        config: how many sessions are kept, and for how long.
    """

    def __init__(self, manager: StreamableHTTPSessionManager, config: ServeConfig) -> None:
        self.loop = running_loop()
        self.ready = anyio.Event()
        self._manager = manager
        self._open: BoundedStore[tuple[str, str], Counter[str]] = BoundedStore(
            replace(bounds_of(config), size=config.max_pending),
            # a stream by which a client only listens costs it nothing, and may keep out no other client
            is_used=lambda requests: requests.total() > requests["GET"],
            is_held=lambda requests: requests["GET"] > 0,
        )
        """The open requests of each session by their methods, by the session's caller and id."""
        self._closing, self._closed = anyio.Event(), anyio.Event()
        self._task = start_background_task(self._run)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request by the SDK, and end the sessions that are too many then."""
        owner, method = scope["user"].username, scope["method"]
        key = (owner, Headers(scope=scope).get(_SESSION, ""))
        requests = self._open.get(key)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
                opened = Headers(raw=message["headers"]).get(_SESSION)
                if method == "DELETE":
                    self._open.remove(key)
                elif opened is not None and not key[1]:
                    await self._end(self._open.put((owner, opened), Counter(), 1))
            await send(message)

        if requests is None:
            return await self._manager.handle_request(scope, receive, sent)
        requests[method] += 1
        try:
            await self._manager.handle_request(scope, receive, sent)
        finally:
            requests[method] -= 1
            await self._end(self._open.touch(key))

    async def _end(self, sessions: Sequence[tuple[tuple[str, str], object]]) -> None:
        """End sessions as their clients would. One that has ended already stays so."""

        async def nothing(*_: object) -> Any:
            return {"type": "http.disconnect"}

        with anyio.CancelScope(shield=True):
            for (owner, name), _ in sessions:
                headers = [(_SESSION.encode(), name.encode())]
                scope = {"type": "http", "method": "DELETE", "path": _PATH, "headers": headers}
                _logger.info("a session of %s has ended, because of its age or for a newer one", owner)
                await self._manager.handle_request({**scope, "user": _user(owner)}, nothing, nothing)

    async def close(self) -> None:
        """End the sessions."""
        self._closing.set()
        await self._closed.wait()

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self.ready.set()
                await self._closing.wait()
        finally:
            self.ready.set()  # also if it could not start
            self._closed.set()


class _Passed(Response):
    """The SDK's response, with the headers of the app.

    Args:
        answer: sends the response.
        receive: the messages of the client.
        last: returns the last events, if the server ends before the SDK has answered.
    """

    def __init__(
        self, answer: Callable[[Receive, Send], Awaitable[None]], receive: Receive, last: Callable[[], str]
    ) -> None:
        super().__init__()
        self._answer, self._receive, self._last = answer, receive, last
        self._is_open = self._has_left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        added = (b"x-request-id", self.headers["x-request-id"].encode())

        async def received() -> Message:
            message = await self._receive()
            self._has_left = self._has_left or message["type"] == "http.disconnect"
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], added]}
            await send(message)
            self._is_open = message["type"] == "http.response.start" or message.get("more_body", False)

        try:
            await self._answer(received, sent)
        finally:
            # the SDK breaks off when the server ends, and servers cancel running requests
            if self._is_open and not self._has_left:
                await send({"type": "http.response.body", "body": self._last().encode()})


def _last_events(call_id: str | int | None, request_id: str) -> str:
    """Return the answer to a request that is cut off; nothing has to be answered but requests."""
    if call_id is None:
        return ""
    log_refusal(request_id, refusal := closing())
    return event_text(json_rpc_refusal(refusal, request_id, call_id))


def _user(caller: str) -> Any:
    """Return a caller as the SDK knows it: a session belongs to the caller that began it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415
    from mcp.server.auth.provider import AccessToken  # noqa: PLC0415

    return AuthenticatedUser(AccessToken(token="", client_id=caller, scopes=[]))
