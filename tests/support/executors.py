"""Executors that write down each step, and that give back what was written down."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from scenes import Scene, Stage, facts

from routelock import Runner
from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.run.executor import Call, Executor, InProcess, Outcome

Body = Callable[[Call], AsyncGenerator[HandlerEvent]]
Step = Callable[[Call], Awaitable[Outcome]]


class Recording:
    """Writes down each step and what it gave, as an engine's journal would: the tools' part as JSON."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.journal: dict[tuple[str, str], Any] = {}

    async def stream(self, call: Call, body: Body) -> AsyncGenerator[HandlerEvent]:
        self.calls.append(call)
        async with aclosing(body(call)) as events:
            async for event in events:
                if isinstance(event, MessageDone):
                    self.journal[call.run_id, call.key] = event
                yield event

    async def gather(self, calls: Sequence[Call], body: Step) -> Sequence[Outcome]:
        self.calls += calls
        outcomes = await InProcess().gather(calls, body)
        for call_, outcome in zip(calls, outcomes, strict=True):
            self.journal[call_.run_id, call_.key] = json.loads(json.dumps(outcome))
        return outcomes


class Replaying:
    """Gives back what was recorded and never calls a body."""

    def __init__(self, recording: Recording) -> None:
        self.journal = recording.journal

    async def stream(self, call: Call, body: Body) -> AsyncGenerator[HandlerEvent]:
        yield self.journal[call.run_id, call.key]

    async def gather(self, calls: Sequence[Call], body: Step) -> Sequence[Outcome]:
        return [self.journal[call.run_id, call.key] for call in calls]


async def play(scene: Scene, executor: Executor, stage: Stage) -> tuple[dict[str, Any], str]:
    """Carry out a scene through an executor; return its facts, and its error as text if it has one."""
    settings = scene.settings(executor=executor)
    try:
        result = await Runner.run(scene.agent(stage), "Hi", max_turns=scene.max_turns, run_config=settings)
    except RoutelockError as error:
        return facts(error.result), repr(error)
    return facts(result), ""
