"""The routes of responses: make one, show one, delete one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from starlette.routing import BaseRoute, Route

from routelock.history.messages import Message
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import ServedAgent, ServedApp
from routelock.serving.config import ServedRequest
from routelock.serving.http import AsciiJSON, Endpoint, Incoming
from routelock.serving.pending_runs import HeldRun, PendingRuns
from routelock.serving.requests import check_known
from routelock.serving.responses.kept_responses import KeptResponses
from routelock.serving.responses.reply import ResponseReply
from routelock.serving.responses.requests import ResponseRequest, parse_response_request
from routelock.serving.run_route import RunRoute
from routelock.serving.served_run import RunEnd, ServedReply, ServedRun, served_run

__all__ = ["ResponsesRoutes"]


class ResponsesRoutes:
    """The routes of responses, and the responses that are kept.

    Args:
        app: the agents, settings and checks of the app.
        pending: the runs that wait for their clients.
    """

    def __init__(self, app: ServedApp, pending: PendingRuns) -> None:
        self._config, self._access, self._pending = app.config, app.access, pending
        self._kept = KeptResponses(app.config.response_sessions, bounds_of(app.config))
        self._runs = RunRoute(
            app=app,
            parse=partial(parse_response_request, client_settings=app.config.client_settings),
            start=self._start,
            named_by="type",
        )

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route(f"{prefix}{path}", Endpoint(self._access, handle), methods=[method])
            for prefix in ("/v1", "")
            for path, handle, method in (
                ("/responses", self._runs.respond, "POST"),
                ("/responses/{id}", self._show, "GET"),
                ("/responses/{id}", self._delete, "DELETE"),
            )
        ]

    async def _show(self, incoming: Incoming) -> None:
        check_known(dict(incoming.request.query_params), ())
        body = await self._kept.find(incoming.principal.name, incoming.request.path_params["id"])
        await incoming.respond(AsciiJSON(body))

    async def _delete(self, incoming: Incoming) -> None:
        name = incoming.request.path_params["id"]
        await self._kept.remove(incoming.principal.name, name)
        await incoming.respond(AsciiJSON({"id": name, "object": "response", "deleted": True}))

    async def _start(self, served: ServedAgent, asked: ResponseRequest, about: ServedRequest) -> ServedReply:
        found = None
        if asked.previous is not None:
            kept = await self._kept.previous(about.principal, asked.previous, served)
            found = kept.continued(asked.messages)
        own: list[Message] = []
        if asked.instructions:
            own.append({"role": "system", "content": asked.instructions})
        run = served_run(served, asked, about, self._config, self._pending, found, own)
        keep = partial(self._keep, run) if asked.store else None
        return run.reply(ResponseReply(_head(asked, about), keep, asked.call_forms))

    async def _keep(self, run: ServedRun, body: Mapping[str, Any], end: RunEnd) -> None:
        await self._kept.keep(run.about.principal, body, end.waiting or _ended(run, end))


def _ended(run: ServedRun, end: RunEnd) -> HeldRun:
    """Return a finished run as it is kept for the user's next message."""
    sticky = run.run_config.next_agent == "sticky"
    agent = end.result.next_agent if sticky else run.served.agent
    return HeldRun(agent=agent, handler="", messages=end.result.to_input_list()).without(run.own)


def _head(asked: ResponseRequest, about: ServedRequest) -> Mapping[str, Any]:
    """Return the constant parameters of a response."""
    return {
        "id": f"resp_{os.urandom(16).hex()}",
        "object": "response",
        "created_at": int(time.time()),
        "model": about.model,
        "background": False,
        "frequency_penalty": 0.0,
        "max_tool_calls": None,
        "presence_penalty": 0.0,
        "service_tier": "default",
        "top_logprobs": 0,
        "truncation": "disabled",
        **asked.echo,
    }
