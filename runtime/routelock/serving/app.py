"""An app that answers as OpenAI's chat completions do, for agents.

Starlette is imported when an app is made, so that ``import routelock.serving`` needs no extra.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio

from routelock.agents.agent import Agent
from routelock.errors import ConfigError, MissingExtra
from routelock.serving.a2a.routes import A2ARoutes
from routelock.serving.auth import Guards
from routelock.serving.catalog import Catalog, Endpoint, Incoming, ServedRoute, closing, log_refusal
from routelock.serving.completions import ClientGone, Completion, EventStream, attended
from routelock.serving.config import ServeConfig
from routelock.serving.errors import Refusal, out_of_time, refusal_for
from routelock.serving.pending_runs import PendingRuns
from routelock.serving.requests import ChatRequest, Job, job_of, parse

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["Service", "create_app"]


_PARTING_SECONDS = 2.0

_logger = logging.getLogger("routelock.serving")


class Service:
    """The state of one app: its agents, who may ask, and the runs that wait for their clients.

    Raises:
        ConfigError: the agents cannot be served.
    """

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> None:
        self.guards = Guards(config)
        self._config = config
        self._catalog = Catalog(agents, config.run_config)
        self._a2a = A2ARoutes(self._catalog, config.a2a, config, self.guards) if config.a2a else None
        self._created = int(time.time())
        self._pending = PendingRuns(
            most=config.max_pending, size=config.pending_bytes, ttl=config.pending_ttl
        )

    @property
    def routes(self) -> list[ServedRoute]:
        """The routes."""
        mine = [
            ServedRoute(f"{prefix}{path}", handle, method)
            for prefix in ("", "/v1")
            for path, handle, method in (
                ("/models", self.models, "GET"),
                ("/models/{id:path}", self.model, "GET"),
                ("/chat/completions", self.complete, "POST"),
            )
        ]
        return [*mine, *(self._a2a.routes if self._a2a else ())]

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Let the requests that the server has cancelled tell their clients before the process ends."""
        yield
        with anyio.move_on_after(_PARTING_SECONDS):
            if self._a2a:
                await self._a2a.close()
            await self.guards.drained()

    async def models(self, incoming: Incoming) -> None:
        """List the model ids."""
        listed = [self._model(name) for name in self._catalog.names]
        await incoming.reply({"object": "list", "data": listed})

    async def model(self, incoming: Incoming) -> None:
        """Describe one model; all of them when a slash is all that follows."""
        if not incoming.scope["path_params"]["id"]:
            return await self.models(incoming)
        served = self._catalog.find(incoming.scope["path_params"]["id"])
        await incoming.reply(self._model(served.agent.name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "routelock"}

    async def complete(self, incoming: Incoming) -> None:
        """Answer a chat."""
        self.guards.check_content_type(incoming.headers.get("content-type", ""))
        with self.guards.slot():
            asked = parse(await incoming.read(self._config.max_body, self._config.body_timeout))
            job = self._job(incoming, asked)
            _logger.info("%s: model %r for %s", incoming.request_id, job.about.model, job.about.principal)
            if asked.stream:
                await self._stream(incoming, job)
            else:
                await self._whole(incoming, job)

    def _job(self, incoming: Incoming, asked: ChatRequest) -> Job:
        if asked.hops > self._config.max_hops:
            raise Refusal(
                508,
                f"The request has passed {asked.hops} servers, and {self._config.max_hops} are allowed: do "
                "agents of several servers hand it to each other?",
                "too_many_hops",
                "handoff_context.hops",
                headers={"x-should-retry": "false"},
            )
        served = self._catalog.find(asked.model)
        served.check_tools(asked.tools, allowed=self._config.client_tools)
        model = served.agent.name
        completion = Completion(id=f"chatcmpl-{uuid.uuid4().hex}", model=model, created=int(time.time()))
        about = incoming.about(model, user=asked.user, handoff_context=asked.handoff_context)
        return job_of(served, asked, about, completion, self._config, self._pending)

    async def _whole(self, incoming: Incoming, job: Job) -> None:
        try:
            with anyio.move_on_after(self._config.timeout):
                body = await attended(incoming.receive, job.whole)
                await incoming.reply(body)
                return
        except ClientGone:
            raise
        except Exception as error:
            raise refusal_for(error) from error
        raise out_of_time(self._config.timeout)

    async def _stream(self, incoming: Incoming, job: Job) -> None:
        stream = EventStream(incoming.send, incoming.own_headers)
        refusal = out_of_time(self._config.timeout)
        try:
            with anyio.move_on_after(self._config.timeout):
                ping = partial(stream.keep_alive, self._config.ping)
                await attended(incoming.receive, partial(job.stream, stream), ping)
                await stream.end()
                return
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not stream.started:
                raise
            refusal = closing()
        except Exception as error:
            refusal = refusal_for(error)
            refusal.__cause__ = error
        if not stream.started:
            raise refusal
        log_refusal(incoming.request_id, refusal)
        await stream.fail(refusal.body(incoming.request_id))


def create_app(agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig | None = None) -> Starlette:
    """Return an ASGI app that serves agents to any client of OpenAI's chat completions.

    Routes, each also below ``/v1``: ``GET /models``, ``GET /models/{id}``, ``POST /chat/completions``;
    and ``GET /health``, which asks for no key. A model id is the name of an agent; an empty one or
    ``"default"`` is the first.

    * The agents own their settings: ``temperature``, ``max_tokens``, ``response_format`` and whatever
      else a client sends is ignored, but for ``messages``, ``model``, ``stream``, ``stream_options``,
      ``tools``, ``tool_choice``, ``user``, ``n`` (which must be 1) and ``handoff_context``.
    * ``tools`` are the client's to run: a call of one ends the turn with ``finish_reason``
      ``"tool_calls"``. Tools of the agents and transfers run here and are never shown as calls.
    * The content is all that the agents of the run wrote, texts of different replies a blank line apart;
      if the agent that answers has an ``output_type`` it is that output alone, and nothing is streamed
      before. ``x_agent`` on a delta or message names who speaks.
    * ``handoff_context``, an object, and the ``traceparent`` header are in
      ``shared_memory["handoff_origin"]`` of the run. Its ``hops`` counts the servers passed.
    * A client that leaves cancels its run.

    With ``ServeConfig(a2a=A2A())`` it also answers clients of the Agent2Agent protocol, see `A2A` and
    docs/a2a.md.

    Args:
        agents: one agent, or several.
        config: keys, limits and settings.

    Raises:
        MissingExtra: Starlette is not installed.
        ConfigError: the agents cannot be served.
    """
    try:
        from starlette.applications import Starlette  # noqa: PLC0415 - an extra
        from starlette.exceptions import HTTPException  # noqa: PLC0415
        from starlette.routing import Route  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Serving needs starlette and uvicorn, which are not installed: pip install 'routelock[serve]'."
        ) from error
    if not isinstance(cast("object", config), ServeConfig | None):
        raise ConfigError(f"config must be a ServeConfig, not {type(config).__name__}.")
    service = Service(agents, config or ServeConfig())
    routes = [
        Route(each.path, Endpoint(service.guards, each), methods=[each.method]) for each in service.routes
    ]
    return Starlette(
        routes=[Route("/health", _health, methods=["GET"]), *routes],
        exception_handlers={HTTPException: _stray, Exception: _stray},
        lifespan=service.lifespan,
    )


async def _health(request: Request) -> Response:
    """Say that the server is up, to whoever asks."""
    return _json({"status": "ok"}, 200, {})


async def _stray(request: Request, error: Exception) -> Response:
    """Answer what no route takes, and what nobody foresaw, in the form that clients read."""
    status = int(getattr(error, "status_code", 500))
    messages = {
        404: f"There is nothing at {request.url.path[:200]}. There are /v1/chat/completions and /v1/models; "
        "set a client's base URL to end in /v1.",
        405: f"{request.method} does not work here.",
    }
    request_id = f"req_{uuid.uuid4().hex}"
    refusal = Refusal(
        status, messages.get(status, "The server failed."), _CODES.get(status, "internal_error")
    )
    if status >= 500:
        _logger.error("%s: %s", request_id, refusal, exc_info=error)
    return _json(refusal.body(request_id), status, {"x-request-id": request_id})


_CODES = {404: "not_found", 405: "method_not_allowed"}


def _json(body: Mapping[str, Any], status: int, headers: Mapping[str, str]) -> Response:
    from starlette.responses import Response  # noqa: PLC0415 - an extra

    # ASCII, unlike Starlette's own: an address may have half of a character in it
    return Response(json.dumps(body), status, headers, media_type="application/json")
