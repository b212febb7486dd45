"""A handler that yields what a test tells it to, without any check."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio

from routelock import Request
from routelock.handlers.events import HandlerEvent, MessageDone

DONE = MessageDone(message={"role": "assistant", "content": "Hi."})


class Yields:
    """Yields what it is told to, and then waits for ever if it is to."""

    name = "yields"

    def __init__(self, *events: Any, hangs: bool = False) -> None:
        self.events: Sequence[Any] = events
        self.hangs = hangs
        self.closed = False

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        try:
            for event in self.events:
                yield event
            if self.hangs:
                await anyio.sleep_forever()
        finally:
            self.closed = True
