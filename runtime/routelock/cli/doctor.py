"""``routelock doctor``: the installed packages, the API keys that are set, and the destinations of models."""

from __future__ import annotations

import argparse
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from routelock._redaction import redact_text
from routelock._text import escape_control
from routelock.agents.registry import RegisteredHandler
from routelock.cli.command import Command
from routelock.cli.exit_codes import DONE, FAILED
from routelock.cli.options import keys_present, load_agents
from routelock.cli.screen import Waiting, error_line
from routelock_providers.chat_completions.openai_compatible import Destination
from routelock_providers.errors import to_provider_error
from routelock_providers.litellm.handler import LiteLLM
from routelock_providers.litellm.library import load_litellm
from routelock_providers.litellm.prices import model_info
from routelock_providers.vendors import split_model

__all__ = ["doctor_command"]


_LIBRARIES = ("litellm", "openai", "pydantic", "anyio", "docstring-parser", "typing-extensions")

_SPEC = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

_ADDRESSES = ("_BASE_URL", "_API_BASE", "_PROXY", "_proxy")

_DEVELOPMENT = ("browser", "docs", "lint", "release", "test")
"""Extras for the development of routelock."""


def _declare(command: argparse.ArgumentParser) -> None:
    about = "show the destination of these"
    command.add_argument("what", nargs="*", metavar="MODEL|module:agent", help=about)


def _run(given: argparse.Namespace) -> int:
    _print("installed", _installed())
    _print("extras", _extras())
    _print("keys in the environment", keys_present() or ["none"])
    if addresses := sorted(name for name in os.environ if name.endswith(_ADDRESSES)):
        _print("addresses in the environment", addresses)
    healthy = [_print_destinations(what) for what in given.what]
    return DONE if all(healthy) else FAILED


def _print(title: str, lines: Iterator[str] | list[str]) -> None:
    sys.stdout.write(f"{title}\n" + "".join(f"  {escape_control(line)}\n" for line in lines))


def _installed() -> Iterator[str]:
    yield f"routelock {_version('routelock') or '(a checkout)'}"
    yield f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in _LIBRARIES:
        yield f"{name} {_version(name) or 'is missing'}"


def _extras() -> Iterator[str]:
    """Yield a line for each extra, with its packages from routelock's metadata."""
    extras: dict[str, list[str]] = {}
    for line in _requirements():
        start, mark = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if start and mark and start[0] != "routelock" and mark[1] not in _DEVELOPMENT:
            extras.setdefault(mark[1], []).append(start[0])
    for extra, names in sorted(extras.items()):
        found = [f"{name} {_version(name)}" for name in names if _version(name)]
        missing = [name for name in names if not _version(name)]
        hint = f"; missing: {', '.join(missing)} (pip install 'routelock[{extra}]')" if missing else ""
        yield f"{extra}: {', '.join(found) or 'nothing'}{hint}"


def _requirements() -> list[str]:
    try:
        return requires("routelock") or []
    except PackageNotFoundError:
        return []


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _print_destinations(what: str) -> bool:
    """Print the destination of a model, or of each agent; return whether all can be called."""
    if not _SPEC.fullmatch(what):
        return _model(what, LiteLLM(what))
    healthy = True
    for agent in {name: each for one in load_agents(what) for name, each in one.graph.items()}.values():
        for registered in agent.registered.handlers:
            healthy = _handler(agent.name, registered) and healthy
    return healthy


def _handler(agent: str, registered: RegisteredHandler) -> bool:
    """Print the destination of a handler; return whether it can be called."""
    handler = registered.handler
    title = f"agent {agent}: {registered.written}"
    if isinstance(handler, str):
        return _model(title, LiteLLM(handler))
    if isinstance(handler, LiteLLM):
        return _model(title, handler)
    tells: Any = getattr(handler, "destination", None)
    found: object = tells() if callable(tells) else None
    if not isinstance(found, Destination):
        _print(title, [f"answered by {type(handler).__name__}"])
        return True
    _print(
        title,
        [
            f"provider  {found.provider}",
            f"model     {found.model}",
            f"address   {found.address}",
            f"key       {found.key}",
        ],
    )
    return found.ready


def _model(title: str, handler: LiteLLM) -> bool:
    model = handler.model
    try:
        with Waiting("loading litellm, once"):
            target = handler.target()
    except Exception as error:
        _print(title, [error_line(to_provider_error(error, provider=split_model(model)[0], model=model))])
        return False
    litellm = load_litellm()
    missing = _missing(litellm, model) if target.api_key is None else []
    if target.api_base:
        missing = [name for name in missing if not name.endswith(_ADDRESSES)]
    prices = model_info(litellm, target.provider, target.name) or {}
    is_priced = prices.get("input_cost_per_token") is not None
    price = "known" if is_priced else "unknown, so results have no cost"
    _print(
        title,
        [
            f"provider  {target.provider}",
            f"model     {target.name}",
            f"address   {redact_text(target.api_base or '') or 'the usual one'}",
            f"API       {'Responses' if target.responses else 'chat'}",
            f"key       {'missing: set ' + ' and '.join(missing) if missing else 'there, or not needed'}",
            f"price     {price}",
        ],
    )
    return not missing


def _missing(litellm: Any, model: str) -> list[str]:
    found: dict[str, Any] = litellm.validate_environment(model)
    return [] if found.get("keys_in_environment") else [str(name) for name in found.get("missing_keys") or ()]


doctor_command: Command = Command(
    name="doctor",
    help="Show installed packages, the names of the API keys that are set, and destinations of models.",
    declare=_declare,
    run=_run,
    more="""examples:
  routelock doctor
  routelock doctor openai/gpt-4o-mini ollama/qwen3:8b
  routelock doctor app:agent                 every agent of the graph""",
)
