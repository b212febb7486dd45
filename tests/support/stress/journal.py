"""An executor that writes down what each step gave, as a durable engine does, and gives it again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from routelock.errors import RoutelockError
from routelock.handlers.events import HandlerEvent
from routelock.handoff_request import HandoffStatus
from routelock.run.executor import Call, InProcess, Outcome
from routelock.state.steps import ModelStep, recorded_error

__all__ = ["Journal", "can_be_replayed"]


class Journal:
    """What happened, by run and step, as JSON."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], str] = {}
        self.made = 0
        """Steps that were carried out, and not found."""
        self._inner = InProcess()

    @property
    def whole(self) -> bool:
        """Whether each step that was begun came to its end: time was up for none."""
        return self.made == len(self.entries)

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        json.dumps(call.args)
        if (found := self.entries.get((call.run_id, call.key))) is not None:
            step = ModelStep.from_json(found)
            for event in step.events():
                yield event
            if step.error is not None:
                raise step.error
            return
        self.made += 1
        step = ModelStep()
        try:
            async with aclosing(body(call)) as events:
                async for event in events:
                    step.note(event)
                    yield event
        except Exception as error:
            step.error = recorded_error(error, call)
            if step.error is None:
                raise
            self._write(call, step.to_json())
            raise step.error from step.error.__cause__
        if step.done is not None:
            self._write(call, step.to_json())

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        json.dumps([call.args for call in calls])
        new = [call for call in calls if (call.run_id, call.key) not in self.entries]
        self.made += len(new)
        for call, outcome in zip(new, await self._inner.gather(new, body) if new else (), strict=True):
            self._write(call, json.dumps(outcome))
        return [json.loads(self.entries[call.run_id, call.key]) for call in calls]

    def _write(self, call: Call, entry: str) -> None:
        place = (call.run_id, call.key)
        assert place not in self.entries, f"{place} is not unique"
        self.entries[place] = entry


def can_be_replayed(result: Any, error: RoutelockError | None) -> bool:
    """Whether time was up for steps alone, not for an agent tool, nor for who is asked to take over."""
    return (
        error is None
        and not any(record.status is HandoffStatus.EXPIRED for record in result.handoffs)
        and all(inner.stop_reason != "unfinished" for inner in result.nested.values())
        and all(can_be_replayed(inner, None) for inner in result.nested.values())
    )
