"""The app of the dev page: files, who may reach it, conversations, pictures of graphs, tests of runs."""

from __future__ import annotations

import hmac
import json
import logging
import math
import secrets
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from xml.sax.saxutils import quoteattr

import anyio
import pydantic

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent
from routelock.agents.graph import Link, Node, Outline
from routelock.agents.svg import graph_svg, outline_svg
from routelock.errors import ConfigError, MissingExtra
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS, run_graph
from routelock.serving.auth import Guards, is_loopback
from routelock.serving.completions import (
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    ClientGone,
    EventStream,
    attended,
    headers_of,
    read_body,
    send_json,
)
from routelock.serving.config import ServeConfig
from routelock.serving.dev.conversations import DevConversation, DevConversations, DevDecision, Said
from routelock.serving.dev.pytest_export import Source, replay_test
from routelock.serving.errors import Refusal
from routelock.tracing.reader import TracedRun, read_trace
from routelock.tracing.records import AgentTraced, RunStarted

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = [
    "DevEndpoint",
    "DevRoutes",
    "LocalOnly",
    "PageRequest",
    "create_dev_app",
    "index_page",
    "outline_of_trace",
    "serve_dev",
    "static_files",
]


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
"""What every response carries: no script but ours runs, nothing is loaded from elsewhere or framed."""

_App = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]


class LocalOnly:
    """Lets requests in to an app, or answers them with an error, always with the headers of `SECURITY`.

    Args:
        app: what is behind it.
        token: what a request that is no GET has to bring.
    """

    def __init__(self, app: _App, token: str) -> None:
        self._app = app
        self._token = token
        self._guards = Guards(ServeConfig())

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request, as an ASGI app does."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in SECURITY.items()]
                message["headers"] = [*_without(message.get("headers", ())), *more]
            await send(message)

        try:
            self.check(scope["method"], headers_of(scope))
            await self._app(scope, receive, guarded)
        except ClientGone:
            _logger.info("the page has left")
        except Refusal as refusal:
            _logger.info("%s %s: %s", scope["method"], scope["path"], refusal)
            await send_json(guarded, refusal.status, {"error": refusal.message}, refusal.headers)

    def check(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse what does not come from the page.

        Raises:
            Refusal: 403 or 415.
        """
        host = headers.get("host", "")
        try:
            self._guards.check_host(host)
        except Refusal as refusal:
            why = "The dev page answers on this machine only, as 127.0.0.1 or localhost."
            raise Refusal(403, why, refusal.code) from refusal
        if headers.get("origin", f"http://{host}") != f"http://{host}":
            raise Refusal(403, "This request comes from another site.", "origin_not_allowed")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Refusal(403, "This request comes from another site.", "origin_not_allowed")
        if method in ("GET", "HEAD"):
            return
        if not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            raise Refusal(403, "The server was restarted since this page was loaded. Reload it.", "bad_token")
        self._guards.check_content_type(headers.get("content-type", ""))


def _without(headers: Any) -> list[tuple[bytes, bytes]]:
    """Return headers without those that every response has anyway."""
    return [(name, value) for name, value in headers if name.lower().decode("latin-1") not in SECURITY]


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
    """Return the page. What differs from app to app is data in it: no script is made of anything.

    Args:
        settings: what the page's script is told, as JSON.
    """
    page = files("routelock.serving.dev").joinpath("static", "index.html").read_text("utf-8")
    return page.replace('"{{settings}}"', quoteattr(json.dumps(settings))).encode()


def outline_of_trace(start: RunStarted) -> Outline:
    """Return the graph that a run began with."""
    nodes = {one.name: _node(one) for one in start.agents}
    nodes = nodes or {start.agent: Node(name=start.agent)}
    links: dict[tuple[str, str, str], Link] = {}
    for one in start.agents:
        for link in _links(one):
            links.setdefault((link.source, link.target, link.kind), link)
    handlers = {
        each for one in start.agents for edge in one.handoffs if edge.to_handler for each in [edge.target]
    }
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
    return Node(
        name=one.name, handlers=tuple(one.handlers), about=one.description or None, tools=tuple(one.tools)
    )


def _links(one: AgentTraced) -> list[Link]:
    handoffs = [
        Link(source=one.name, target=target, tool=edge.tool_name, returns=edge.returns)
        for edge in one.handoffs
        for target in (edge.target, *edge.others)
    ]
    asks = [
        Link(source=one.name, target=agent, kind="asks", tool=tool) for tool, agent in one.agent_tools.items()
    ]
    return handoffs + asks


_LARGEST_MESSAGE = 2 * 2**20

_LARGEST_RUN = 64 * 2**20

_PING = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request of the page."""

    receive: AsgiReceive
    send: AsgiSend
    headers: Mapping[str, str]
    path: Mapping[str, str]

    async def body(self, limit: int = _LARGEST_MESSAGE) -> Mapping[str, Any]:
        """Return what was posted.

        Raises:
            Refusal: 400 or 413.
        """
        raw = await read_body(self.receive, limit, self.headers.get("content-length"))
        try:
            data: object = json.loads(raw or b"{}")
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "The request is no JSON.", "bad_json") from error
        if not isinstance(data, dict):
            raise Refusal(400, "The request is no JSON object.", "bad_json")
        return cast("Mapping[str, Any]", data)

    async def reply(self, **body: Any) -> None:
        """Answer."""
        await send_json(self.send, 200, body)


