"""What is said about a reply that is odd."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from routelock import Agent, Request, Runner
from routelock.handlers.events import HandlerEvent, MessageDone

pytestmark = pytest.mark.anyio


DONE = MessageDone(message={"role": "assistant", "content": "Hi."})


class Yields:
    """A handler that yields one event."""

    name = "yields"

    def __init__(self, event: HandlerEvent) -> None:
        self.event = event

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        yield self.event


async def test_a_reply_is_kept_though_its_usage_is_none() -> None:
    done = MessageDone(message=DONE.message, usage=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(done)), "Hi")
    assert result.final_output == "Hi."
    (warning,) = result.warnings
    assert "not a routelock.Usage" in warning
