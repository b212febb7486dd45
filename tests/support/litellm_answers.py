"""Answers of respx for tests that call a model through litellm."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from answers import Answers
from servers import Reply

from routelock_providers.litellm.library import close_litellm

__all__ = ["served"]


@asynccontextmanager
async def served(*replies: Reply) -> AsyncGenerator[Answers]:
    """Give replies without a socket, and let no client of litellm outlive the test."""
    with Answers(*replies) as server:
        try:
            yield server
        finally:
            await close_litellm()
