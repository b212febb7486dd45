"""`Executor`: carries out the model and tool calls of a run, such as an engine for durable runs.

Without an executor, the loop calls the functions directly. An engine can record the same calls and replay
them in another process: the key of a `Call` depends only on the state of the run, and its arguments and the
outcome of a tool step are JSON.
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
"""Outcome of a tool step as JSON: ``{"ok": {...}}`` or ``{"err": {"type", "message", "retryable"}}``, with
``"stop"`` if it ends the run, and ``"of_callback"`` if it does because a guardrail of the tool raised. A
failure is an outcome and not an exception, because a replay could not raise the original class."""


@dataclass(frozen=True, slots=True)
class Call:
    """One step of a run: a model call or a tool call."""

    run_id: str
    key: str
    """Unique in the run and the same at each replay, such as ``"t3.tool.charge.call_2"``."""
    op: str
    """Kind of the step, ``"model"`` or ``"tool"``. An engine that cannot store a function can find it by
    ``op`` and ``args``."""
    args: Mapping[str, Any]
    """Arguments as JSON."""
    timeout: float | None = None
    """Timeout of the tool in seconds; None for no limit."""


class Executor(Protocol):
    """Carries out the steps of runs. An engine may record, replay, retry or move them."""

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Run a model step and yield its events; a replay yields only the recorded `MessageDone`."""
        ...

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run tool steps concurrently and return their outcomes in the order of the calls."""
        ...


class InProcess:
    """Calls the functions directly, as a run without an executor does."""

    def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Return the events of the body."""
        return body(call)

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run the calls concurrently."""

        async def run_body(call: Call) -> Outcome:
            return await body(call)

        return await run_all([partial(run_body, call) for call in calls])
