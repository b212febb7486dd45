"""Shows a streaming handler of your own, in 15 lines: any async generator of text can answer."""

import asyncio
from collections.abc import AsyncIterator

from routelock import Agent, Message, Runner, handler


@handler
async def countdown(messages: list[Message]) -> AsyncIterator[str]:
    """Answer without any model; each piece is streamed as it is yielded."""
    for number in (3, 2, 1):
        yield f"{number} ... "
    yield str(messages[-1].get("content"))


async def main() -> None:
    """Print the pieces as they come."""
    async for event in Runner.run_streamed(Agent("launcher", model=countdown), "Lift-off!"):
        print(event.text if event.type == "text_delta" else "", end="|")


asyncio.run(main())
