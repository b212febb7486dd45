"""What the routes of a served app do."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from routelock.agents.agent import Agent
from routelock.serving.a2a import A2ARoutes
from routelock.serving.catalog import Catalog
from routelock.serving.chunks import Completion
from routelock.serving.config import ServeConfig
from routelock.serving.endpoints import Incoming, ServedRoute, closing, log_refusal
from routelock.serving.guards import Guards
from routelock.serving.jobs import Job, job_of
from routelock.serving.pending import PendingRuns
from routelock.serving.refusals import Refusal, out_of_time, refusal_for
from routelock.serving.requests import ChatRequest, parse
from routelock.serving.wire import ClientGone, EventStream, attended

__all__ = ["Service"]

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
