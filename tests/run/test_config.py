"""The settings of a run: safe by default, and wrong ones are found when they are written."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from routelock import Retry, RunConfig


def test_the_defaults_are_safe() -> None:
    """Mistakes are answered, limits raise, loops are noticed."""
    config = RunConfig()
    assert (config.max_handoffs, config.max_mistakes, config.detect_loops) == (5, 3, True)
    assert (config.on_limit, config.raise_on, config.multiple_handoffs) == ("raise", (), "first")
    shaping = (config.nest_handoff_history, config.handoff_input_filter, config.handoff_prompt)
    assert shaping == (False, None, False)
    assert config.retry == Retry()


def test_two_configs_share_nothing() -> None:
    one, other = RunConfig(), RunConfig()
    assert one.model_settings is not other.model_settings
    assert one == other


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RunConfig().max_handoffs = 9  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
