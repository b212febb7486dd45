"""What commands that run agents have in common: which agent, under which settings, with which keys."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from routelock._callables import takes
from routelock.agents.agent import Agent
from routelock.cli.screen import Waiting
from routelock.errors import ConfigError
from routelock.run.config import RunConfig, listed
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock_providers.litellm.library import load_litellm

__all__ = [
    "CONFIG",
    "RunOptions",
    "declare_agent",
    "declare_run",
    "declare_trace",
    "find_object",
    "keys_present",
    "load_agents",
    "load_object",
    "needs_litellm",
    "port",
    "ready_litellm",
    "run_options",
    "the_agent",
    "the_config",
]


_OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")


def keys_present() -> list[str]:
    """Return the names of those that are set: the known ones, and whatever ends like a key."""
    return sorted(
        name for name, value in os.environ.items() if value and (name.endswith("_API_KEY") or name in _OTHERS)
    )


def load_agents(spec: str) -> Sequence[Agent[Any]]:
    """Return the agents that ``module:attribute`` stands for. The current directory is looked in first.

    Args:
        spec: the attribute is an agent, a list of agents, or a function of nothing that returns either.

    Raises:
        ConfigError: there is no such thing, or it could not be loaded.
    """
    found = load_object(spec, "app:agent for agent in app.py")
    listed = cast("Sequence[object]", found if isinstance(found, list | tuple) else (found,))
    if not listed or not all(isinstance(each, Agent) for each in listed):
        raise ConfigError(f"{spec!r} must be an Agent, or a list or function of agents, not {found!r:.80}.")
    return cast("Sequence[Agent[Any]]", listed)


def load_object(spec: str, example: str) -> object:
    """Return what ``module:attribute`` stands for; a function is called, an agent is not.

    Args:
        spec: as it was typed.
        example: one that works, for messages.

    Raises:
        ConfigError: there is no such thing, or it could not be loaded.
    """
    found = find_object(spec, example)
    if isinstance(found, Agent) or not callable(found):
        return cast("object", found)
    return _called(spec, found)


def find_object(spec: str, example: str) -> Any:
    """Return what ``module:attribute`` stands for, as it is.

    Args:
        spec: as it was typed.
        example: one that works, for messages.

    Raises:
        ConfigError: there is no such thing, or its module could not be loaded.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{spec!r} must be module:attribute, such as {example}.")
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{module_name!r} has no {path!r}.{_hint(found)}")
        found = getattr(found, name)
    return found


