"""What a model is told of errors whose own text is for the developer."""

from __future__ import annotations

import inspect

import pytest

from routelock import errors
from routelock.errors import (
    CallbackError,
    ConfigError,
    HandlerError,
    LimitExceeded,
    MaxTurnsExceeded,
    ProviderError,
    RateLimited,
    ToolError,
)
from routelock.tools.error_advice import advice_of
from routelock.tools.failures import failure_text, reason_for_model, text_for_app

ALL = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]

OF_APP = (CallbackError, HandlerError, ProviderError, ToolError, LimitExceeded)


@pytest.mark.parametrize("kind", [each for each in ALL if issubclass(each, LimitExceeded | ProviderError)])
def test_limits_and_vendors_have_advice_for_a_model(kind: type[Exception]) -> None:
    assert bool(advice_of(kind("Raise max_turns."))) is (kind not in OF_APP)


@pytest.mark.parametrize("kind", OF_APP)
def test_text_of_the_app_is_shown_as_it_is(kind: type[Exception]) -> None:
    assert reason_for_model(kind("no such order")) == f"{kind.__name__}: no such order"


def test_run_without_a_turn_left_differs_from_one_that_used_its_turns() -> None:
    used = MaxTurnsExceeded("Max turns (2) exceeded.")
    used.result = object()
    assert "did not begin" in advice_of(MaxTurnsExceeded("None is left."))
    assert "made all of its model calls" in advice_of(used)


def test_app_reads_the_text_of_the_error() -> None:
    error = ConfigError("Pass model=.")
    told = failure_text("helper", error, of_agent=True)
    assert "Pass model=." not in told
    assert text_for_app(f"{told}\nMore.", error) == "Tool 'helper' failed: ConfigError: Pass model=.\nMore."


def test_tool_error_does_not_repeat_the_advice_of_its_cause() -> None:
    error = ToolError("Tool 'ask' failed: RateLimited: raise your quota at example.com")
    error.__cause__ = RateLimited("raise your quota at example.com")
    assert reason_for_model(error) == (
        "ToolError: Tool 'ask' failed: RateLimited: its model gave no reply this time. Try it once more, or "
        "go on without it."
    )


def test_own_text_of_a_tool_is_shown_whatever_its_cause() -> None:
    error = ToolError("This address is not one. Nothing was sent.")
    error.__cause__ = ConfigError("Pass url=.")
    assert (
        failure_text("go", error) == "Tool 'go' failed: ToolError: This address is not one. Nothing was sent."
    )


def test_error_that_a_tool_raises_itself_is_shown() -> None:
    """Its text may be about an argument of the model."""
    assert failure_text("go", ConfigError("5 is not in range.")).endswith("ConfigError: 5 is not in range.")
