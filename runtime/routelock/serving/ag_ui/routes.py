"""The routes of AG-UI. Access, bodies and limits are those of the app."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from routelock.serving.ag_ui.requests import RunRequest, parse_run_request
from routelock.serving.ag_ui.run import user_run
from routelock.serving.ag_ui.threads import Threads
from routelock.serving.auth import AccessControl
from routelock.serving.bounded_store import bounds_of
from routelock.serving.catalog import Catalog, ServedAgent
from routelock.serving.config import AGUI, ServeConfig, ServedRequest
from routelock.serving.http import Endpoint
from routelock.serving.run_route import RunRoute
from routelock.serving.served_run import ServedReply

__all__ = ["AGUIRoutes"]


_PATH = "/ag-ui"


class AGUIRoutes:
    """The protocol's routes, and the runs that wait for their clients.

    Args:
        catalog: the served agents.
        settings: the settings of the protocol.
        config: keys, limits and settings.
        access: the checks of a request.
    """

    def __init__(self, catalog: Catalog, settings: AGUI, config: ServeConfig, access: AccessControl) -> None:
        self._access, self._settings, self._config = access, settings, config
        self._threads = Threads(bounds_of(config))
        self._runs = RunRoute(
            access=access, catalog=catalog, config=config, parse=parse_run_request, start=self._start
        )

    def routes(self) -> list[BaseRoute]:
        """Return the routes: one for the first agent, and one for each by its name."""
        answer = Endpoint(self._access, self._runs.respond)
        return [Route(path, answer, methods=["POST"]) for path in (_PATH, f"{_PATH}/{{agent:path}}")]

    async def _start(self, served: ServedAgent, asked: RunRequest, about: ServedRequest) -> ServedReply:
        run = user_run(served, asked, about, self._config, self._settings, self._threads)
        return ServedReply(stream=run.stream, fail=run.events.fail)
