"""``routelock serve module:agent``: an endpoint that speaks OpenAI's chat completions and Responses API."""

from __future__ import annotations

import argparse
import gc
import logging
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast, get_args

from routelock._callables import MaybeAwaitable, takes
from routelock._lazy import needs_extra
from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, WRONG
from routelock.cli.options import (
    CONFIG,
    Wanted,
    config_of,
    find_object,
    load_agents,
    load_object,
    port,
    wanted_context,
)
from routelock.cli.screen import Waiting
from routelock.errors import ConfigError
from routelock.serving import A2A, AGUI, MCP, ServeConfig, ServedRequest, create_app
from routelock.serving.auth import LOOPBACK, is_loopback
from routelock.serving.config import ClientSettings
from routelock.serving.listener import listen
from routelock.sessions import SessionStore, SQLiteSessions

__all__ = ["CONTEXT", "request_context", "serve_command"]


CONTEXT = (
    "the context of the runs, or a function that returns it: called once, or for each request if it takes an "
    "argument"
)

_SETTINGS = (
    "the treatment of temperature, max_tokens and other settings of clients (default: responses use them, "
    "chat completions ignore them)"
)

_RESPONSES = (
    "keep the responses that previous_response_id names in this SQLite file, or in the store of sessions at "
    "module:object (default: in memory, for fifteen minutes)"
)


_THRESHOLDS = (50_000, 20, 100)
"""How many objects are made between two garbage collections, see `gc.set_threshold`; Python's own: 700."""


def _is_store(found: object) -> bool:
    return not isinstance(found, type) and hasattr(found, "load") and hasattr(found, "append")


_STORES = Wanted("app:store", "stores of sessions", _is_store)


def _declare(command: argparse.ArgumentParser) -> None:
    defaults = ServeConfig()
    add = command.add_argument
    add("spec", metavar="module:agent", help="an agent, a list of agents, or a function that returns them")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=port, default=8000, help="0 takes any free one (default: %(default)s)")
    add("--api-key-env", metavar="NAME", help="environment variable with the required bearer token")
    add("--insecure", action="store_true", help="serve other machines without a key")
    add("--a2a", action="store_true", help="serve the Agent2Agent protocol, too")
    add("--a2a-versions", default="1.0,0.3", metavar="LIST", help="its versions (default: %(default)s)")
    add("--ag-ui", action="store_true", help="serve AG-UI, the protocol of front ends, too")
    add("--client-approvals", action="store_true", help="let clients of --a2a and --ag-ui approve calls")
    add("--mcp", action="store_true", help="serve the agents as tools of MCP, too, at /mcp")
    add("--no-client-tools", action="store_true", help="refuse requests with tools that the client would run")
    add("--client-settings", choices=get_args(ClientSettings), help=_SETTINGS)
    add("--response-sessions", metavar="STORE", help=_RESPONSES)
    add("--allow-host", metavar="NAME", action="append", help="answer under this Host header too")
    add("--context", metavar="module:object", help=CONTEXT)
    add("--config", metavar="module:object", help=CONFIG)
    add("--max-turns", type=int, default=defaults.max_turns, help="model calls per request")
    add("--max-concurrent", type=int, default=defaults.max_concurrent, help="requests at the same time")
    add("--max-body", type=int, default=defaults.max_body, metavar="BYTES", help="longest request")
    add("--timeout", type=float, default=defaults.timeout, metavar="SECONDS", help="longest run")
    add("--grace", type=int, default=10, metavar="SECONDS", help="time for running requests at shutdown")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))


