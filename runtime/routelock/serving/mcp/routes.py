"""The route of MCP's streamable HTTP, with the session manager of the protocol's SDK.

Access, bodies and runs are those of the app. Imported when an app is made, because Starlette is an extra.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from routelock.serving.auth import AccessControl, Principal
from routelock.serving.catalog import Catalog
from routelock.serving.config import MCP, ServeConfig
from routelock.serving.errors import closing, log_refusal
from routelock.serving.http import Endpoint, Incoming, event_text, read_body, received_again
from routelock.serving.mcp.messages import check_id, request_id_of
from routelock.serving.mcp.tool_calls import CALLER, Caller, ToolCalls
from routelock.serving.mcp.tools import json_rpc_refusal
from routelock.serving.requests import bad_request, check_size, read_json
from routelock_skills.mcp.connection import running_loop, start_background_task

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

__all__ = ["MCPRoutes"]


_PATH = "/mcp"


class MCPRoutes:
    """The protocol's route.

    Args:
        catalog: the agents.
        settings: the settings of the protocol.
        config: keys, limits and settings.
        access: the checks of requests, and the number of runs at the same time.

    Raises:
        ConfigError: the agents cannot be tools.
        MissingExtra: version 2 of the SDK is not installed.
    """

    def __init__(self, catalog: Catalog, settings: MCP, config: ServeConfig, access: AccessControl) -> None:
        self._config, self._access = config, access
        self._calls = ToolCalls(catalog, settings, config, access)
        self._sessions: _Sessions | None = None
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
        self._check_origin(request.headers.get("origin"))
        receive, said = request.receive, None
        if request.method == "POST":
            self._access.check_content_type(request.headers.get("content-type", ""))
            body = await read_body(request, self._config.max_body, self._config.body_timeout)
            check_size(said := read_json(body))
            check_id(said)
            receive = received_again(body, receive)
        manager = await self._manager()
        caller = Caller(incoming.about)
        headers = request.scope["headers"]
        if request.method == "GET":  # nothing is kept to resume a stream from, and the SDK would not answer
            headers = [(name, value) for name, value in headers if name != b"last-event-id"]
        scope = {**request.scope, "headers": headers, CALLER: caller, "user": _user(incoming.principal)}
        with self._own_id(incoming, request_id_of(said)):
            try:
                answer = partial(manager.handle_request, scope)
                await incoming.respond(_Passed(answer, receive, partial(_last_events, said, incoming.id)))
            finally:
                # nothing keeps what a client has not read, so a run whose client has left is for nothing
                caller.while_connected.cancel()

    @contextmanager
    def _own_id(self, incoming: Incoming, call_id: str | int | None) -> Generator[None]:
        """Keep the id of a request from other requests of its session while the block lasts.

        The SDK would send the answer of either to the newer one, and leave the older one open.

        Raises:
            Refusal: 400, an open request of the session has the id.
        """
        session = incoming.request.headers.get("mcp-session-id")
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

    async def _manager(self) -> StreamableHTTPSessionManager:
        if self._sessions is None or self._sessions.loop is not running_loop():
            self._sessions = _Sessions(self._new_manager())
        return await self._sessions.manager()

    def _new_manager(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager  # noqa: PLC0415

        return StreamableHTTPSessionManager(
            self._calls.server,
            max_request_body_size=self._config.max_body,
            session_idle_timeout=self._config.pending_ttl,
            max_sessions=self._config.max_pending,
        )


class _Sessions:
    """The clients' sessions of one event loop. They are kept by a task of their own: they outlive requests,
    and an app that is mounted in another app has no lifespan.
    """

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self.loop = running_loop()
        self._manager = manager
        self._ready, self._closing, self._closed = (anyio.Event() for _ in range(3))
        self._task = start_background_task(self._run)

    async def manager(self) -> StreamableHTTPSessionManager:
        """Return the SDK's session manager when it runs."""
        await self._ready.wait()
        return self._manager

    async def close(self) -> None:
        """End the sessions."""
        self._closing.set()
        await self._closed.wait()

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self._ready.set()
                await self._closing.wait()
        finally:
            self._ready.set()  # also if it could not start
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
            # the SDK breaks off when the server ends, and servers cancel what still runs
            if self._is_open and not self._has_left:
                await send({"type": "http.response.body", "body": self._last().encode()})


def _last_events(said: object, request_id: str) -> str:
    """Return the answer to a request that is cut off; nothing has to be answered but requests."""
    if (call_id := request_id_of(said)) is None:
        return ""
    log_refusal(request_id, refusal := closing())
    return event_text({**json_rpc_refusal(refusal, request_id), "id": call_id})


def _user(principal: Principal) -> Any:
    """Return a caller as the SDK knows it: a session belongs to the caller that began it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser  # noqa: PLC0415
    from mcp.server.auth.provider import AccessToken  # noqa: PLC0415

    return AuthenticatedUser(AccessToken(token="", client_id=principal.name, scopes=[]))
