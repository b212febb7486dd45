"""An app that answers as OpenAI's chat completions do, for agents.

Starlette is imported when an app is made, so that ``import interlock.serving`` needs no extra.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from interlock.agents import Agent
from interlock.errors import MissingExtra
from interlock.serving.catalog import Catalog
from interlock.serving.chunks import Completion
from interlock.serving.config import ServeConfig, ServedRequest
from interlock.serving.guards import Guards, Principal
from interlock.serving.jobs import Job, job_of
from interlock.serving.pending import PendingRuns
from interlock.serving.refusals import Refusal, refusal_for
from interlock.serving.requests import ChatRequest, parse
from interlock.serving.wire import (
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

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["create_app"]

_BODY_SECONDS = 30.0
_LONGEST_TRACEPARENT = 256
_PARTING_SECONDS = 2.0

_logger = logging.getLogger("interlock.serving")


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
    * ``handoff_context``, an object, and the ``traceparent`` header are in ``shared_memory
      ["handoff_context"]`` of the run. Its ``hops`` counts the servers that a request has passed.
    * A client that leaves cancels its run.

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
            "Serving needs starlette and uvicorn, which are not installed: pip install 'interlock[serve]'."
        ) from error
    service = _Service(agents, config or ServeConfig())
    ends: list[tuple[str, _Handle, str]] = [
        ("/models", service.models, "GET"),
        ("/models/{id:path}", service.model, "GET"),
        ("/chat/completions", service.complete, "POST"),
    ]
    routes = [
        Route(prefix + path, _Endpoint(service.guards, handle), methods=[method])
        for prefix in ("", "/v1")
        for path, handle, method in ends
    ]
    return Starlette(
        routes=[Route("/health", _health, methods=["GET"]), *routes],
        exception_handlers={HTTPException: _stray, Exception: _stray},
        lifespan=service.lifespan,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Incoming:
    """A request that may be answered."""

    scope: AsgiScope
    receive: AsgiReceive
    send: AsgiSend
    request_id: str
    headers: Mapping[str, str]
    principal: Principal

    @property
    def own_headers(self) -> dict[str, str]:
        return {"x-request-id": self.request_id}

    async def reply(self, body: Mapping[str, Any]) -> None:
        """Answer."""
        await send_json(self.send, 200, body, self.own_headers)

    async def read(self, limit: int) -> bytes:
        """Return the body."""
        with anyio.move_on_after(_BODY_SECONDS):
            return await read_body(self.receive, limit, self.headers.get("content-length"))
        raise Refusal(
            408, "The body did not arrive in time.", "body_timeout", headers={"connection": "close"}
        )


_Handle = Callable[[_Incoming], Awaitable[None]]


class _Endpoint:
    """Lets in who may ask, and says why to the others. A class, so that Starlette takes it for an app."""

    def __init__(self, guards: Guards, handle: _Handle) -> None:
        self._guards = guards
        self._handle = handle

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        request_id, headers = f"req_{uuid.uuid4().hex}", headers_of(scope)
        started = False

        async def tracked(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            started = True
            await send(message)

        async def refuse(refusal: Refusal) -> None:
            _log(request_id, refusal)
            shown = {"x-request-id": request_id, **refusal.headers}
            await send_json(send, refusal.status, refusal.body(request_id), shown)

        try:
            self._guards.check_host(headers.get("host", ""))
            incoming = _Incoming(
                scope=scope,
                receive=receive,
                send=tracked,
                request_id=request_id,
                headers=headers,
                principal=self._guards.authenticate(headers.get("authorization", "")),
            )
            await self._handle(incoming)
        except ClientGone:
            _logger.info("%s: the client has left", request_id)
        except Refusal as refusal:
            await refuse(refusal)
        except asyncio.CancelledError:
            # servers on asyncio cancel what still runs when they end; to pass it on would only be logged
            if not started:
                await refuse(_closing())


class _Service:
    """What the routes do."""

    def __init__(self, agents: Agent[Any] | Sequence[Agent[Any]], config: ServeConfig) -> None:
        self.guards = Guards(config)
        self._config = config
        self._catalog = Catalog(agents, config.run_config)
        self._created = int(time.time())
        self._pending = PendingRuns(
            most=config.max_pending, size=config.pending_bytes, ttl=config.pending_ttl
        )

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Let the requests that the server has cancelled tell their clients before the process ends."""
        yield
        with anyio.move_on_after(_PARTING_SECONDS):
            await self.guards.drained()

    async def models(self, incoming: _Incoming) -> None:
        """List the model ids."""
        listed = [self._model(name) for name in self._catalog.names]
        await incoming.reply({"object": "list", "data": listed})

    async def model(self, incoming: _Incoming) -> None:
        """Describe one model; all of them when a slash is all that follows."""
        if not incoming.scope["path_params"]["id"]:
            return await self.models(incoming)
        served = self._catalog.find(incoming.scope["path_params"]["id"])
        await incoming.reply(self._model(served.agent.name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "interlock"}

    async def complete(self, incoming: _Incoming) -> None:
        """Answer a chat."""
        self.guards.check_content_type(incoming.headers.get("content-type", ""))
        with self.guards.slot():
            asked = parse(await incoming.read(self._config.max_body))
            job = self._job(incoming, asked)
            _logger.info("%s: model %r for %s", incoming.request_id, job.about.model, job.about.principal)
            if asked.stream:
                await self._stream(incoming, job)
            else:
                await self._whole(incoming, job)

    def _job(self, incoming: _Incoming, asked: ChatRequest) -> Job:
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
        served.check_tools(asked.tools)
        model = served.agent.name
        completion = Completion(id=f"chatcmpl-{uuid.uuid4().hex}", model=model, created=int(time.time()))
        return job_of(served, asked, _about(incoming, asked, model), completion, self._config, self._pending)

    async def _whole(self, incoming: _Incoming, job: Job) -> None:
        try:
            with anyio.move_on_after(self._config.timeout):
                body = await attended(incoming.receive, job.whole)
                await incoming.reply(body)
                return
        except ClientGone:
            raise
        except Exception as error:
            raise refusal_for(error) from error
        raise self._too_late

    async def _stream(self, incoming: _Incoming, job: Job) -> None:
        stream = EventStream(incoming.send, incoming.own_headers)
        refusal = self._too_late
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
            refusal = _closing()
        except Exception as error:
            refusal = refusal_for(error)
            refusal.__cause__ = error
        if not stream.started:
            raise refusal
        _log(incoming.request_id, refusal)
        await stream.fail(refusal.body(incoming.request_id))

    @property
    def _too_late(self) -> Refusal:
        return Refusal(
            504,
            f"The run took longer than the {self._config.timeout:g} seconds that this server allows.",
            "timeout",
            headers={"x-should-retry": "false"},
        )


def _closing() -> Refusal:
    return Refusal(503, "The server is shutting down.", "shutting_down", headers={"x-should-retry": "false"})


_SECRETS = ("authorization", "cookie", "proxy-authorization")


def _about(incoming: _Incoming, asked: ChatRequest, model: str) -> ServedRequest:
    context = dict(asked.handoff_context)
    if trace := incoming.headers.get("traceparent", "")[:_LONGEST_TRACEPARENT]:
        context["traceparent"] = trace
    return ServedRequest(
        request_id=incoming.request_id,
        model=model,
        principal=incoming.principal.name,
        scopes=incoming.principal.scopes,
        user=asked.user,
        headers={name: value for name, value in incoming.headers.items() if name not in _SECRETS},
        handoff_context=context,
    )


def _log(request_id: str, refusal: Refusal) -> None:
    """Tell the server's owner what the client is told, and the whole story where it is the server's fault."""
    if refusal.status < 500:
        _logger.info("%s: %s", request_id, refusal)
    else:
        _logger.error("%s: %s", request_id, refusal, exc_info=refusal.__cause__)


async def _health(request: Request) -> Response:
    """Say that the server is up, to whoever asks."""
    return _json({"status": "ok"}, 200, {})


async def _stray(request: Request, error: Exception) -> Response:
    """Answer what no route takes, and what nobody foresaw, in the form that clients read."""
    status = int(getattr(error, "status_code", 500))
    messages = {
        404: f"There is nothing at {request.url.path[:200]}. Set the base URL to end in /v1.",
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
    from starlette.responses import JSONResponse  # noqa: PLC0415 - an extra

    return JSONResponse(body, status, headers)
