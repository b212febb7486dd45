"""The page on a socket of this machine."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent
from routelock.dev.app import NEEDS, create_dev_app
from routelock.errors import ConfigError, MissingExtra
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock.serving.guards import is_loopback

__all__ = ["serve_dev"]


def serve_dev(
    agents: Agent[Any] | Sequence[Agent[Any]],
    *,
    host: str = "127.0.0.1",
    port: int = 8001,
    spec: str | None = None,
    context_spec: str | None = None,
    config_spec: str | None = None,
    traces: Sequence[str | PathLike[str]] = (),
    run_config: RunConfig | None = None,
    context: Callable[[], MaybeAwaitable[Any]] | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
    log_level: str = "warning",
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        agents: one agent, or several to choose from.
        host: an address of this machine's own.
        port: 0 takes any that is free.
        spec: see `create_dev_app`.
        context_spec: see `create_dev_app`.
        config_spec: see `create_dev_app`.
        traces: see `create_dev_app`.
        run_config: see `create_dev_app`.
        context: see `create_dev_app`.
        max_turns: see `create_dev_app`.
        log_level: of the server.

    Raises:
        MissingExtra: Starlette or uvicorn is not installed.
        ConfigError: other machines could reach the host, the port is taken, or the agents cannot run.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"The dev page runs tools for whoever reaches it, so it does not listen on {host}. To reach it "
            "from elsewhere, forward a port: ssh -L 8001:127.0.0.1:8001 thismachine."
        )
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(NEEDS) from error
    app = create_dev_app(
        agents,
        spec=spec,
        context_spec=context_spec,
        config_spec=config_spec,
        traces=traces,
        run_config=run_config,
        context=context,
        max_turns=max_turns,
    )
    with _listening(host, port) as listener, suppress(KeyboardInterrupt):
        name = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"The dev page is at http://{name}:{listener.getsockname()[1]} until Ctrl-C.\n")
        settings = uvicorn.Config(
            app, log_level=log_level, ws="none", server_header=False, timeout_graceful_shutdown=1
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(f"Port {port} cannot be used: {error.strerror}. Take another; 0 is any.") from error
