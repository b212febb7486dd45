"""From what is named as a model to the handler that answers."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent, RunConfig, function_handler
from routelock.agents.agent_problems import check_model
from routelock.errors import ConfigError, NoHandlerError
from routelock.run.handler_selection import handler_for, handlers_by_priority
from routelock.testing import ScriptedHandler


async def function(request: Any) -> str:
    return "Hi"


def test_an_agents_own_handler_answers_for_it() -> None:
    script = ScriptedHandler([])
    assert handler_for(Agent("A", model=script), RunConfig()) is script


def test_the_runs_model_comes_before_the_agents() -> None:
    script = ScriptedHandler([])
    agent = Agent("A", model="openai/gpt-4o")
    assert handler_for(agent, RunConfig(model=script)) is script


def test_model_string_uses_the_bundled_provider() -> None:
    """The one import upward, and it is lazy."""
    handler = handler_for(Agent("A", model="openai/gpt-4o"), RunConfig())
    assert type(handler).__module__.startswith("routelock_providers.")


@pytest.mark.parametrize("config", [RunConfig(), RunConfig(model="openai/gpt-4o")])
def test_checking_a_model_string_loads_nothing(config: RunConfig) -> None:
    check_model(Agent("A", model="openai/gpt-4o"), config.model)
    assert [each.handler for each in handlers_by_priority(Agent("A", model="openai/gpt-4o"), config)] == [
        "openai/gpt-4o"
    ]


def test_missing_model_error_says_where_to_set_it() -> None:
    with pytest.raises(NoHandlerError, match=r"Agent 'A' has no model.*RunConfig\(model=\.\.\.\)"):
        handler_for(Agent("A"), RunConfig())


class Half:
    """Has a stream and no name."""

    def stream(self, request: Any) -> None: ...


@pytest.mark.parametrize("model", [function, 5, Half()])
def test_invalid_handler_is_refused_with_advice(model: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a model string or a handler.*function_handler"):
        handler_for(Agent("A", model=model), RunConfig())


def test_a_wrapped_function_is_a_handler() -> None:
    handler = function_handler(function)
    assert handler_for(Agent("A", model=handler), RunConfig()) is handler
