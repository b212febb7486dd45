"""Everything that is wrong with the declaration of an agent is in one error."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent
from routelock.agents.agent_problems import check_model, guardrail_problems
from routelock.errors import ConfigError, NoHandlerError


def test_error_lists_all_that_is_wrong() -> None:
    wrong: Any = {"tools": "search", "capabilities": [1]}
    with pytest.raises(ConfigError) as caught:
        Agent("A", model=7, **wrong)  # type: ignore[arg-type]
    assert "tools must be a list" in str(caught.value)
    assert "capabilities are names, not 1" in str(caught.value)


def test_agent_without_a_model_is_refused() -> None:
    with pytest.raises(NoHandlerError, match="has no model"):
        check_model(Agent("A"))


def test_guardrail_must_take_three_arguments() -> None:
    agent: Any = Agent("A", input_guardrails=[lambda context, agent, value: None])  # type: ignore[arg-type]
    assert guardrail_problems(agent) == []
    with pytest.raises(ConfigError, match="must take three arguments"):
        Agent("B", output_guardrails=[lambda context: None])  # type: ignore[arg-type]