class DevEndpoint:
    """One thing that can be asked for, as an ASGI app."""

    def __init__(self, handle: Callable[[PageRequest], Awaitable[None]]) -> None:
        self._handle = handle

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        """Answer one request."""
        path = cast("Mapping[str, str]", scope.get("path_params", {}))
        await self._handle(PageRequest(receive=receive, send=send, headers=headers_of(scope), path=path))


class DevRoutes:
    """Answers the page.

    Args:
        agents: those to talk to; the first is chosen if the page does not say.
        conversations: the conversations.
        source: where the agents came from, and their runs' context and settings.
        traces: files that may be loaded by name.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any]],
        conversations: DevConversations,
        source: Source,
        traces: Sequence[str | PathLike[str]],
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        if len(self._agents) != len(agents):
            raise ConfigError("Two of the agents to talk to have the same name; give each its own.")
        self._conversations = conversations
        self._source = source
        self._traces = _by_name([Path(path) for path in traces])

    def endpoint(self, handle: Callable[[PageRequest], Awaitable[None]]) -> DevEndpoint:
        """Return one of the methods as an ASGI app."""
        return DevEndpoint(handle)

    def settings(self) -> dict[str, Any]:
        """Return what the page is told when it is loaded."""
        return {"agents": list(self._agents), "traces": list(self._traces), "spec": self._source.agent}

    async def begin(self, asked: PageRequest) -> None:
        """Begin a conversation, and give the picture of its graph."""
        name = (await asked.body()).get("agent")
        agent = self._agents.get(name if isinstance(name, str) else next(iter(self._agents)))
        if agent is None:
            raise Refusal(404, f"There is no agent {name!r:.80} to talk to.", "no_agent")
        conversation = self._conversations.begin(agent)
        picture = graph_svg(agent, active=agent.name, agents=self._source.run_config.agents)
        await asked.reply(id=conversation.id, agent=agent.name, graph=picture)

    async def answer(self, asked: PageRequest) -> None:
        """Answer the user's message, or decisions on calls that wait, with lines; see `conversations.py`."""
        conversation = self._conversations.find(asked.path["id"])
        said = _said(await asked.body())
        out = EventStream(asked.send, {})
        await attended(
            asked.receive, lambda: self._told(conversation, said, out), lambda: out.keep_alive(_PING)
        )
        await out.end()

    async def _told(self, conversation: DevConversation, said: Said, out: EventStream) -> None:
        put, take = anyio.create_memory_object_stream[Mapping[str, Any] | str](math.inf)
        refused: list[Refusal] = []

        async def run() -> None:
            with put:
                try:
                    await self._conversations.answer(conversation, said, put.send_nowait)
                except Refusal as refusal:
                    refused.append(refusal)

        async with anyio.create_task_group() as group, take:
            group.start_soon(run)
            async for line in take:
                await out.data(line)
        if refused:
            raise refused[0]

    async def stop(self, asked: PageRequest) -> None:
        """Stop the run of a conversation, if one goes on."""
        self._conversations.find(asked.path["id"]).stop()
        await asked.reply()

    async def graph(self, asked: PageRequest) -> None:
        """Draw the graph of a run of a trace: its first record is in the request."""
        (run,) = _runs([await asked.body()])
        await asked.reply(graph=outline_svg(outline_of_trace(run.start), active=run.start.agent))

    async def test(self, asked: PageRequest) -> None:
        """Write a test of a run, whose records are in the request."""
        records: list[Any] | None = (await asked.body(_LARGEST_RUN)).get("records")
        if not isinstance(records, list):
            raise Refusal(400, "The request has no list of records.", "no_records")
        (run,) = _runs(records)
        try:
            await asked.reply(code=replay_test(run, self._source))
        except ValueError as error:
            raise Refusal(409, str(error), "no_test") from error

    async def trace(self, asked: PageRequest) -> None:
        """Send a file of traces that was named when the app was made."""
        path = self._traces.get(asked.path["name"])
        if path is None:
            raise Refusal(404, "This trace was not named on the command line: --trace FILE.", "no_trace")
        try:
            text = await anyio.Path(path).read_text("utf-8", "replace")
        except OSError as error:
            raise Refusal(404, f"{path} cannot be read: {error.strerror}.", "no_trace") from error
        await asked.reply(name=path.name, text=text)


def _by_name(paths: Sequence[Path]) -> dict[str, Path]:
    """Return files by their names; those that share a name by their paths, as they were given."""
    names = Counter(path.name for path in set(paths))
    return {path.name if names[path.name] == 1 else str(path): path for path in paths}


