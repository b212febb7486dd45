"""The routes of A2A, the Agent2Agent protocol, with the request handler of the protocol's SDK.

The SDK implements versions 1.0 and 0.3 of the protocol. Access, bodies and runs are those of the app.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from routelock._json import LINE_ENDS
from routelock._lazy import needs_extra
from routelock._text import clip
from routelock.serving.a2a.agent_executor import TaskExecutor
from routelock.serving.a2a.messages import card_body, refusal_body
from routelock.serving.a2a.tasks import Tasks
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import ServedAgent, ServedApp
from routelock.serving.config import A2A, ServedRequest
from routelock.serving.errors import Refusal, log_refusal
from routelock.serving.http import AsciiJSON, Endpoint, EventStream, Incoming, event_text, read_call
from routelock.serving.json_rpc import INVALID_PARAMS, INVALID_REQUEST

if TYPE_CHECKING:
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher

__all__ = ["A2ARoutes"]


_CARD = "/.well-known/agent-card.json"

_CARD_CACHING = "max-age=300"

_PATH = "/a2a/"

_ABOUT = "routelock.about"
"""The key of the `ServedRequest` in the ASGI scope."""

_PARTING_SECONDS = 2.0

_LONGEST_QUOTE = 500
"""Characters of a text in an error of the SDK."""


class A2ARoutes:
    """The protocol's routes.

    Args:
        app: the agents, settings and checks of the app.
        settings: the settings of the protocol.

    Raises:
        MissingExtra: the SDK is not installed.
    """

    def __init__(self, app: ServedApp, settings: A2A) -> None:
        self._app, self._settings = app, settings
        self._catalog, self._config, self._access = app.catalog, app.config, app.access
        self._since = datetime.now(UTC).replace(microsecond=0)  # HTTP has whole seconds
        with needs_extra("Serving by A2A needs its SDK, which is not installed", "a2a"):
            self._dispatchers = {name: self._dispatcher(app.catalog.find(name)) for name in app.catalog.names}

    def routes(self) -> list[BaseRoute]:
        """Return the routes. Cards need no key: they say that one is needed."""
        card = Endpoint(self._access, self._show_card, is_open=True)
        answer = Endpoint(self._access, self._answer, body_of=refusal_body)
        return [
            Route(_CARD, card, methods=["GET"]),
            Route(f"{_PATH}{{agent:path}}{_CARD}", card, methods=["GET"]),
            Route(f"{_PATH}{{agent:path}}", answer, methods=["POST"]),
        ]

    async def _show_card(self, incoming: Incoming) -> None:
        """Describe an agent and its address; without a name, the first agent."""
        from a2a.server.request_handlers.response_helpers import agent_card_to_dict  # noqa: PLC0415
        from a2a.types import AgentCard  # noqa: PLC0415
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415

        served = self._catalog.at(incoming.request.path_params.get("agent", ""))
        base = self._settings.url or _address(incoming, trusted=self._access.knows_its_hosts)
        card = self._card(served, base.rstrip("/") + _PATH + quote(served.agent.name, safe=""))
        body = agent_card_to_dict(ParseDict(card, AgentCard()))
        digest = hashlib.sha256(json.dumps(body).encode()).hexdigest()[:32]
        headers = {
            "cache-control": _CARD_CACHING,
            "etag": f'"{digest}"',
            "last-modified": format_datetime(self._since, usegmt=True),
        }
        if _is_known(incoming.request.headers, digest, self._since):
            return await incoming.respond(Response(status_code=304, headers=headers))
        await incoming.respond(AsciiJSON(body, headers=headers))

    async def _answer(self, incoming: Incoming) -> None:
        """Answer a request of the protocol."""
        served = self._catalog.at(incoming.request.path_params["agent"])
        try:  # the SDK reports an internal error for a body that it cannot read, or write again
            call = await read_call(incoming, self._app)
        except Refusal as refusal:
            if refusal.code != "invalid_json":
                raise
            log_refusal(incoming.id, refusal)  # with the status of the SDK's own errors of this kind
            return await incoming.respond(AsciiJSON(refusal_body(refusal, incoming.id)))
        scope = {**incoming.request.scope, _ABOUT: incoming.about(served.agent.name)}
        dispatcher, _ = self._dispatchers[served.agent.name]
        response: Any = await dispatcher.handle_requests(Request(scope, call.receive))
        if (events := getattr(response, "body_iterator", None)) is not None:
            # the SDK's own response breaks off as soon as the server is to end
            last = partial(_error_event, incoming.id, call.head.get("id"))
            response = EventStream(partial(self._pass_on, events), ping=self._config.ping, last=last)
        else:
            _pass_cancellation_on()  # the SDK may answer with an unfinished task, which is not the result
            response = _with_plain_error(call.head, response)
        await incoming.respond(response)

    async def _pass_on(self, events: AsyncGenerator[Mapping[str, str]], stream: EventStream) -> None:
        try:
            async for event in events:
                # the SDK does not escape them, and its own client for Python then reads half an event
                data = event["data"].translate(LINE_ENDS)
                with anyio.move_on_after(self._config.timeout) as scope:
                    await stream.send(data, name=event.get("event", ""))
                if scope.cancelled_caught:  # the client does not read, and unread events use memory
                    raise ClientDisconnect
            _pass_cancellation_on()  # the SDK ends its events without an error when it is cancelled
        finally:
            with anyio.move_on_after(_PARTING_SECONDS, shield=True):
                await events.aclose()

    async def close(self) -> None:
        """Cancel the tasks that are running."""
        for _, handler in self._dispatchers.values():
            await handler.aclose()

    def _card(self, served: ServedAgent, url: str) -> dict[str, Any]:
        keyed = self._config.api_keys is not None
        return card_body(
            served.agent,
            url=url,
            version=self._settings.version,
            keyed=keyed,
            protocols=self._settings.versions,
        )

    def _dispatcher(self, served: ServedAgent) -> tuple[JsonRpcDispatcher, DefaultRequestHandler]:
        from a2a.server.request_handlers import DefaultRequestHandler  # noqa: PLC0415
        from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher  # noqa: PLC0415
        from a2a.types import AgentCard  # noqa: PLC0415
        from google.protobuf.json_format import ParseDict  # noqa: PLC0415

        executor: Any = TaskExecutor(served, self._settings, self._app)
        tasks: Any = Tasks(bounds_of(self._config))
        handler = DefaultRequestHandler(
            executor,
            tasks,
            ParseDict(self._card(served, "http://localhost"), AgentCard()),
            interrupted_task_timeout=self._config.pending_ttl,
        )
        contexts: Any = _CallContexts()
        compat = "0.3" in self._settings.versions
        return JsonRpcDispatcher(handler, contexts, enable_v0_3_compat=compat), handler


class _CallContexts:
    """Makes the SDK's call context of a request, with its caller."""

    def build(self, request: Request) -> ServerCallContext:
        """Return the call context of a request."""
        from a2a.server.context import ServerCallContext  # noqa: PLC0415
        from a2a.server.routes.common import StarletteUser  # noqa: PLC0415
        from starlette.authentication import SimpleUser  # noqa: PLC0415

        about: ServedRequest = request.scope[_ABOUT]
        # of the headers, the SDK reads the protocol's version
        state = {"headers": dict(about.headers), "about": about}
        return ServerCallContext(user=StarletteUser(SimpleUser(about.principal)), state=state)


