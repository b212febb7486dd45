"""Arguments that several commands share: the agent, the settings and the context."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from routelock._callables import takes
from routelock.agents.agent import Agent
from routelock.agents.graph import members_of
from routelock.agents.registry import RegisteredHandler
from routelock.cli.screen import Waiting
from routelock.errors import ConfigError
from routelock.run.config import RunConfig
from routelock.run.config_problems import listed
from routelock.run.handler_selection import handlers_by_priority
from routelock.run.start import DEFAULT_MAX_TURNS
from routelock_providers.model_names import suggest_model
from routelock_providers.vendors import lacks_key, split_model

__all__ = [
    "CONFIG",
    "RunOptions",
    "Wanted",
    "agent_of",
    "close_litellm",
    "config_of",
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
    "wanted_context",
    "written_names",
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a place ``module:attribute`` is to hold, for error messages."""

    example: str
    """A valid place."""
    kind: str
    """What such objects are called."""
    fits: Callable[[object], bool]
    """Whether an object of the module may be meant."""


def _may_be_context(found: object) -> bool:
    """Whether an object of an app may be a context: no module, no class, and nothing of ours."""
    if inspect.isfunction(found):
        is_maker = not inspect.iscoroutinefunction(found) and takes(found, 0)
        return is_maker and not found.__module__.startswith("routelock")
    is_ours = type(found).__module__.startswith(("routelock", "__future__"))
    return not (is_ours or callable(found) or isinstance(found, ModuleType | str))


_AGENTS = Wanted("app:agent for agent in app.py", "agents", lambda found: isinstance(found, Agent))

_CONFIGS = Wanted("app:config", "settings of runs", lambda found: isinstance(found, RunConfig))

wanted_context: Wanted = Wanted("app:shop", "objects and functions that may be one", _may_be_context)

_OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS")


def keys_present() -> list[str]:
    """Return the names of the API keys in the environment."""
    return sorted(
        name for name, value in os.environ.items() if value and (name.endswith("_API_KEY") or name in _OTHERS)
    )


def load_agents(spec: str) -> Sequence[Agent[Any]]:
    """Return the agents at ``module:attribute``. The current directory comes first on the Python path.

    Args:
        spec: the place of an agent, a list of agents, or a function without arguments that returns them.

    Raises:
        ConfigError: the place does not exist, has no agents, or could not be loaded.
    """
    found = load_object(spec, _AGENTS)
    listed = cast("Sequence[object]", found if isinstance(found, list | tuple) else (found,))
    if not listed or not all(isinstance(each, Agent) for each in listed):
        raise ConfigError(f"{spec!r} must be an Agent, or a list or function of agents, not {found!r:.80}.")
    return cast("Sequence[Agent[Any]]", listed)


def load_object(spec: str, wanted: Wanted) -> object:
    """Return the object at ``module:attribute``, or the result if it is a function.

    Args:
        spec: the place.
        wanted: what it is to hold.

    Raises:
        ConfigError: the place does not exist, or could not be loaded.
    """
    found = find_object(spec, wanted)
    if isinstance(found, Agent) or not callable(found):
        return cast("object", found)
    return _result_of(spec, found)


def find_object(spec: str, wanted: Wanted) -> Any:
    """Return the object at ``module:attribute``. A function is not called.

    Args:
        spec: the place.
        wanted: what it is to hold.

    Raises:
        ConfigError: the place does not exist, or its module could not be loaded.
    """
    module_name, _, path = spec.partition(":")
    if not module_name or not path:
        raise ConfigError(f"{spec!r} must be module:attribute, such as {wanted.example}.")
    found: Any = _module(module_name)
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigError(f"{module_name!r} has no {path!r}.{_hint(found, wanted)}")
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
            raise ConfigError(_missing_module(name, here)) from error
        raise _load_error(f"The module {name!r}", error) from error
    except (Exception, SystemExit) as error:
        raise _load_error(f"The module {name!r}", error) from error


def _missing_module(name: str, here: str) -> str:
    """Return the error text for a missing module; for a path, with the name of its module."""
    if not name.endswith(".py") and "/" not in name:
        return f"There is no module {name!r} in {here} or on the Python path."
    module = ".".join(Path(name).with_suffix("").parts)
    return f"There is no module {name!r}: give the name of a module and not a path, such as {module}:agent."


