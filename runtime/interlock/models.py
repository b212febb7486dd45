"""From what an agent or a run names as its model to the handler that answers."""

from __future__ import annotations

from typing import Any

from interlock.agents import Agent
from interlock.config import RunConfig
from interlock.errors import ConfigError, NoHandlerError
from interlock.port import Handler

__all__ = ["check_model", "handler_for"]


def handler_for(agent: Agent[Any], config: RunConfig) -> Handler:
    """Return the handler that answers for an agent: the run's model if it names one, else its own.

    Raises:
        ConfigError: as `check_model` says.
    """
    model = check_model(agent, config)
    return _bundled(model) if isinstance(model, str) else model


def check_model(agent: Agent[Any], config: RunConfig) -> str | Handler:
    """Return the model string or handler that answers for an agent.

    Raises:
        NoHandlerError: neither the agent nor the run names a model.
        ConfigError: what is named is neither a model string nor a handler.
    """
    model = agent.model if config.model is None else config.model
    if model is None:
        raise NoHandlerError(
            f"Agent {agent.name!r} has no model. Give it one, such as Agent(..., model='openai/gpt-4o'), "
            "or set RunConfig(model=...) for the whole run."
        )
    if isinstance(model, str):
        return model
    # a Protocol is not checked at run time, and whoever passes a function deserves to hear what to do
    if callable(getattr(model, "stream", None)) and isinstance(getattr(model, "name", None), str):
        return model
    raise ConfigError(
        f"The model of agent {agent.name!r} must be a model string or a handler, not {model!r:.80}. "
        "Wrap a function with interlock.function_handler(...)."
    )


def _bundled(model: str) -> Handler:
    # The one upward import: the core must load without litellm, which costs seconds and 160 MB.
    from interlock_providers.litellm import LiteLLM  # noqa: PLC0415

    return LiteLLM(model)
