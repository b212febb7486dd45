"""From what an agent or a run names as its model and handlers to the one that answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from routelock.agents.agent import Agent
from routelock.agents.registry import RegisteredHandler, register
from routelock.errors import ConfigError, NoHandlerError
from routelock.handlers.port import Handler, Priority, is_handler
from routelock.run.config import RunConfig
from routelock.scopes import permits

__all__ = [
    "check_model",
    "default_name",
    "find_handler",
    "handler_for",
    "handlers_by_priority",
    "load",
    "named",
    "next_handler",
]


def handler_for(agent: Agent[Any], config: RunConfig, failed: Collection[str] = ()) -> Handler:
    """Return the handler that answers for an agent: the run's model if it names one, else its default.

    If that has failed in this run, its replacement answers, see ``RunConfig.fallback``.

    Raises:
        ConfigError: as `check_model` says.
        NoHandlerError: none of its handlers is open to whoever is asking.
    """
    plain = config.model is None and not (config.scopes or failed)
    known: Handler | None = agent.cache.get(handler_for) if plain else None
    if known is not None:
        return known
    check_model(agent, config)
    handlers = handlers_by_priority(agent, config)
    if not handlers:
        raise NoHandlerError(
            f"Agent {agent.name!r} has no handler that the scopes of this run may reach. "
            "See RunConfig(scopes=...)."
        )
    chosen = next((each for each in handlers if each.name not in failed), handlers[0])
    if plain and not isinstance(chosen.handler, str):
        agent.cache[handler_for] = chosen.handler
    return load(chosen)


def default_name(agent: Agent[Any], config: RunConfig) -> str:
    """Return the name of an agent's default handler in this run; empty if it has none."""
    handlers = handlers_by_priority(agent, config)
    return handlers[0].name if handlers else ""


def handlers_by_priority(agent: Agent[Any], config: RunConfig) -> Sequence[RegisteredHandler]:
    """Return the handlers that a run may reach, the default first, the others as fallback goes on.

    The run's own model takes the place of the first.
    """
    if config.model is None and not config.scopes:
        return agent.open_handlers
    handlers = [each for each in agent.registered.handlers if permits(each.scope, config.scopes)]
    if config.model is not None:
        own = register(config.model, priority=Priority.LOCAL, source="run")
        handlers = [own, *(each for each in handlers[1:] if each.name != own.name)]
    return handlers


def named(agent: Agent[Any], name: str, config: RunConfig) -> Handler:
    """Return the handler of that name, for a run that is to start with it.

    It is one of the agent's own, or one that it hands over to.

    Raises:
        ConfigError: the agent has none of that name, or not for whoever is asking.
    """
    if (found := find_handler(agent, name, config)) is not None:
        return found
    known = ", ".join(repr(each.name) for each in handlers_by_priority(agent, config)) or "none"
    raise ConfigError(
        f"RunConfig(handler={name!r}): agent {agent.name!r} has no such handler that the run's scopes "
        f"may reach. There are: {known}."
    )


def find_handler(agent: Agent[Any], name: str, config: RunConfig) -> Handler | None:
    """Return the handler of that name which an agent has or hands over to, if the run may reach it."""
    for each in handlers_by_priority(agent, config):
        if each.name == name:
            return load(each)
    for edge in agent.edges:
        target = edge.to_handler
        if target is not None and target.name == name and permits(edge.scope or "all", config.scopes):
            return target
    return None


def next_handler(agent: Agent[Any], failed: str, tried: Collection[str], config: RunConfig) -> Handler | None:
    """Return who answers after a handler that failed: the next by priority that was not tried yet.

    After the last of them, and after a handler that is none of the agent's own, that is its default.
    """
    handlers = handlers_by_priority(agent, config)
    place = next((place for place, each in enumerate(handlers, 1) if each.name == failed), 0)
    others = (each for each in [*handlers[place:], *handlers[:place]] if each.name != failed)
    return next((load(each) for each in others if each.name not in tried), None)


def load(registered: RegisteredHandler) -> Handler:
    """Return the handler itself; a model string becomes the bundled LiteLLM handler."""
    return _bundled(registered.handler) if isinstance(registered.handler, str) else registered.handler


def check_model(agent: Agent[Any], config: RunConfig) -> None:
    """Make sure that something can answer for an agent.

    Raises:
        NoHandlerError: neither the agent nor the run names a model or a handler.
        ConfigError: what is named is neither a model string nor a handler.
    """
    model = agent.model if config.model is None else config.model
    if model is None and not agent.registered.handlers:
        raise NoHandlerError(
            f"Agent {agent.name!r} has no model. Give it one, such as Agent(..., model='openai/gpt-4o'), "
            "or handlers=[...], or set RunConfig(model=...) for the whole run."
        )
    if not (model is None or isinstance(model, str) or is_handler(model)):
        raise ConfigError(
            f"The model of agent {agent.name!r} must be a model string or a handler, not {model!r:.80}. "
            "Wrap a function with routelock.function_handler(...)."
        )


def _bundled(model: str) -> Handler:
    # The one upward import: the core must load without litellm, which costs seconds and 160 MB.
    from routelock_providers.litellm.handler import LiteLLM  # noqa: PLC0415

    return LiteLLM(model)