def _result_of(spec: str, function: Callable[..., object]) -> object:
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"The function {spec!r} is async; it has to be a sync function.")
    if not takes(function, 0):
        raise ConfigError(f"The function {spec!r} has to take no arguments.")
    try:
        return function()
    # SystemExit would end the program with a code of another meaning
    except (Exception, SystemExit) as error:
        raise _load_error(f"The function {spec!r}", error) from error


def _load_error(what: str, error: BaseException) -> ConfigError:
    places = [
        (frame.f_globals.get("__name__", ""), frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    modules = [module for module, _, _ in places]
    runs = _RUNNER in modules
    if runs:  # the app has to change the line that calls the runner
        places = places[: modules.index(_RUNNER)]
    _, file, line = ([each for each in places if each[0].partition(".")[0] not in _NOT_THE_APP] or places)[-1]
    why = str(error)
    if isinstance(error, SyntaxError):  # the file with the error did not run, so it has no frame
        why, file, line = error.msg, error.filename or file, error.lineno or line
    why = f"{type(error).__name__}: {why}".partition("\n")[0]
    if notes := [note for note in getattr(error, "__notes__", ()) if "\n" not in note]:
        why = f"{why.removesuffix('.')}. {' '.join(notes)}"
    advice = '. It runs an agent: do that below `if __name__ == "__main__":`' if runs else ""
    return ConfigError(f"{what} raised {why} ({file}, line {line}){advice}")


def _hint(module: Any, wanted: Wanted) -> str:
    """Return the names of what a module has that fits."""
    known = cast("dict[str, Any]", getattr(module, "__dict__", {}))
    names = [name for name, value in known.items() if not name.startswith("_") and wanted.fits(value)]
    return f" Its {wanted.kind}: {', '.join(names[:_MOST_NAMES])}." if names else ""


_MOST_NAMES = 10

_SPEC = "an agent, a list of agents, or a function that returns them; in the current directory or installed"

_CONTEXT = "the context of the run, or a function that returns it"

CONFIG = "a RunConfig with all other settings"

_LAST_PORT = 65535

_RUNNER = "routelock.runner"

_NOT_THE_APP = {"routelock", "routelock_providers", "routelock_skills", "importlib", "_frozen_importlib"}
"""Packages whose lines do not say what to change in an app."""

_LITELLM = "routelock_providers.litellm.handler"
"""The module of `LiteLLM`: to import it takes as long as the rest of a command."""

_TURNS = "model calls (default: %(default)s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The agent, settings and context of a run."""

    agent: Agent[Any]
    config: RunConfig
    context: Any
    max_turns: int


def declare_agent(command: argparse.ArgumentParser) -> None:
    """Add the arguments ``module:agent`` and ``--agent``."""
    add = command.add_argument
    add("spec", metavar="module:agent", help=_SPEC)
    add(
        "--agent",
        metavar="NAME",
        help="the first agent of the run, if there are several (default: the first one)",
    )


def declare_run(command: argparse.ArgumentParser) -> None:
    """Add the arguments for the settings of a run."""
    add = command.add_argument_group("the run").add_argument
    add("--model", metavar="MODEL", help="the model of all agents, such as openai/gpt-4o-mini")
    add("--max-turns", type=int, default=DEFAULT_MAX_TURNS, metavar="N", help=_TURNS)
    add("--context", metavar="module:object", help=_CONTEXT)
    add("--config", metavar="module:object", help=CONFIG)


def declare_trace(command: argparse.ArgumentParser) -> None:
    """Add the argument ``--trace``."""
    about = "write a trace of the run into a file, see routelock trace"
    command.add_argument("--trace", metavar="FILE", dest="trace_to", help=about)


def port(text: str) -> int:
    """Return the number of a port.

    Raises:
        ArgumentTypeError: the text is not the number of a port.
    """
    if not text.isdecimal() or int(text) > _LAST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: it is a number from 0 to {_LAST_PORT}")
    return int(text)


def agent_of(given: argparse.Namespace) -> Agent[Any]:
    """Return the agent that ``--agent`` names, or the first agent.

    Raises:
        ConfigError: the agents could not be loaded, or no agent has that name.
    """
    return _found(given)[0]


def _found(given: argparse.Namespace) -> tuple[Agent[Any], Agent[Any]]:
    """Return the first agent, and the agent whose graph it was found in."""
    with Waiting(f"loading {given.spec}"):
        agents = load_agents(given.spec)
    if given.agent is None:
        return agents[0], agents[0]
    known = {name: (agent, one) for one in reversed(agents) for name, agent in one.graph.items()}
    if given.agent not in known:
        raise ConfigError(f"There is no agent {given.agent!r} in {given.spec}. Known: {', '.join(known)}.")
    return known[given.agent]


def config_of(given: argparse.Namespace) -> RunConfig:
    """Return the settings at the place of ``--config``.

    Raises:
        ConfigError: the place does not exist, or is not a `RunConfig`.
    """
    config = RunConfig() if given.config is None else load_object(given.config, _CONFIGS)
    if not isinstance(config, RunConfig):
        raise ConfigError(f"--config {given.config} must be a RunConfig, not {config!r:.80}.")
    return config


def run_options(given: argparse.Namespace) -> RunOptions:
    """Return the options of a run from the arguments of `declare_agent` and `declare_run`.

    Raises:
        ConfigError: an argument is wrong.
    """
    agent, root = _found(given)
    config = config_of(given)
    if given.model is not None:
        config = replace(config, model=given.model)
    if (trace_to := getattr(given, "trace_to", None)) is not None:
        config = replace(config, trace=[*listed(config.trace), trace_to])
    if given.max_turns < 1:
        raise ConfigError(f"--max-turns must be at least 1, not {given.max_turns}.")
    return RunOptions(
        agent=agent,
        config=replace(
            config, agents=(*config.agents, agent, root)
        ),  # the first agent may hand off to the root by name
        context=None if given.context is None else load_object(given.context, wanted_context),
        max_turns=given.max_turns,
    )


def needs_litellm(options: RunOptions) -> bool:
    """Return whether litellm answers for a model: one that is a string, or a `LiteLLM`."""
    graphs = (one.graph.values() for one in (options.agent, *options.config.agents))
    members = (member for graph in graphs for member in graph)
    return any(
        _uses_litellm(each) for member in members for each in handlers_by_priority(member, options.config)
    )


def _uses_litellm(registered: RegisteredHandler) -> bool:
    return isinstance(registered.handler, str) or type(registered.handler).__module__ == _LITELLM


def written_names(options: RunOptions) -> Mapping[str, str]:
    """Return the name to show for each handler of a run; the key is the handler's own name."""
    members = members_of(options.agent, options.config.agents).values()
    handlers = (each for member in members for each in handlers_by_priority(member, options.config))
    return {each.name: each.written for each in handlers}


def ready_litellm(options: RunOptions, *, piped: bool = False) -> None:
    """Load litellm if a run needs it. That takes seconds, so it is shown.

    It is not loaded if the first model cannot be called anyway: the run reports that without litellm.

    Args:
        options: those of the run.
        piped: whether to show it also if stderr is not a terminal.
    """
    if needs_litellm(options) and not _cannot_be_called(options):
        with Waiting("loading litellm, once", piped=piped):
            importlib.import_module("routelock_providers").load_litellm()


def _cannot_be_called(options: RunOptions) -> bool:
    """Return whether the first model has a wrong name, or no key in the environment.

    A key that is set on the handler or the agent is not noticed: then litellm is loaded at the first call.
    """
    first = next(iter(handlers_by_priority(options.agent, options.config)), None)
    if first is None or not _uses_litellm(first):
        return False
    model: str = first.handler if isinstance(first.handler, str) else cast("Any", first.handler).model
    return suggest_model(model) is not None or lacks_key(split_model(model)[0], os.environ)


async def close_litellm() -> None:
    """Close the connections of litellm if it was loaded."""
    if "litellm" in sys.modules:
        await importlib.import_module("routelock_providers").close_litellm()
