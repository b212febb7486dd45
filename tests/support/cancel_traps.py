"""Cancelling a run at any place where it waits."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import anyio.lowlevel

from routelock.handlers.events import HandlerEvent
from routelock.handlers.port import Request
from routelock.testing import ScriptedHandler


class Trap:
    """Cancels the scope around the run at the k-th place that waits; with k = 0 it only counts."""

    def __init__(self, k: int = 0) -> None:
        self.k = k
        self.passed = 0
        self.scope = anyio.CancelScope()

    async def wait(self) -> None:
        self.passed += 1
        if self.passed == self.k:
            self.scope.cancel()
        await anyio.lowlevel.checkpoint()


class Watched:
    """A handler that waits around each event, and counts what is open and what was begun."""

    def __init__(self, script: ScriptedHandler, trap: Trap, opened: list[str], begun: list[Request]) -> None:
        self.name = script.name
        self.script = script
        self.trap = trap
        self.opened = opened
        self.begun = begun

    async def stream(self, request: Request) -> AsyncGenerator[HandlerEvent]:
        self.opened.append(self.name)
        self.begun.append(request)
        try:
            await self.trap.wait()
            async with aclosing(self.script.stream(request)) as events:
                async for event in events:
                    await self.trap.wait()
                    yield event
            await self.trap.wait()
        finally:
            self.opened.remove(self.name)
