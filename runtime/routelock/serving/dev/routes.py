"""The routes of the dev page: its files, conversations, pictures of graphs, and tests of runs."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, cast
from xml.sax.saxutils import quoteattr

import anyio
import pydantic
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from routelock.agents.agent import Agent
from routelock.agents.graph import Link, Node, Outline, outline_of
from routelock.agents.registry import register
from routelock.agents.svg import outline_svg
from routelock.errors import ConfigError
from routelock.serving.auth import AccessControl
from routelock.serving.config import ServeConfig
from routelock.serving.dev.conversations import DevConversations, DevDecision, Said
from routelock.serving.dev.pytest_export import Source, replay_test
from routelock.serving.errors import Refusal
from routelock.serving.http import AsciiJSON, EventStream, read_body
from routelock.serving.requests import read_json
from routelock.tracing.reader import TracedRun, read_trace
from routelock.tracing.records import AgentTraced, RunStarted

__all__ = ["DevRoutes", "LocalOnly", "dev_app", "index_page", "outline_of_trace", "static_files"]


_logger = logging.getLogger("routelock.dev")

TOKEN_HEADER = "x-routelock-token"

SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types routelock-graph",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
"""The headers of every response: only the page's own scripts run, and no other site is loaded or may frame
it."""


def dev_app(
    agents: Sequence[Agent[Any]],
    conversations: DevConversations,
    source: Source,
    traces: Sequence[str | PathLike[str]],
) -> Starlette:
    """Return the app; see `routelock.serving.dev.create_dev_app`."""
    token = secrets.token_urlsafe(24)
    served = DevRoutes(agents, conversations, source, traces, token)
    handlers: Mapping[Any, Any] = {Refusal: _refuse, ClientDisconnect: _leave_unanswered}
    return Starlette(
        routes=served.routes(),
        middleware=[Middleware(LocalOnly, token=token)],
        exception_handlers=handlers,
    )


class LocalOnly:
    """Middleware: refuses requests that do not come from the page, and adds the headers of `SECURITY`.

    Args:
        app: the app behind it.
        token: the secret that each request except GET has to carry.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token
        self._access = AccessControl(ServeConfig())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI app does."""

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY)
            await send(message)

        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            self.check(request)
        except Refusal as refusal:
            return await _refused(request, refusal)(scope, receive, secured)
        await self._app(scope, receive, secured)

    def check(self, request: Request) -> None:
        """Refuse a request that does not come from the page.

        Raises:
            Refusal: 403 or 415.
        """
        headers = request.headers
        host = headers.get("host", "")
        try:
            self._access.check_host(host)
        except Refusal as refusal:
            why = "The dev page answers on this machine only, as 127.0.0.1 or localhost."
            raise Refusal(403, why, refusal.code) from refusal
        foreign = headers.get("origin", f"http://{host}") != f"http://{host}"
        if foreign or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, "This request comes from another site.", "origin_not_allowed")
        if request.method in ("GET", "HEAD"):
            return
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            raise Refusal(
                403, "The server was restarted since this page was loaded. Reload the page.", "bad_token"
            )
        self._access.check_content_type(headers.get("content-type", ""))


def _refused(request: Request, refusal: Refusal) -> Response:
    _logger.info("%s %s: %s", request.method, request.url.path, refusal)
    return AsciiJSON({"error": refusal.message}, refusal.status, refusal.headers)


async def _refuse(request: Request, error: Exception) -> Response:
    """Answer a request that ended with a refusal."""
    return _refused(request, cast("Refusal", error))


async def _leave_unanswered(request: Request, error: Exception) -> Response:
    """Answer a client that has left. It does not receive the response."""
    _logger.info("the page has left")
    return Response(status_code=_CLIENT_LEFT)


class _Answer(EventStream):
    """The lines of a run. That a page leaves in the middle, such as at a reload, is no error."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI app does."""
        try:
            await super().__call__(scope, receive, send)
        except ClientDisconnect:
            if not self.has_begun:
                raise
            # Starlette's handlers of errors are for responses that have not begun
            _logger.info("the page has left")


_CLIENT_LEFT = 499


_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}


