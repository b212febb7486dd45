"""A model call as a step of the app's executor: its key, its arguments and its events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict
from math import inf
from typing import Any

from routelock._json import recordable
from routelock.handlers.events import AttemptFailed, HandlerEvent
from routelock.handlers.port import Request
from routelock.run.executor import Call, Executor
from routelock.run.frames import earliest_deadline
from routelock.run.run import Run

__all__ = ["step_events"]


async def step_events(
    run: Run, executor: Executor, request: Request, make: Callable[[], AsyncGenerator[HandlerEvent]]
) -> AsyncGenerator[HandlerEvent]:
    """Make the model call as a step; a replayed step begins its further attempts, as a new one does.

    Args:
        run: the run.
        executor: records the step, or replays it.
        request: the request of the call.
        make: makes the call, and returns its events.
    """
    step = Call(run.run_id, _step_key(run), "model", _step_arguments(run, request))
    is_replayed = True

    def body(_: Call) -> AsyncGenerator[HandlerEvent]:
        nonlocal is_replayed
        is_replayed = False
        return make()

    async with aclosing(executor.stream(step, body)) as events:
        async for event in events:
            yield event
            if is_replayed and isinstance(event, AttemptFailed):
                run.budget.begin_attempt()


def _step_key(run: Run) -> str:
    key = f"t{run.turn}.model.{run.frame.agent.name}"
    if earliest_deadline(run.callers) < inf:  # a step that times out is no turn: the next needs another key
        key = f"{key}~{len(run.callers)}"
    if run.model_call.compacted_turn == run.turn:  # the call that was too long is another step
        key = f"{key}.again"
    return f"{key}.{run.frame.handler.name}" if run.failed_handlers else key


def _step_arguments(run: Run, request: Request) -> dict[str, Any]:
    output = request.output_schema
    args: dict[str, Any] = {
        "agent": request.agent,
        "handler": run.frame.handler.name,
        "messages": request.messages,
        "tools": request.tools,
        "tool_choice": request.tool_choice,
        "settings": request.settings,
        "output_schema": None if output is None else asdict(output),
    }
    if request.handoff_input is not None:
        args["handoff_input"] = recordable(request.handoff_input)
    return args
