"""The app of the page: the files of the page, conversations, pictures of graphs, and tests of runs.

Starlette is imported when an app is made, so that ``import routelock.dev`` needs no extra.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent
from routelock.dev.desk import Desk
from routelock.dev.door import Door
from routelock.dev.pages import index_page, static_files
from routelock.dev.replays import Source
from routelock.dev.talks import Talks
from routelock.errors import ConfigError, MissingExtra
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS, run_graph

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["create_dev_app"]


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
    desk = Desk(listed, Talks(config, context, max_turns=max_turns), source, traces)
    return Starlette(routes=_routes(desk, token), middleware=[Middleware(Door, token=token)])


def _routes(desk: Desk, token: str) -> list[Any]:
    from starlette.responses import Response  # noqa: PLC0415 - an extra
    from starlette.routing import Route  # noqa: PLC0415

    static = static_files()

    async def index(request: Request) -> Response:
        return Response(index_page({**desk.settings(), "token": token}), media_type="text/html")

    async def file(request: Request) -> Response:
        found = static.get(request.path_params["name"])
        if found is None:
            return Response("There is no such file.", 404, media_type="text/plain")
        return Response(found[0], media_type=found[1])

    return [
        Route("/", index, methods=["GET"]),
        Route("/static/{name}", file, methods=["GET"]),
        Route("/traces/{name:path}", desk.end(desk.trace), methods=["GET"]),
        Route("/talks", desk.end(desk.begin), methods=["POST"]),
        Route("/talks/{id}/messages", desk.end(desk.answer), methods=["POST"]),
        Route("/talks/{id}/stop", desk.end(desk.stop), methods=["POST"]),
        Route("/graph", desk.end(desk.graph), methods=["POST"]),
        Route("/test", desk.end(desk.test), methods=["POST"]),
    ]
