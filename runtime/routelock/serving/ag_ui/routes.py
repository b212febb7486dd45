"""The routes of AG-UI. Access, bodies and limits are those of the app."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from routelock.serving.ag_ui.requests import RunRequest, parse_run_request
from routelock.serving.ag_ui.run import user_run
from routelock.serving.ag_ui.threads import Threads
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import ServedAgent, ServedApp
from routelock.serving.config import AGUI, ServedRequest
from routelock.serving.http import Endpoint
from routelock.serving.run_route import RunRoute
from routelock.serving.served_run import ServedReply

__all__ = ["AGUIRoutes"]


_PATH = "/ag-ui"


class AGUIRoutes:
    """The protocol's routes, and the runs that wait for their clients.

    Args:
        app: the agents, settings and checks of the app.
        settings: the settings of the protocol.
    """

    def __init__(self, app: ServedApp, settings: AGUI) -> None:
        self._app, self._settings = app, settings
        self._threads = Threads(bounds_of(app.config))
        self._runs = RunRoute(app=app, parse=parse_run_request, start=self._start)

    def routes(self) -> list[BaseRoute]:
        """Return the routes: one for the first agent, and one for each by its name."""
        answer = Endpoint(self._app.access, self._runs.respond)
        return [Route(path, answer, methods=["POST"]) for path in (_PATH, f"{_PATH}/{{agent:path}}")]

    async def _start(self, served: ServedAgent, asked: RunRequest, about: ServedRequest) -> ServedReply:
        run = user_run(served, asked, about, self._app.config, self._settings, self._threads)
        return ServedReply(stream=run.stream, fail=run.events.fail)
