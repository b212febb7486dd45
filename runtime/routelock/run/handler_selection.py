"""Selects the handler that answers for an agent in a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from routelock.agents.agent import Agent
from routelock.agents.agent_problems import check_model
from routelock.agents.registry import RegisteredHandler, register
from routelock.errors import ConfigError, NoHandlerError
from routelock.handlers.port import Handler, Priority
from routelock.run.config import RunConfig
from routelock.scopes import permits

__all__ = [
    "default_name",
    "find_handler",
    "handler_for",
    "handlers_by_priority",
    "load",
    "named",
    "next_handler",
]


def handler_for(agent: Agent[Any], config: RunConfig, failed: Collection[str] = ()) -> Handler:
    """Return the handler that answers for an agent: the run's model if it has one, else the default.

    Args:
        agent: the agent.
        config: settings of the run.
        failed: names of handlers that failed in this run; another one replaces them
            (``RunConfig.fallback``).

    Raises:
        ConfigError: as `check_model` says.
        NoHandlerError: the scopes of the run allow none of the agent's handlers.
    """
    if config.model is None and not (config.scopes or failed) and agent.default_handler is not None:
        return agent.default_handler
    check_model(agent, config.model)
    handlers = handlers_by_priority(agent, config)
    if not handlers:
        raise NoHandlerError(
            f"Agent {agent.name!r} has no handler that the scopes of this run may reach. "
            "See RunConfig(scopes=...)."
        )
    chosen = next((each for each in handlers if each.name not in failed), handlers[0])
    return load(chosen)


def default_name(agent: Agent[Any], config: RunConfig) -> str:
    """Return the name of an agent's default handler in this run; empty if it has none."""
    handlers = handlers_by_priority(agent, config)
    return handlers[0].name if handlers else ""


def handlers_by_priority(agent: Agent[Any], config: RunConfig) -> Sequence[RegisteredHandler]:
    """Return the handlers that a run may reach, in the order in which fallback tries them.

    The first is the default; the run's own model replaces it.
    """
    if config.model is None and not config.scopes:
        return agent.open_handlers
    handlers = [each for each in agent.registered.handlers if permits(each.scope, config.scopes)]
    if config.model is not None:
        own = register(config.model, priority=Priority.LOCAL, source="run")
        handlers = [own, *(each for each in handlers[1:] if each.name != own.name)]
    return handlers


def named(agent: Agent[Any], name: str, config: RunConfig) -> Handler:
    """Return the handler that ``RunConfig(handler=...)`` names, for the start of a run.

    It is one of the agent's own, or the target of one of its handoffs.

    Raises:
        ConfigError: the agent has no handler of that name, or the run's scopes do not allow it.
    """
    if (found := find_handler(agent, name, config)) is not None:
        return found
    known = ", ".join(repr(each.name) for each in handlers_by_priority(agent, config)) or "none"
    raise ConfigError(
        f"RunConfig(handler={name!r}): agent {agent.name!r} has no such handler that the run's scopes "
        f"may reach. There are: {known}."
    )


def find_handler(agent: Agent[Any], name: str, config: RunConfig) -> Handler | None:
    """Return the handler of a name that the agent has or hands off to, if the run may reach it; else None."""
    for each in handlers_by_priority(agent, config):
        if each.name == name:
            return load(each)
    for handoff in agent.all_handoffs:
        target = handoff.to_handler
        if target is not None and target.name == name and permits(handoff.scope or "all", config.scopes):
            return target
    return None


def next_handler(agent: Agent[Any], failed: str, tried: Collection[str], config: RunConfig) -> Handler | None:
    """Return the next handler by priority after one that failed, or None if all were tried.

    After the last one, and after a handler that is not the agent's own, the search starts at the default.
    """
    handlers = handlers_by_priority(agent, config)
    place = next((place for place, each in enumerate(handlers, 1) if each.name == failed), 0)
    others = (each for each in [*handlers[place:], *handlers[:place]] if each.name != failed)
    return next((load(each) for each in others if each.name not in tried), None)


def load(registered: RegisteredHandler) -> Handler:
    """Return the handler itself; a model string becomes the bundled LiteLLM handler."""
    return _bundled(registered.handler) if isinstance(registered.handler, str) else registered.handler


def _bundled(model: str) -> Handler:
    # an upward import: the core must load without litellm, which costs seconds and 160 MB
    from routelock_providers.litellm.handler import LiteLLM  # noqa: PLC0415

    return LiteLLM(model)