def _module(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(_nowhere(name, here)) from error
        raise _broken(f"The module {name!r}", error) from error
    except (Exception, SystemExit) as error:
        raise _broken(f"The module {name!r}", error) from error


def _nowhere(name: str, here: str) -> str:
    """Say that a module is not there, and how it is written when a path was typed."""
    if not name.endswith(".py") and "/" not in name:
        return f"There is no module {name!r} in {here} or on the Python path."
    module = ".".join(Path(name).with_suffix("").parts)
    return f"There is no module {name!r}: it takes a module and no path, such as {module}:agent."


def _called(spec: str, function: Callable[..., object]) -> object:
    if inspect.iscoroutinefunction(function):
        raise ConfigError(
            f"The function {spec!r} is async; name one that can be called without an event loop."
        )
    if not takes(function, 0):
        raise ConfigError(f"The function {spec!r} has to take no arguments, because it is given none.")
    try:
        return function()
    except (Exception, SystemExit) as error:  # which would end us with a code that means something else
        raise _broken(f"The function {spec!r}", error) from error


def _broken(what: str, error: BaseException) -> ConfigError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    why, file, line = str(error), last.filename, last.lineno
    if isinstance(error, SyntaxError):  # in a file that has no frame yet
        why, file, line = error.msg, error.filename or file, error.lineno or line
    why = f"{type(error).__name__}: {why}".partition("\n")[0]
    return ConfigError(f"{what} raised {why} ({file}, line {line})")


def _hint(module: Any) -> str:
    known = cast("dict[str, Any]", getattr(module, "__dict__", {}))
    names = [name for name, value in known.items() if isinstance(value, Agent)]
    return f" Its agents: {', '.join(names)}." if names else ""


_SPEC = "an agent, a list of agents, or a function that returns them; in the current directory or installed"

_CONTEXT = "what tools and instructions are given; a function is called for it"

CONFIG = "a RunConfig with all other settings"

_LAST_PORT = 65535

_TURNS = "model calls (default: %(default)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Who answers, and how."""

    agent: Agent[Any]
    config: RunConfig
    context: Any
    max_turns: int


def declare_agent(command: argparse.ArgumentParser) -> None:
    """Add ``module:agent``, and which of several it is."""
    add = command.add_argument
    add("spec", metavar="module:agent", help=_SPEC)
    add("--agent", metavar="NAME", help="the one that begins, if there are several (default: the first)")


def declare_run(command: argparse.ArgumentParser) -> None:
    """Add what a run can be given."""
    add = command.add_argument_group("the run").add_argument
    add("--model", metavar="MODEL", help="answers for all agents, such as openai/gpt-4o-mini")
    add("--max-turns", type=int, default=DEFAULT_MAX_TURNS, metavar="N", help=_TURNS)
    add("--context", metavar="module:object", help=_CONTEXT)
    add("--config", metavar="module:object", help=CONFIG)


def declare_trace(command: argparse.ArgumentParser) -> None:
    """Add the file that a run is written into."""
    about = "write all that happens into a file, see routelock trace"
    command.add_argument("--trace", metavar="FILE", dest="trace_to", help=about)


def port(text: str) -> int:
    """Return the number of a port.

    Raises:
        ArgumentTypeError: there is no such port.
    """
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: it is a number from 0 to {_LAST_PORT}")
    return int(text)


def the_agent(given: argparse.Namespace) -> Agent[Any]:
    """Return the agent that begins.

    Raises:
        ConfigError: there is none, or none of that name.
    """
    return _found(given)[0]


def _found(given: argparse.Namespace) -> tuple[Agent[Any], Agent[Any]]:
    """Return the agent that begins, and the one through which it was found: its graph has them both."""
    with Waiting(f"loading {given.spec}"):
        agents = load_agents(given.spec)
    if given.agent is None:
        return agents[0], agents[0]
    known = {name: (agent, one) for one in reversed(agents) for name, agent in one.graph.items()}
    if given.agent not in known:
        raise ConfigError(f"There is no agent {given.agent!r} in {given.spec}. Known: {', '.join(known)}.")
    return known[given.agent]


def the_config(given: argparse.Namespace) -> RunConfig:
    """Return what ``--config`` stands for.

    Raises:
        ConfigError: there is no such thing, or it is no `RunConfig`.
    """
    config = RunConfig() if given.config is None else load_object(given.config, "app:config")
    if not isinstance(config, RunConfig):
        raise ConfigError(f"--config {given.config} must be a RunConfig, not {config!r:.80}.")
    return config


def run_options(given: argparse.Namespace) -> RunOptions:
    """Return what the arguments of `declare_agent` and `declare_run` ask for.

    Raises:
        ConfigError: something is not there, or is not what it should be.
    """
    agent, root = _found(given)
    config = the_config(given)
    if given.model is not None:
        config = replace(config, model=given.model)
    if (trace_to := getattr(given, "trace_to", None)) is not None:
        config = replace(config, trace=[*listed(config.trace), trace_to])
    if given.max_turns < 1:
        raise ConfigError(f"--max-turns must be at least 1, not {given.max_turns}.")
    return RunOptions(
        agent=agent,
        config=replace(config, agents=(*config.agents, agent, root)),  # who begins may name the root
        context=None if given.context is None else load_object(given.context, "app:shop"),
        max_turns=given.max_turns,
    )


def needs_litellm(options: RunOptions) -> bool:
    """Whether a model is given as a string, so that litellm answers for it."""
    graphs = (one.graph.values() for one in (options.agent, *options.config.agents))
    members = (member for graph in graphs for member in graph)
    return any(
        isinstance(each.handler, str)
        for member in members
        for each in handlers_by_priority(member, options.config)
    )


def ready_litellm(options: RunOptions) -> None:
    """Load litellm if a run will need it, which takes seconds, and say so."""
    if needs_litellm(options):
        with Waiting("loading litellm, once"):
            load_litellm()