def _is_known(headers: Headers, digest: str, since: datetime) -> bool:
    """Return whether a client has this card, see https://www.rfc-editor.org/rfc/rfc9110#section-13."""
    if (tags := headers.get("if-none-match")) is not None:
        known = {tag.strip().removeprefix("W/").strip('"') for tag in tags.split(",")}
        return not known.isdisjoint((digest, "*"))
    try:
        return parsedate_to_datetime(headers.get("if-modified-since", "")) >= since
    except (ValueError, TypeError):  # not a date, or one without a zone: RFC 9110 says to ignore it
        return False


def _with_plain_error(head: Mapping[str, object], response: Response) -> Response:
    """Return the response of the SDK. An error in it is short and has the code of what is wrong.

    The SDK quotes the request, which may be long. For version 0.3, whose methods have names such as
    ``message/send``, it answers invalid parameters with the code of an invalid request.
    """
    sent = bytes(response.body)
    if b'"error":' not in sent:  # so a long result need not be read
        return response
    body = json.loads(sent)
    if (error := body.get("error")) is None:
        return response
    error = cast("dict[str, Any]", _with_short_texts(error))
    is_request = head.get("jsonrpc") == "2.0" and isinstance(head.get("id"), str | int | None)
    if is_request and "/" in str(head.get("method")) and error["code"] == INVALID_REQUEST:
        error |= {"code": INVALID_PARAMS, "message": "Invalid params"}
    return AsciiJSON({**body, "error": error})


def _with_short_texts(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _with_short_texts(each) for key, each in fields.items()}
    if isinstance(value, list):
        return [_with_short_texts(each) for each in cast("list[object]", value)]
    return clip(value, _LONGEST_QUOTE) if isinstance(value, str) else value


def _pass_cancellation_on() -> None:
    """Raise a cancellation that the SDK has caught."""
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError


def _address(incoming: Incoming, *, trusted: bool) -> str:
    """Return the URL of the app: with the host of the request if it is trusted, else with that of the socket.

    A host name that a client made up would send other clients, and their keys, to another server.
    """
    scope = incoming.request.scope
    host = incoming.headers.get("host", "") if trusted else ""
    if not host:
        address, port = scope.get("server") or ("", None)
        host = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        host = "localhost" if port is None else host  # a Unix socket has no port
    return f"{scope.get('scheme', 'http')}://{host}{scope.get('root_path', '')}"


def _error_event(request_id: str, call_id: object, refusal: Refusal) -> str:
    log_refusal(request_id, refusal)
    return event_text(refusal_body(refusal, request_id, call_id), "error")
