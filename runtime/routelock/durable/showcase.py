"""What happens in a step, written down for whoever watches the run from another process."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Any

from routelock.durable.library import EVENTS, engine
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.run.executor import Call, Outcome

__all__ = ["Showcase"]

_EVERY = 0.05
"""Each write is a transaction: one for each token would slow down the model."""


class Showcase:
    """Gathers the events of one step and writes them some milliseconds later, in order."""

    def __init__(self, key: str, attempt: int, *, open: bool) -> None:
        self._about = {"step": key, "attempt": attempt}
        self._open = open
        self._first = True
        self._waiting: list[dict[str, Any]] = []
        self._over = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    def show(self, event: HandlerEvent) -> None:
        """Let others see an event."""
        if isinstance(event, AttemptFailed):
            self._add({"attempt": event.attempt, "delay": event.delay, "error": str(event.error)}, event.type)
        else:
            self._add(asdict(event), event.type)

    def show_outcome(self, call: Call, outcome: Outcome) -> None:
        """Let others see how a tool call ended."""
        self._add({"call": dict(call.args), "outcome": dict(outcome)}, "tool_outcome")

    def _add(self, data: dict[str, Any], kind: str) -> None:
        if self._open:
            self._waiting.append({"type": kind, **data})

    async def __aenter__(self) -> Showcase:
        if self._open:
            self._writing = asyncio.create_task(self._write_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._writing is not None:
            await self._writing

    async def _write_on(self) -> None:
        over = False
        while not over:
            with suppress(TimeoutError):
                over = await asyncio.wait_for(self._over.wait(), _EVERY)
            await self._write()

    async def _write(self) -> None:
        if not self._waiting:
            return
        events, self._waiting = self._waiting, []
        part = {**self._about, "first": self._first, "events": events}
        self._first = False
        await engine().DBOS.write_stream_async(EVENTS, part)
