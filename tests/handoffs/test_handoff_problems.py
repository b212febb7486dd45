"""Everything that is wrong with the declaration of a handoff is in one error."""

from __future__ import annotations

from typing import Any

import pytest

from routelock import Agent
from routelock.errors import ConfigError
from routelock.handoffs.handoff import Handoff
from routelock.handoffs.handoff_problems import target_name


def test_error_lists_all_that_is_wrong() -> None:
    wrong: Any = {"timeout": -1, "priority": True}
    with pytest.raises(ConfigError) as caught:
        Handoff(target=Agent("B"), **wrong)
    assert "timeout must be seconds or None, not -1" in str(caught.value)
    assert "priority must be a whole number, not True" in str(caught.value)


def test_target_without_a_stream_method_is_refused() -> None:
    class Named:
        name = "b"

    with pytest.raises(ConfigError, match="has no stream method"):
        target_name(Named())