def _said(body: Mapping[str, Any]) -> Said:
    """Return what the user says.

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


def _runs(records: Sequence[Any]) -> Sequence[TracedRun]:
    """Return the one run that records are of.

    Raises:
        Refusal: 400.
    """
    log = read_trace(json.dumps(record).encode() for record in records)
    if len(log.runs) != 1 or log.unreadable:
        raise Refusal(400, "These are not the records of one run.", "bad_records")
    return log.runs


NEEDS = "The dev page needs starlette and uvicorn, which are missing: pip install 'routelock[serve]'."


def create_dev_app(
    agents: Agent[Any] | Sequence[Agent[Any]],
    *,
    spec: str | None = None,
    context_spec: str | None = None,
    config_spec: str | None = None,
    traces: Sequence[str | PathLike[str]] = (),
    run_config: RunConfig | None = None,
    context: Callable[[], MaybeAwaitable[Any]] | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> Starlette:
    """Return an ASGI app with a page to talk to agents, for this machine alone.

    Args:
        agents: one agent, or several to choose from.
        spec: where they came from, as ``module:attribute``; a test that is copied imports them from there.
        context_spec: where ``context``, or what it returns, came from.
        config_spec: where ``run_config``, or a function that returns it, came from.
        traces: files of traces that the page may load by name, as in ``/?trace=runs.jsonl``; two of one name
            by their paths, as given here.
        run_config: the settings of every run.
        context: makes the object that is passed as ``context=`` to each run.
        max_turns: most model calls of one run; None for no limit.

    Raises:
        MissingExtra: Starlette is not installed.
        ConfigError: the agents cannot run.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - an extra
        from starlette.middleware import Middleware  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra(NEEDS) from error
    listed = [agents] if isinstance(agents, Agent) else list(agents)
    if not listed:
        raise ConfigError("The dev page needs an agent to talk to.")
    config = run_config or RunConfig()
    for agent in listed:
        run_graph(agent, config)
    token = secrets.token_urlsafe(24)
    source = Source(
        agent=spec,
        context=context_spec,
        config=config_spec,
        has_context=context is not None,
        run_config=config,
    )
    routes = DevRoutes(listed, DevConversations(config, context, max_turns=max_turns), source, traces)
    return Starlette(routes=_routes(routes, token), middleware=[Middleware(LocalOnly, token=token)])


def _routes(routes: DevRoutes, token: str) -> list[Any]:
    from starlette.responses import Response  # noqa: PLC0415 - an extra
    from starlette.routing import Route  # noqa: PLC0415

    static = static_files()

    async def index(request: Request) -> Response:
        return Response(index_page({**routes.settings(), "token": token}), media_type="text/html")

    async def file(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        if found is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(found[0], media_type=found[1])

    return [
        Route("/", index, methods=["GET"]),
        Route("/static/{name}", file, methods=["GET"]),
        Route("/traces/{name:path}", routes.endpoint(routes.trace), methods=["GET"]),
        Route("/talks", routes.endpoint(routes.begin), methods=["POST"]),
        Route("/talks/{id}/messages", routes.endpoint(routes.answer), methods=["POST"]),
        Route("/talks/{id}/stop", routes.endpoint(routes.stop), methods=["POST"]),
        Route("/graph", routes.endpoint(routes.graph), methods=["POST"]),
        Route("/test", routes.endpoint(routes.test), methods=["POST"]),
    ]


def serve_dev(
    agents: Agent[Any] | Sequence[Agent[Any]],
    *,
    host: str = "127.0.0.1",
    port: int = 8001,
    spec: str | None = None,
    context_spec: str | None = None,
    config_spec: str | None = None,
    traces: Sequence[str | PathLike[str]] = (),
    run_config: RunConfig | None = None,
    context: Callable[[], MaybeAwaitable[Any]] | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    log_level: str = "warning",
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        agents: one agent, or several to choose from.
        host: an address of this machine's own.
        port: 0 takes any that is free.
        spec: see `create_dev_app`.
        context_spec: see `create_dev_app`.
        config_spec: see `create_dev_app`.
        traces: see `create_dev_app`.
        run_config: see `create_dev_app`.
        context: see `create_dev_app`.
        max_turns: see `create_dev_app`.
        log_level: of the server.

    Raises:
        MissingExtra: Starlette or uvicorn is not installed.
        ConfigError: other machines could reach the host, the port is taken, or the agents cannot run.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"The dev page runs tools for whoever reaches it, so it does not listen on {host}. To reach it "
            "from elsewhere, forward a port: ssh -L 8001:127.0.0.1:8001 thismachine."
        )
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(NEEDS) from error
    app = create_dev_app(
        agents,
        spec=spec,
        context_spec=context_spec,
        config_spec=config_spec,
        traces=traces,
        run_config=run_config,
        context=context,
        max_turns=max_turns,
    )
    with _listening(host, port) as listener, suppress(KeyboardInterrupt):
        name = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"The dev page is at http://{name}:{listener.getsockname()[1]} until Ctrl-C.\n")
        settings = uvicorn.Config(
            app, log_level=log_level, ws="none", server_header=False, timeout_graceful_shutdown=1
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"Port {port} cannot be used: {error.strerror}. Take another; 0 is any.") from error
