"""The offer of an agent that all its runs share."""

from __future__ import annotations

import pytest

from routelock import (
    Agent,
)

pytestmark = pytest.mark.anyio


B = Agent("B", handoff_description="Knows about bills.")


def test_runs_with_any_handler_share_an_offer() -> None:
    """Else each handler that an app makes for a run would stay in memory with the agent."""
    first, second = B.fixed_offers.of("first"), B.fixed_offers.of("second")
    assert first is second is not None
