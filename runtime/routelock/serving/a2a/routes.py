"""Agents served by A2A, the Agent2Agent protocol: its routes, around the server parts of the protocol's SDK.

The SDK speaks the protocol, in versions 1.0 and 0.3; who may ask, bodies and runs are the app's own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import anyio

from routelock.errors import MissingExtra
from routelock.serving.a2a.agent_executor import Runs
from routelock.serving.a2a.messages import card_body, refusal_body
from routelock.serving.a2a.tasks import Tasks
from routelock.serving.auth import Guards
from routelock.serving.catalog import Catalog, Incoming, ServedAgent, ServedRoute, closing, log_refusal
from routelock.serving.completions import AsgiReceive, ClientGone, EventStream, attended
from routelock.serving.config import A2A, ServeConfig, ServedRequest
from routelock.serving.errors import Refusal
from routelock.serving.requests import check_size, read_json

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
    from starlette.requests import Request

__all__ = ["A2ARoutes"]


_CARD = "/.well-known/agent-card.json"

_CARD_CACHING = "max-age=300"

_PATH = "/a2a/"

_ABOUT = "routelock.about"
"""Key of the ASGI scope for what is known of a request."""

_LINE_ENDS = {ord(letter): f"\\u{ord(letter):04x}" for letter in "\x85\u2028\u2029"}
"""Letters that some readers take for the end of a line. The SDK sends them as they are, and its own client
for Python then finds half an event."""

_INTERNAL_ERROR = -32603

_PARTING_SECONDS = 2.0


class A2ARoutes:
    """What the protocol's routes do.

    Args:
        catalog: the agents.
        settings: how they are served by this protocol.
        config: keys, limits and settings.
        guards: who may ask, and how many at once.

    Raises:
        MissingExtra: the SDK is not installed.
    """

    def __init__(self, catalog: Catalog, settings: A2A, config: ServeConfig, guards: Guards) -> None:
        self._catalog, self._settings, self._config, self._guards = catalog, settings, config, guards
        try:
            self._desks = {name: self._desk(catalog.find(name)) for name in catalog.names}
        except ModuleNotFoundError as error:
            raise MissingExtra(
                "Serving by A2A needs its SDK, which is not installed: pip install 'routelock[a2a]'."
            ) from error

    @property
    def routes(self) -> list[ServedRoute]:
        """The routes. Cards ask for no key: they say that one is needed."""
        return [
            ServedRoute(_CARD, self.card, "GET", open=True),
            ServedRoute(f"{_PATH}{{agent:path}}{_CARD}", self.card, "GET", open=True),
            ServedRoute(f"{_PATH}{{agent:path}}", self.answer, "POST", refused=refusal_body),
        ]

    async def card(self, incoming: Incoming) -> None:
        """Say who an agent is and where it is asked; without a name, the first agent."""
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict  # noqa: PLC0415
        from a2a.types import AgentCard  # noqa: PLC0415
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415

        served = self._named(incoming)
        base = self._settings.url or _address(incoming, trusted=self._guards.knows_its_hosts)
        card = self._card(served, base.rstrip("/") + _PATH + quote(served.agent.name, safe=""))
        body = agent_card_to_dict(ParseDict(card, AgentCard()))
        digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()[:32]
        await incoming.reply(body, {"cache-control": _CARD_CACHING, "etag": f'"{digest}"'})

    async def answer(self, incoming: Incoming) -> None:
        """Answer a request of the protocol."""
        from starlette.requests import Request  # noqa: PLC0415

        self._guards.check_content_type(incoming.headers.get("content-type", ""))
        served = self._named(incoming)
        body = await incoming.read(self._config.max_body, self._config.body_timeout)
        try:  # the SDK takes for its own failure what it cannot read, or write again
            said = read_json(body)
        except Refusal as refusal:  # as the SDK answers what it does not understand
            log_refusal(incoming.request_id, refusal)
            return await incoming.reply(refusal_body(refusal, incoming.request_id))
        check_size(said)
        scope = {**incoming.scope, _ABOUT: incoming.about(served.agent.name)}
        receive = _again(body, incoming.receive)
        dispatcher, _ = self._desks[served.agent.name]
        response: Any = await dispatcher.handle_requests(Request(scope, receive))
        if (events := getattr(response, "body_iterator", None)) is not None:
            return await self._stream(incoming, events, cast("Mapping[str, object]", said).get("id"))
        _pass_cancellation_on()  # a task is as it was; no client may take that for an answer
        response.headers.update(incoming.own_headers)
        await response(scope, receive, incoming.send)

    def _named(self, incoming: Incoming) -> ServedAgent:
        """Return the agent of a request's path. Clients that take it for a folder put a slash at its end."""
        name = incoming.scope["path_params"].get("agent", "")
        while name.endswith("/") and name not in self._desks:
            name = name[:-1]
        return self._catalog.find(name)

    async def _stream(
        self, incoming: Incoming, events: AsyncGenerator[Mapping[str, str]], call_id: object
    ) -> None:
        """Send the SDK's events as the app sends its own: its own way breaks off once a server is to end."""
        stream = EventStream(incoming.send, incoming.own_headers)
        try:
            ping = partial(stream.keep_alive, self._config.ping)
            await attended(incoming.receive, partial(self._pass_on, events, stream), ping)
            await stream.end()
        except asyncio.CancelledError:
            if not stream.started:
                raise
            refusal = closing()
            log_refusal(incoming.request_id, refusal)
            error = {"code": _INTERNAL_ERROR, "message": refusal.message}
            await stream.fail({"jsonrpc": "2.0", "id": call_id, "error": error}, name="error")

    async def _pass_on(self, events: AsyncGenerator[Mapping[str, str]], stream: EventStream) -> None:
        try:
            async for event in events:
                with anyio.move_on_after(self._config.timeout) as scope:
                    await stream.data(event["data"].translate(_LINE_ENDS), name=event.get("event", ""))
                if scope.cancelled_caught:  # nobody reads, and what is not read is kept here
                    raise ClientGone
            _pass_cancellation_on()
        finally:
            with anyio.move_on_after(_PARTING_SECONDS, shield=True):
                await events.aclose()

    async def close(self) -> None:
        """Cancel what still runs."""
        for _, handler in self._desks.values():
            await handler.aclose()

    def _card(self, served: ServedAgent, url: str) -> dict[str, Any]:
        keyed = self._config.api_keys is not None
        return card_body(served.agent, url=url, version=self._settings.version, keyed=keyed)

    def _desk(self, served: ServedAgent) -> tuple[JsonRpcDispatcher, DefaultRequestHandler]:
        from a2a.server.request_handlers import DefaultRequestHandler  # noqa: PLC0415
        from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher  # noqa: PLC0415
        from a2a.types import AgentCard  # noqa: PLC0415
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415

        runs: Any = Runs(served, self._settings, self._config, self._guards)
        tasks: Any = Tasks(
            most=self._config.max_pending, size=self._config.pending_bytes, ttl=self._config.pending_ttl
        )
        handler = DefaultRequestHandler(
            runs,
            tasks,
            ParseDict(self._card(served, "http://localhost"), AgentCard()),
            interrupted_task_timeout=self._config.pending_ttl,
        )
        callers: Any = _Callers()
        return JsonRpcDispatcher(handler, callers, enable_v0_3_compat=True), handler


