"""The seam: each model call and each tool call of a run passes through its `Executor`, if it has one.

Without one the loop calls the functions itself. A durable engine wraps the same calls without the core
knowing: a `Call`'s key is a function of the run's state, its args are JSON, and what a tool step gives
back is JSON too, so it can be recorded and replayed in another process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from routelock._concurrency import run_all
from routelock.handlers.events import HandlerEvent

__all__ = ["Call", "Executor", "InProcess", "Outcome"]


Outcome = Mapping[str, Any]
"""What a tool step gave, as JSON: ``{"ok": {...}}`` or ``{"err": {"type", "message", "retryable"}}``, and
``"stop"`` if the run is to end with it. A failure is an outcome, never an exception: an engine that
replays could not raise the original class again."""


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a run.

    ``key`` is unique in the run ``run_id`` and the same whenever the run is replayed, such as
    ``"t3.tool.charge.call_2"``. ``op`` names the kind of step and ``args`` its JSON arguments, so an
    engine that cannot carry a closure can look the body up by name.
    """

    run_id: str
    key: str
    op: str
    args: Mapping[str, Any]
    timeout: float | None = None


class Executor(Protocol):
    """Carries out the steps of runs. An engine may record, replay, retry or move them."""

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Run a model step and pass its events on; replaying, yield the recorded `MessageDone` alone."""
        ...

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run tool steps at the same time and return their outcomes in the order of the calls."""
        ...


class InProcess:
    """Carries out each step as a run without an executor does: no journal, no queue, just the function."""

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Return the body's own events."""
        return body(call)

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run one call directly and several in a task group."""

        async def made(call: Call) -> Outcome:
            return await body(call)

        return await run_all([partial(made, call) for call in calls])
