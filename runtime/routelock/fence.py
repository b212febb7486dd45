"""A fence around models: a test that must not ask one puts it up, and handlers look at it before they ask."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from routelock.port import Request

__all__ = ["FENCE", "about_to_ask"]

FENCE: Final[ContextVar[Callable[[str, Request], None] | None]] = ContextVar("routelock_fence", default=None)
"""Is told of each model that is about to be asked, and may raise; `routelock.testing.no_models` sets it."""


def about_to_ask(model: str, request: Request) -> None:
    """Say that a model is about to be asked. Handlers that talk to a vendor call it before anything else.

    Args:
        model: its name, as people know it.
        request: what it is asked.

    Raises:
        ModelCallBlocked: a test does not want any model to be asked.
    """
    if (check := FENCE.get()) is not None:
        check(model, request)
