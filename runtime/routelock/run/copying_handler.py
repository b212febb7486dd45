"""A handler for functions of the app, which may change the request that they get."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Handler, Request, copy_of

__all__ = ["CopyingHandler"]


@dataclass(frozen=True, slots=True)
class CopyingHandler:
    """A handler that gets a copy of each request, so that it cannot change the run."""

    inner: Handler

    @property
    def name(self) -> str:
        """Name of the handler."""
        return self.inner.name

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the handler."""
        return self.inner.stream(copy_of(request))
