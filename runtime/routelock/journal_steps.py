"""The executor of a journal: what a step gave is written down before anything is made of it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing

import anyio

from routelock.handlers.events import HandlerEvent, MessageDone
from routelock.run.executor import Call, InProcess, Outcome
from routelock.step_entries import Given, given_by, lasting
from routelock.tools.tool import LOST

__all__ = ["JournalSteps", "StepLost", "Write"]

Write = Callable[[str, str], Awaitable[None]]
"""Keeps what the step of a key gave, as JSON text, in the place of what was kept of it before."""


_LOST: Outcome = {**LOST.envelope(), "stop": False}


class StepLost(BaseException):
    """What a step gave could not be kept, so the run stops as if the process had: nobody is to blame for it.

    It is no `Exception`, or the run would ask another handler, or report it to the model.
    """


class JournalSteps:
    """The `routelock.executor.Executor` of one run.

    Args:
        entries: what is kept of the run, by key, in the order in which it was written.
        write: keeps more.
    """

    def __init__(self, entries: Mapping[str, str], write: Write) -> None:
        self._entries = dict(entries)
        self._write = write
        self._tools = InProcess()
        self._open: dict[str, str] = {}
        """What is kept of turns in which other tools were not done yet: the run was not told of it."""
        self._went_on = False
        """Whether something was made of which nothing was kept."""

    @property
    def left(self) -> dict[str, str]:
        """What is kept and the run did not come to, so that a run that goes on where it ended must find it.

        Once the run has made something new, the rest is of a way that it does not go any more.
        """
        return {**self._open, **({} if self._went_on else self._entries)}

    async def stream(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        """Run a model step, or yield the reply that is kept."""
        if (kept := self._entries.pop(call.key, None)) is not None:
            given = given_by(kept)
            if given.error is None or self._entries:  # the run went on after it, another way
                for event in given.events():
                    yield event
                if given.error is not None:
                    raise given.error
                return
        made = self._made(call, body)
        try:
            async for event in made:
                yield event
        finally:
            await made.aclose()

    async def _made(
        self, call: Call, body: Callable[[Call], AsyncGenerator[HandlerEvent]]
    ) -> AsyncGenerator[HandlerEvent]:
        given = Given()
        try:
            async with aclosing(body(call)) as events:
                async for event in events:
                    given.note(event)
                    if isinstance(event, MessageDone):
                        await self._keep(call.key, given.entry())
                    yield event
        except Exception as error:
            given.error = lasting(error, call)
            if given.error is None:
                raise
            await self._keep(call.key, given.entry())
            raise given.error from given.error.__cause__

    async def gather(
        self, calls: Sequence[Call], body: Callable[[Call], Awaitable[Outcome]]
    ) -> Sequence[Outcome]:
        """Run those tool steps of which nothing is kept; each is written as soon as it is done.

        None is run beside one that ended the run, as far as is kept: what was not written then was cut off.
        """

        async def written(call: Call) -> Outcome:
            outcome = await body(call)
            await self._keep(call.key, json.dumps(outcome))
            return outcome

        kept = {call.key: self._entries.pop(call.key) for call in calls if call.key in self._entries}
        self._open |= kept
        new = [call for call in calls if call.key not in kept]
        ended = any(json.loads(entry).get("stop") for entry in kept.values())
        given = [_LOST] * len(new) if ended else await self._tools.gather(new, written) if new else ()
        made = dict(zip((call.key for call in new), given, strict=True))
        for key in kept:
            del self._open[key]
        return [made[call.key] if call.key in made else json.loads(kept[call.key]) for call in calls]

    async def _keep(self, key: str, entry: str) -> None:
        self._went_on = True
        with anyio.CancelScope(shield=True):  # what was done must be known, also of who is cancelled
            try:
                await self._write(key, entry)
            except Exception as error:
                raise StepLost(key) from error
