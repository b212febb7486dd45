"""The routes of AG-UI. Access, bodies and limits are those of the app."""

from __future__ import annotations

import logging
from functools import partial

from starlette.routing import BaseRoute, Route

from routelock.serving.ag_ui.requests import parse_run_request
from routelock.serving.ag_ui.run import UserRun, user_run
from routelock.serving.ag_ui.threads import Threads
from routelock.serving.auth import AccessControl
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import Catalog, ServedAgent
from routelock.serving.config import AGUI, ServeConfig
from routelock.serving.errors import Refusal, log_refusal
from routelock.serving.http import Endpoint, EventStream, Incoming, event_text, read_body

__all__ = ["AGUIRoutes"]


_PATH = "/ag-ui"

_logger = logging.getLogger("routelock.serving")


class AGUIRoutes:
    """The protocol's routes, and the runs that wait for their clients.

    Args:
        catalog: the served agents.
        settings: the settings of the protocol.
        config: keys, limits and settings.
        access: the checks of a request.
    """

    def __init__(self, catalog: Catalog, settings: AGUI, config: ServeConfig, access: AccessControl) -> None:
        self._catalog, self._settings, self._config, self._access = catalog, settings, config, access
        self._threads = Threads(bounds_of(config))

    def routes(self) -> list[BaseRoute]:
        """Return the routes: one for the first agent, and one for each by its name."""
        answer = Endpoint(self._access, self._answer)
        return [Route(path, answer, methods=["POST"]) for path in (_PATH, f"{_PATH}/{{agent:path}}")]

    async def _answer(self, incoming: Incoming) -> None:
        """Answer a request. Until the run begins, an error has a status; then it is an event."""
        self._access.check_content_type(incoming.request.headers.get("content-type", ""))
        served = self._named(incoming)
        with self._access.slot():
            body = await read_body(incoming.request, self._config.max_body, self._config.body_timeout)
            asked = parse_run_request(body)
            served.check_tools(asked.tools, allowed=self._config.client_tools)
            about = incoming.about(served.agent.name)
            run = user_run(served, asked, about, self._config, self._settings, self._threads)
            _logger.info("%s: AG-UI, %r for %s", incoming.id, about.model, about.principal)
            stream = EventStream(
                run.stream,
                ping=self._config.ping,
                timeout=self._config.timeout,
                last=partial(_failure, incoming.id, run),
            )
            await incoming.respond(stream)

    def _named(self, incoming: Incoming) -> ServedAgent:
        """Return the agent of a request's path. Some clients add a slash to the path."""
        name: str = incoming.request.path_params.get("agent", "")
        while name.endswith("/") and name not in self._catalog.names:
            name = name[:-1]
        return self._catalog.find(name)


def _failure(request_id: str, run: UserRun, refusal: Refusal) -> str:
    log_refusal(request_id, refusal)
    return event_text(run.events.fail(refusal))
