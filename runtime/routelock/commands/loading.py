"""From ``module:attribute`` on the command line to what it stands for."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from routelock._callables import takes
from routelock.agents.agent import Agent
from routelock.errors import ConfigError

__all__ = ["find_object", "load_agents", "load_object"]


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
