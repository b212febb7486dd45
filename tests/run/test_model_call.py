"""One model call: deltas are shown, one reply is kept, and what is no reply is the handler's failure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest

from routelock import Agent, Request, RunConfig, Runner, function_handler
from routelock.errors import HandlerError, ProviderTimeout
from routelock.handlers.events import HandlerEvent, MessageDone, TextDelta

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


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ((DONE, DONE), "two MessageDone"),
        (("Hi.",), "yielded a str"),
        ((TextDelta(7), DONE), "whose text is 7"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
async def test_what_is_no_reply_is_the_handlers_failure(events: Any, said: str) -> None:
    handler = Yields(*events)
    with pytest.raises(HandlerError, match=said):
        await Runner.run(Agent("A", model=handler), "Hi")
    assert handler.closed


async def test_a_delta_of_nothing_says_nothing() -> None:
    nothing = TextDelta(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(nothing, DONE)), "Hi")
    assert result.final_output == "Hi."


async def test_a_reply_is_kept_though_its_usage_is_none() -> None:
    done = MessageDone(message=DONE.message, usage=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    result = await Runner.run(Agent("A", model=Yields(done)), "Hi")
    assert result.final_output == "Hi."
    (warning,) = result.warnings
    assert "not a routelock.Usage" in warning


@pytest.mark.every_loop
@pytest.mark.virtual_time
async def test_late_reply_keeps_its_partial_text() -> None:
    handler = Yields(TextDelta("Half a "), hangs=True)
    with pytest.raises(ProviderTimeout, match="turn_timeout") as caught:
        await Runner.run(Agent("A", model=handler), "Hi", run_config=RunConfig(turn_timeout=5))
    assert handler.closed
    assert caught.value.result is not None
    assert caught.value.result.items[-1].message.get("content") == "Half a "


async def test_a_function_of_the_apps_edits_a_copy() -> None:
    async def rude(request: Request) -> str:
        request.messages[-1]["content"] = "Bye"
        return "Hi."

    result = await Runner.run(Agent("A", model=function_handler(rude)), "Hello")
    assert result.items[0].message.get("content") == "Hello"
