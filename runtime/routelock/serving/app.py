"""An app that answers as OpenAI's chat completions do, for agents.

Starlette is imported when an app is made, so that ``import routelock.serving`` needs no extra.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from routelock.agents.agent import Agent
from routelock.errors import ConfigError, MissingExtra
from routelock.serving.config import ServeConfig
from routelock.serving.endpoints import Endpoint
from routelock.serving.refusals import Refusal
from routelock.serving.service import Service

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["create_app"]


_logger = logging.getLogger("routelock.serving")


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
