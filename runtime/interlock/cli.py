"""The command line: ``interlock serve module:agent``.

A command is a function of the parsed arguments, and one that declares them; `_COMMANDS` lists both.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from interlock.agents import Agent
from interlock.errors import ConfigError, MissingExtra
from interlock.serving import ServeConfig, create_app
from interlock.serving.guards import is_loopback

__all__ = ["load_agents", "main"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line and return the exit code: 2 when it cannot be.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    parser = argparse.ArgumentParser(prog="interlock", description="Agents on the command line.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, (help_text, declare, run) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text, description=help_text)
        declare(command)
        command.set_defaults(run=run)
    given = parser.parse_args(arguments)
    try:
        return cast(int, given.run(given))
    except ConfigError as error:
        sys.stderr.write(f"interlock: {error}\n")
        return 2


def load_agents(spec: str) -> Sequence[Agent[Any]]:
    """Return the agents that ``module:attribute`` stands for. The current directory is looked in first.

    Args:
        spec: the attribute is an agent, a list of agents, or a function of nothing that returns either.

    Raises:
        ConfigError: there is no such thing, or it could not be loaded.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{spec!r} must be module:attribute, such as app:agent for agent in app.py.")
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{module_name!r} has no {path!r}.{_hint(found)}")
        found = getattr(found, name)
    if callable(found) and not isinstance(found, Agent):
        found = _called(spec, cast("Callable[[], Any]", found))
    listed = cast("Sequence[object]", found if isinstance(found, list | tuple) else (found,))
    if not listed or not all(isinstance(each, Agent) for each in listed):
        raise ConfigError(f"{spec!r} must be an Agent, or a list or function of agents, not {found!r:.80}.")
    return cast("Sequence[Agent[Any]]", listed)


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(f"There is no module {name!r} in {here} or on the Python path.") from error
        raise _broken(f"The module {name!r}", error) from error
    except Exception as error:
        raise _broken(f"The module {name!r}", error) from error


def _called(spec: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        raise _broken(f"The function {spec!r}", error) from error


def _broken(what: str, error: Exception) -> ConfigError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    why = f"{type(error).__name__}: {error}".partition("\n")[0]
    return ConfigError(f"{what} raised {why} ({last.filename}, line {last.lineno})")


def _hint(module: Any) -> str:
    known = cast("dict[str, Any]", getattr(module, "__dict__", {}))
    names = [name for name, value in known.items() if isinstance(value, Agent)]
    return f" Its agents: {', '.join(names)}." if names else ""


def _declare_serve(command: argparse.ArgumentParser) -> None:
    defaults = ServeConfig()
    add = command.add_argument
    add("spec", metavar="module:agent", help="an agent, a list of agents, or a function that returns them")
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=int, default=8000, help="0 takes any free one (default: %(default)s)")
    add("--api-key-env", metavar="NAME", help="environment variable with the bearer token to ask for")
    add("--insecure", action="store_true", help="serve other machines without a key")
    add("--allow-host", metavar="NAME", action="append", help="answer under this Host header too")
    add("--max-turns", type=int, default=defaults.max_turns, help="model calls per request")
    add("--max-concurrent", type=int, default=defaults.max_concurrent, help="requests at the same time")
    add("--max-body", type=int, default=defaults.max_body, metavar="BYTES", help="longest request")
    add("--timeout", type=float, default=defaults.timeout, metavar="SECONDS", help="longest run")
    add("--grace", type=int, default=10, metavar="SECONDS", help="for what still runs when asked to end")
    add("--log-level", default="info", choices=("debug", "info", "warning", "error"))


def _serve(given: argparse.Namespace) -> int:
    try:
        import uvicorn  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "Serving needs starlette and uvicorn, which are not installed: pip install 'interlock[serve]'."
        ) from error
    app = create_app(load_agents(given.spec), _serve_config(given))
    logging.basicConfig(format="%(levelname)s:     %(name)s: %(message)s")
    logging.getLogger("interlock").setLevel(given.log_level.upper())
    with suppress(KeyboardInterrupt):  # that is how older versions end
        uvicorn.run(
            app,
            host=given.host,
            port=given.port,
            log_level=given.log_level,
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=given.grace,
        )
    return 0


def _serve_config(given: argparse.Namespace) -> ServeConfig:
    """Return the settings that the arguments ask for.

    Raises:
        ConfigError: anybody on the network could run the agents.
    """
    key = _key(given.api_key_env)
    if key is None and not is_loopback(given.host) and not given.insecure:
        raise ConfigError(
            f"Anybody who reaches {given.host} could run these agents. Set --api-key-env NAME, or "
            "--insecure if that is what you want."
        )
    return ServeConfig(
        api_keys=None if key is None else [key],
        allowed_hosts=_hosts(given),
        max_turns=given.max_turns,
        max_concurrent=given.max_concurrent,
        max_body=given.max_body,
        timeout=given.timeout,
    )


def _hosts(given: argparse.Namespace) -> Sequence[str] | None:
    if given.insecure:
        return ("*",)
    return (*given.allow_host, *_LOOPBACK) if given.allow_host else None


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not (key := os.environ.get(variable)):
        raise ConfigError(f"--api-key-env {variable}: that environment variable is not set, or empty.")
    return key


_Command = tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int]]

_COMMANDS: dict[str, _Command] = {
    "serve": ("Serve agents over HTTP, as OpenAI's chat completions do.", _declare_serve, _serve),
}