class _Callers:
    """Tells the SDK who asks."""

    def build(self, request: Request) -> ServerCallContext:
        """Return what a run is told of its request."""
        from a2a.server.context import ServerCallContext  # noqa: PLC0415
        from a2a.server.routes.common import StarletteUser  # noqa: PLC0415
        from starlette.authentication import SimpleUser  # noqa: PLC0415

        about: ServedRequest = request.scope[_ABOUT]
        # of the headers, the SDK reads the protocol's version
        state = {"headers": dict(about.headers), "about": about}
        return ServerCallContext(user=StarletteUser(SimpleUser(about.principal)), state=state)


def _pass_cancellation_on() -> None:
    """Raise the cancellation that the SDK has taken for the end of what it waited for."""
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError


def _address(incoming: Incoming, *, trusted: bool) -> str:
    """Return where a client reaches the app: under the name that it asked for, if that is known to be ours.

    A name that a client made up would lead others, and their keys, to wherever it points. Without one it is
    the address of the socket.
    """
    scope = incoming.scope
    host = incoming.headers.get("host", "") if trusted else ""
    if not host:
        address, port = scope.get("server") or ("", None)
        host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        host = "localhost" if port is None else host  # a socket of a file's name
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"


def _again(body: bytes, receive: AsgiReceive) -> AsgiReceive:
    """Return the way to read a body once more; after it comes what the client does next."""
    left = [body]

    async def read() -> MutableMapping[str, Any]:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return read
