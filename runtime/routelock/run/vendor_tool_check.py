"""Checks that the handlers of an agent take the tools that their vendor runs."""

from __future__ import annotations

from typing import Any

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.handlers.port import Handler
from routelock.handoffs.handoff import Handoff
from routelock.run.config import RunConfig
from routelock.run.handler_selection import handlers_by_priority, load
from routelock.tools.tool import Tool

__all__ = ["vendor_tool_error"]


def vendor_tool_error(agent: Agent[Any], config: RunConfig) -> ConfigError | None:
    """Return why none of the handlers that may answer for an agent takes its vendor's tools.

    What only a request shows is found when the agent is asked: a tool that some runs are not offered, and a
    handler that a handoff switches to.
    """
    if any(edge.to_handler is not None for edge in agent.edges):
        return None
    errors = [_refusal(load(each), agent, config) for each in handlers_by_priority(agent, config)]
    return errors[0] if all(errors) and errors else None


def _refusal(handler: Handler, agent: Agent[Any], config: RunConfig) -> ConfigError | None:
    if (check := getattr(handler, "check_vendor_tools", None)) is None:
        return None
    specs = [each.spec for each in agent.fixed_vendor_tools]
    settings = {**config.model_settings, **agent.model_settings}
    routes: list[Tool | Handoff] = [*agent.all_tools, *agent.edges]
    try:
        check(specs, settings, functions=any(map(_is_fixed, routes)))
    except ConfigError as error:
        return ConfigError(f"Agent {agent.name!r}: {error}")
    return None


def _is_fixed(route: Tool | Handoff) -> bool:
    """Whether every run offers a tool or a handoff; that of a handoff without a target is not known."""
    is_open = route.is_enabled is True and route.scope == "all"
    return is_open and (isinstance(route, Tool) or route.target is not None)
