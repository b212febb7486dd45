"""What is said about a reply that is odd."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from routelock import Agent, Request, Runner
from routelock.handlers.events import HandlerEvent, MessageDone

pytestmark = pytest.mark.anyio


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


async def test_a_reply_is_kept_though_its_usage_is_none() -> None:
    done = MessageDone(message=DONE.message, usage=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(done)), "Hi")
    assert result.final_output == "Hi."
    (warning,) = result.warnings
    assert "not a routelock.Usage" in warning
