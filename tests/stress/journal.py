"""An executor that writes down what each step gave, as a durable engine does, and gives it again."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from interlock.errors import InterlockError
from interlock.events import AttemptFailed, HandlerEvent, MessageDone
from interlock.executor import Call, InProcess, Outcome
from interlock.usage import Usage

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
        found = self.entries.get((call.run_id, call.key))
        if found is not None:
            yield _read(found)
            return
        self.made += 1
        done: MessageDone | None = None
        async with aclosing(body(call)) as events:
            async for event in events:
                if isinstance(event, MessageDone | AttemptFailed):
                    done = event if isinstance(event, MessageDone) else None
                yield event
        if done is not None:  # a handler may also fail when it has said all
            self._write(call, asdict(done))

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        json.dumps([call.args for call in calls])
        new = [call for call in calls if (call.run_id, call.key) not in self.entries]
        self.made += len(new)
        for call, outcome in zip(new, await self._inner.gather(new, body) if new else (), strict=True):
            self._write(call, outcome)
        return [json.loads(self.entries[call.run_id, call.key]) for call in calls]

    def _write(self, call: Call, what: Any) -> None:
        place = (call.run_id, call.key)
        assert place not in self.entries, f"{place} is not unique"
        self.entries[place] = json.dumps(what)


def _read(text: str) -> MessageDone:
    data = json.loads(text)
    usage = data.pop("usage")
    return MessageDone(**data, usage=None if usage is None else Usage(**usage))


def can_be_replayed(result: Any, error: InterlockError | None) -> bool:
    """Whether all steps gave something: a model call that failed is an exception, which is made again."""
    failed = ("provider", "fallback")
    return (
        error is None
        and not any(problem.kind in failed for problem in result.errors)
        and all(made.reply is not None for made in result.calls)
        and all(can_be_replayed(inner, None) for inner in result.nested.values())
    )
