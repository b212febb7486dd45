"""The dev page as an app, and the server for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from os import PathLike
from typing import TYPE_CHECKING, Any

from routelock._callables import MaybeAwaitable
from routelock.agents.agent import Agent
from routelock.errors import ConfigError, MissingExtra
from routelock.run.config import RunConfig
from routelock.run.start import DEFAULT_MAX_TURNS, run_graph
from routelock.serving.auth import is_loopback
from routelock.serving.dev.conversations import DevConversations, MakeSession
from routelock.serving.dev.pytest_export import Source
from routelock.serving.listener import listen
from routelock.sessions.session import Session

if TYPE_CHECKING:
    from starlette.applications import Starlette

__all__ = ["create_dev_app", "serve_dev"]


_NEEDS = "The dev page needs starlette and uvicorn, which are missing: pip install 'routelock[serve]'."


def create_dev_app(
    agents: Agent[Any] | Sequence[Agent[Any]],
    *,
    spec: str | None = None,
    context_spec: str | None = None,
    config_spec: str | None = None,
    traces: Sequence[str | PathLike[str]] = (),
    run_config: RunConfig | None = None,
    context: Callable[[], MaybeAwaitable[Any]] | None = None,
    session: Session | MakeSession | None = None,
    max_turns: int | None = DEFAULT_MAX_TURNS,
) -> Starlette:
    """Return an ASGI app with a page to chat with agents, for this machine only.

    Args:
        agents: one agent, or several to choose from.
        spec: where the agents are defined, as ``module:attribute``; a copied test imports them from there.
        context_spec: where ``context``, or its result, is defined.
        config_spec: where ``run_config``, or a function that returns it, is defined.
        traces: trace files that the page may load by name, as in ``/?trace=runs.jsonl``; two files with the
            same name by their paths, as given here.
        run_config: the settings of every run.
        context: makes the object that is passed as ``context=`` to each run.
        session: stores the messages of the page; or a function that makes a session for each conversation.
        max_turns: most model calls of one run; None for no limit.

    Raises:
        MissingExtra: Starlette is not installed.
        ConfigError: the agents cannot run.
    """
    try:
        from routelock.serving.dev.routes import dev_app  # noqa: PLC0415 - it needs the extra
    except ModuleNotFoundError as error:
        raise MissingExtra(_NEEDS) from error
    listed = [agents] if isinstance(agents, Agent) else list(agents)
    if not listed:
        raise ConfigError("The dev page needs an agent.")
    config = run_config or RunConfig()
    for agent in listed:
        run_graph(agent, config)
    source = Source(
        agent=spec,
        context=context_spec,
        config=config_spec,
        has_context=context is not None,
        run_config=config,
    )
    made = (lambda: session) if isinstance(session, Session) else session
    conversations = DevConversations(config, context, session=made, max_turns=max_turns)
    return dev_app(listed, conversations, source, traces)


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
    session: Session | MakeSession | None = None,
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
        session: see `create_dev_app`.
        max_turns: see `create_dev_app`.
        log_level: of the server.

    Raises:
        MissingExtra: Starlette or uvicorn is not installed.
        ConfigError: other machines could reach the host, the port is taken, or the agents cannot run.
    """
    if not is_loopback(host):
        raise ConfigError(
            f"The dev page runs tools for every caller, so it does not listen on {host}. To reach it "
            "from elsewhere, forward a port: ssh -L 8001:127.0.0.1:8001 thismachine."
        )
    if find_spec("uvicorn") is None:
        raise MissingExtra(_NEEDS)
    app = create_dev_app(
        agents,
        spec=spec,
        context_spec=context_spec,
        config_spec=config_spec,
        traces=traces,
        run_config=run_config,
        context=context,
        session=session,
        max_turns=max_turns,
    )
    _serve(app, host, port, log_level)


def _serve(app: Starlette, host: str, port: int, log_level: str) -> None:
    import uvicorn  # noqa: PLC0415 - an extra

    with listen(host, port) as listener, suppress(KeyboardInterrupt):
        name = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"The dev page is at http://{name}:{listener.getsockname()[1]} until Ctrl-C.\n")
        settings = uvicorn.Config(
            app, log_level=log_level, ws="none", server_header=False, timeout_graceful_shutdown=1
        )
        uvicorn.Server(settings).run(sockets=[listener])
