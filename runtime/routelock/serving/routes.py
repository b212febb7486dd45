"""The routes of chat completions: models, and chats."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from routelock.agents.agent import Agent
from routelock.serving.a2a.routes import A2ARoutes
from routelock.serving.ag_ui.routes import AGUIRoutes
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import ServedAgent, app_of
from routelock.serving.completions import ChatReply, Completion
from routelock.serving.config import ServeConfig, ServedRequest
from routelock.serving.errors import Refusal, log_refusal, new_request_id, refusal_for
from routelock.serving.http import AsciiJSON, Endpoint, Incoming
from routelock.serving.mcp.routes import MCPRoutes
from routelock.serving.pending_runs import PendingRuns
from routelock.serving.requests import ChatRequest, parse
from routelock.serving.responses.routes import ResponsesRoutes
from routelock.serving.run_route import RunRoute
from routelock.serving.served_run import ServedReply, served_run

__all__ = ["ServedRoutes", "served_app"]


_PARTING_SECONDS = 2.0

_CODES = {404: "not_found", 405: "method_not_allowed"}


def served_app(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> Starlette:
    """Return the app; see `routelock.serving.create_app`."""
    served = ServedRoutes(agents, config)
    handlers: Mapping[Any, Any] = {HTTPException: _refuse_stray, Exception: _refuse_stray}
    return Starlette(routes=served.routes(), exception_handlers=handlers, lifespan=served.lifespan)


class ServedRoutes:
    """The routes of one app, and their state: agents, access, and the runs that wait for their clients.

    Raises:
        ConfigError: the agents cannot be served.
        MissingExtra: they are to be served by A2A or MCP, and its SDK is not installed.
    """

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> None:
        app = app_of(agents, config)
        self._catalog, self._config, self._access = app.catalog, config, app.access
        self._created = int(time.time())
        self._pending = PendingRuns(bounds_of(config))
        self._chat = RunRoute(
            app=app,
            parse=partial(parse, client_settings=config.client_settings),
            start=self._start_chat,
        )
        self._responses = ResponsesRoutes(app, self._pending)
        self._a2a = A2ARoutes(app, config.a2a) if config.a2a else None
        self._ag_ui = AGUIRoutes(app, config.ag_ui) if config.ag_ui else None
        self._mcp = MCPRoutes(app, config.mcp) if config.mcp else None

    def routes(self) -> list[BaseRoute]:
        """Return all routes of the app. Starlette tries one after another, so the most usual comes first."""
        mine = [
            Route(f"{prefix}{path}", Endpoint(self._access, handle), methods=[method])
            for prefix in ("/v1", "")
            for path, handle, method in (
                ("/chat/completions", self._chat.respond, "POST"),
                ("/models", self._list_models, "GET"),
                ("/models/{id:path}", self._show_model, "GET"),
            )
        ]
        health = Route("/health", _show_health, methods=["GET"])
        others = (self._responses, self._a2a, self._ag_ui, self._mcp)
        more = [each.routes() for each in others if each is not None]
        return [*mine, *chain.from_iterable(more), health]

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Wait until cancelled requests have sent their errors, before the process ends."""
        yield
        with anyio.move_on_after(_PARTING_SECONDS):
            if self._a2a:
                await self._a2a.close()
            if self._mcp:
                await self._mcp.close()
            await self._access.drained()

    async def _list_models(self, incoming: Incoming) -> None:
        listed = [self._model(name) for name in self._catalog.names]
        await incoming.respond(AsciiJSON({"object": "list", "data": listed}))

    async def _show_model(self, incoming: Incoming) -> None:
        """Describe one model. A path without a name lists all models."""
        if not (name := incoming.request.path_params["id"]):
            return await self._list_models(incoming)
        await incoming.respond(AsciiJSON(self._model(self._catalog.find(name).agent.name)))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "routelock"}

    async def _start_chat(self, served: ServedAgent, asked: ChatRequest, about: ServedRequest) -> ServedReply:
        run = served_run(served, asked, about, self._config, self._pending)
        completion = Completion(
            id=f"chatcmpl-{os.urandom(16).hex()}", model=about.model, created=int(time.time())
        )
        return run.reply(ChatReply(completion, include_usage=asked.include_usage))


async def _show_health(request: Request) -> Response:
    """Say that the server is up; this needs no key."""
    return AsciiJSON({"status": "ok"})


async def _refuse_stray(request: Request, error: Exception) -> Response:
    """Refuse a request that has no route, and answer an error that no route has answered."""
    if isinstance(error, HTTPException):
        messages = {
            404: f"There is nothing at {request.url.path[:200]}. There are /v1/chat/completions, "
            "/v1/responses and /v1/models; set a client's base URL to end in /v1.",
            405: f"{request.method} does not work here.",
        }
        status = error.status_code
        refusal = Refusal(
            status, messages.get(status, "The server failed."), _CODES.get(status, "internal_error")
        )
    else:
        refusal = refusal_for(error)
    request_id = new_request_id()
    log_refusal(request_id, refusal)
    return AsciiJSON(refusal.body(request_id), refusal.status, {"x-request-id": request_id})