def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the scripts and styles by name, each with its content type."""
    found: dict[str, tuple[bytes, str]] = {}
    for file in files("routelock.serving.dev").joinpath("static").iterdir():
        for ending, kind in _KINDS.items():
            if file.name.endswith(ending):
                found[file.name] = (file.read_bytes(), kind)
    return found


def index_page(settings: Mapping[str, Any]) -> bytes:
    """Return the page. The settings are data in an attribute, and never a part of a script.

    Args:
        settings: the settings for the page's script.
    """
    page = files("routelock.serving.dev").joinpath("static", "index.html").read_text("utf-8")
    return page.replace('"{{settings}}"', quoteattr(json.dumps(settings))).encode()


def outline_of_trace(start: RunStarted) -> Outline:
    """Return the graph of agents at the beginning of a run."""
    nodes = {one.name: _node(one) for one in start.agents}
    nodes = nodes or {start.agent: Node(name=start.agent)}
    links: dict[tuple[str, str, str], Link] = {}
    for one in start.agents:
        for link in _links(one):
            links.setdefault((link.source, link.target, link.kind), link)
    handlers = {handoff.target for one in start.agents for handoff in one.handoffs if handoff.to_handler}
    for link in links.values():
        is_handler = link.target in handlers
        nodes.setdefault(link.target, Node(name=link.target, kind="handler" if is_handler else "open"))
    begins = start.default_agent or start.agent
    return Outline(
        start=begins if begins in nodes else next(iter(nodes)),
        nodes=tuple(nodes.values()),
        links=tuple(links.values()),
    )


def _node(one: AgentTraced) -> Node:
    handlers = tuple(one.models.get(name, name) for name in one.handlers)
    return Node(name=one.name, handlers=handlers, about=one.description or None, tools=tuple(one.tools))


def _links(one: AgentTraced) -> list[Link]:
    handoffs = [
        Link(source=one.name, target=target, tool=handoff.tool_name, returns=handoff.returns)
        for handoff in one.handoffs
        for target in (handoff.target, *handoff.others)
    ]
    asks = [
        Link(source=one.name, target=agent, kind="asks", tool=tool) for tool, agent in one.agent_tools.items()
    ]
    return handoffs + asks


_LARGEST_MESSAGE = 2 * 2**20

_LARGEST_RUN = 64 * 2**20

_BODY_SECONDS = 30.0

_PING = 15.0


class DevRoutes:
    """The routes of the page.

    Args:
        agents: the agents to choose from; the first is the default.
        conversations: the conversations.
        source: where the agents, the context and the settings are defined.
        traces: trace files that may be loaded by name.
        token: a secret that the page sends with each request that changes something.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        conversations: DevConversations,
        source: Source,
        traces: Sequence[str | PathLike[str]],
        token: str,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        if len(self._agents) != len(agents):
            raise ConfigError("Two of the agents have the same name; give each its own.")
        self._conversations = conversations
        self._source = source
        self._traces = _by_name([Path(path) for path in traces])

        self._token = token
        self._static = static_files()

    def routes(self) -> list[BaseRoute]:
        """Return all routes of the page."""
        return [
            Route("/", self._show_index, methods=["GET"]),
            Route("/static/{name}", self._send_file, methods=["GET"]),
            Route("/traces/{name:path}", self._send_trace, methods=["GET"]),
            Route("/talks", self._begin, methods=["POST"]),
            Route("/talks/{id}/messages", self._answer, methods=["POST"]),
            Route("/talks/{id}/stop", self._stop, methods=["POST"]),
            Route("/graph", self._draw_graph, methods=["POST"]),
            Route("/test", self._write_test, methods=["POST"]),
        ]

    async def _show_index(self, request: Request) -> Response:
        settings = {"agents": list(self._agents), "traces": list(self._traces), "spec": self._source.agent}
        return Response(index_page({**settings, "token": self._token}), media_type="text/html")

    async def _send_file(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        if found is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(found[0], media_type=found[1])

    async def _begin(self, request: Request) -> Response:
        """Begin a conversation, and return the picture of its graph."""
        name = (await _posted(request)).get("agent")
        agent = self._agents.get(name if isinstance(name, str) else next(iter(self._agents)))
        if agent is None:
            raise Refusal(404, f"There is no agent {name!r:.80}.", "no_agent")
        conversation = self._conversations.begin(agent)
        session = await self._conversations.open_session(conversation)
        picture = outline_svg(self._outline(agent), active=agent.name)
        return AsciiJSON({"id": conversation.id, "agent": agent.name, "graph": picture, "session": session})

    def _outline(self, agent: Agent[Any]) -> Outline:
        """Return the graph of an agent, with the model of the settings if they have one."""
        config = self._source.run_config
        outline = outline_of(agent, config.agents)
        if config.model is None:
            return outline
        own = register(config.model).written
        nodes = [
            replace(node, handlers=(own, *node.handlers[1:])) if node.kind == "agent" else node
            for node in outline.nodes
        ]
        return replace(outline, nodes=tuple(nodes))

    async def _answer(self, request: Request) -> Response:
        """Answer a message of the user, or decisions on calls, with a stream of lines.

        See `conversations.py` for the lines.
        """
        conversation = self._conversations.find(request.path_params["id"])
        said = _said(await _posted(request))

        async def work(stream: EventStream) -> None:
            await self._conversations.answer(conversation, said, stream.send_nowait)

        return _Answer(work, ping=_PING)

    async def _stop(self, request: Request) -> Response:
        """Stop the run of a conversation, if one is running."""
        self._conversations.find(request.path_params["id"]).stop()
        return AsciiJSON({})

    async def _draw_graph(self, request: Request) -> Response:
        """Draw the graph of a traced run; the request has the run's first record."""
        run = _parts([await _posted(request)])[0]
        return AsciiJSON({"graph": outline_svg(outline_of_trace(run.start), active=run.start.agent)})

    async def _write_test(self, request: Request) -> Response:
        """Write a test of a traced run, whose records are in the request, those before approvals first."""
        records: list[Any] | None = (await _posted(request, _LARGEST_RUN)).get("records")
        if not isinstance(records, list):
            raise Refusal(400, "The request has no list of records.", "no_records")
        run, *resumed = _parts(records)
        try:
            return AsciiJSON({"code": replay_test(run, self._source, resumed)})
        except ValueError as error:
            raise Refusal(409, str(error), "no_test") from error

    async def _send_trace(self, request: Request) -> Response:
        """Send a trace file that was named when the app was made."""
        path = self._traces.get(request.path_params["name"])
        if path is None:
            raise Refusal(
                404, "The dev page has no trace of this name. Start it with --trace FILE.", "no_trace"
            )
        try:
            text = await anyio.Path(path).read_text("utf-8", "replace")
        except OSError as error:
            raise Refusal(404, f"{path} cannot be read: {error.strerror}.", "no_trace") from error
        return AsciiJSON({"name": path.name, "text": text})


async def _posted(request: Request, limit: int = _LARGEST_MESSAGE) -> Mapping[str, Any]:
    """Return the JSON object that was posted.

    Raises:
        Refusal: 400, 408 or 413.
    """
    data = read_json(await read_body(request, limit, _BODY_SECONDS))
    if not isinstance(data, dict):
        raise Refusal(400, "The request is not a JSON object.", "invalid_json")
    return cast("Mapping[str, Any]", data)


def _by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files by their names; files that share a name by their paths, as they were given."""
    names = Counter(path.name for path in set(paths))
    return {path.name if names[path.name] == 1 else str(path): path for path in paths}


def _said(body: Mapping[str, Any]) -> Said:
    """Return the message or the decisions of the user.

    Raises:
        Refusal: 400.
    """
    text, decisions = body.get("text"), body.get("words")
    if isinstance(text, str) and text.strip():
        return text
    try:
        found = pydantic.TypeAdapter(list[DevDecision]).validate_json(json.dumps(decisions), strict=True)
    except pydantic.ValidationError as error:
        raise Refusal(400, "The message is empty.", "no_text") from error
    return found


def _parts(records: Sequence[Any]) -> Sequence[TracedRun]:
    """Return the run of these records; a run that was resumed has several parts.

    Raises:
        Refusal: 400.
    """
    try:
        log = read_trace(json.dumps(record).encode() for record in records)
    except ConfigError as error:  # the format is that of a newer version
        raise Refusal(400, str(error), "bad_records") from error
    if len({run.start.run for run in log.runs}) != 1 or log.unreadable:
        raise Refusal(400, "These are not the records of one run.", "bad_records")
    return log.runs