def _serve(given: argparse.Namespace) -> int:
    with needs_extra("Serving needs starlette and uvicorn, which are not installed", "serve"):
        import uvicorn  # noqa: PLC0415 - an extra
    with Waiting(f"loading {given.spec}"):
        agents = load_agents(given.spec)
    app = create_app(agents, _config(given))
    with listen(given.host, given.port):  # uvicorn would log a port that is taken, in words of its own
        pass
    logging.basicConfig(format="%(levelname)s:     %(name)s: %(message)s")
    logging.getLogger("routelock").setLevel(given.log_level.upper())
    with _rare_collections():
        try:
            uvicorn.run(
                app,
                host=given.host,
                port=given.port,
                log_level=given.log_level,
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=given.grace,
            )
        except KeyboardInterrupt:  # older versions of uvicorn end like this
            return DONE
        except SystemExit:  # uvicorn could not listen and has logged it; its exit codes differ from ours
            return WRONG
    return DONE


@contextmanager
def _rare_collections() -> Generator[None]:
    """Have Python collect garbage rarely, because nearly all objects of a busy server are in use.

    What the start has made stays, and is not visited again. With 500 requests at once, as many collections as
    Python makes by itself would take a third of the CPU.
    """
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def _config(given: argparse.Namespace) -> ServeConfig:
    """Return the settings of the app from the arguments.

    Raises:
        ConfigError: other machines could run the agents without a key.
    """
    key = _key(given.api_key_env)
    if key is None and not is_loopback(given.host) and not given.insecure:
        raise ConfigError(
            f"Every client that reaches {given.host} could run these agents. Set --api-key-env NAME, or "
            "--insecure if you want that."
        )
    return ServeConfig(
        api_keys=None if key is None else [key],
        allowed_hosts=_hosts(given),
        client_tools=not given.no_client_tools,
        client_settings=given.client_settings,
        response_sessions=None if given.response_sessions is None else _store(given.response_sessions),
        max_turns=given.max_turns,
        max_concurrent=given.max_concurrent,
        max_body=given.max_body,
        timeout=given.timeout,
        a2a=_a2a(given) if given.a2a else None,
        ag_ui=AGUI(approvals=given.client_approvals) if given.ag_ui else None,
        mcp=MCP() if given.mcp else None,
        run_config=config_of(given),
        context=None if given.context is None else request_context(given.context),
    )


def _a2a(given: argparse.Namespace) -> A2A:
    return A2A(versions=given.a2a_versions.split(","), approvals=given.client_approvals)


def request_context(spec: str) -> Callable[[ServedRequest], MaybeAwaitable[Any]]:
    """Return the context function of the app: one that takes the request, or one with a shared result."""
    found: object = find_object(spec, wanted_context)
    if callable(found) and not takes(found, 0):
        return found
    shared = load_object(spec, wanted_context)
    return lambda request: shared


def _store(place: str) -> SessionStore:
    """Return the store of sessions in an SQLite file, or the one at ``module:object``."""
    if ":" not in place:
        return SQLiteSessions(place)
    # ServeConfig checks that it is one
    return cast("SessionStore", load_object(place, _STORES))


def _hosts(given: argparse.Namespace) -> Sequence[str] | None:
    if given.insecure:
        return ("*",)
    return (*given.allow_host, *LOOPBACK) if given.allow_host else None


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise ConfigError(f"--api-key-env {variable}: that environment variable is not set, or empty.")
    return key


serve_command: Command = Command(
    name="serve",
    help="Serve agents over HTTP to clients of OpenAI's chat completions and Responses API.",
    declare=_declare,
    run=_serve,
    more="""examples:
  routelock serve app:agent                      http://127.0.0.1:8000/v1, for this machine only
  routelock serve app:team --port 9000           each agent of a list is a model
  routelock serve app:agent --context app:shop   with a context for tools and instructions
  routelock serve app:agent --a2a                for clients of the Agent2Agent protocol, too
  routelock serve app:agent --mcp                for MCP hosts, too: http://127.0.0.1:8000/mcp
  routelock serve app:agent --response-sessions responses.db --client-settings refuse
  routelock serve app:agent --ag-ui              for front ends that speak AG-UI, too
  routelock serve app:agent --host 0.0.0.0 --api-key-env SHOP_KEY""",
)
