"""Partial outputs: values of the output type, made of a reply that is still being written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from routelock._sendable import sendable
from routelock.handlers.events import AttemptFailed, MessageDone, TextDelta, ToolCallDelta
from routelock.handlers.port import Request
from routelock.handlers.stream_assembler import join_surrogates
from routelock.handlers.structured_output import json_begun
from routelock.run.events import RunDone, RunEvent
from routelock.run.frames import asking_caller
from routelock.run.run import Run

__all__ = ["PartialOutputs"]


_SHORT = 2000
"""Characters of a text that is read again with each piece."""

_PARTS = 16
"""Of a longer text, the part beyond `_SHORT` has to grow by a 16th before the text is read again. So the time
for all readings grows with the length of the text, and not with the square of it."""

_NOTHING = object()


class PartialOutputs:
    """Reads the events of a run, and gives the partial outputs.

    The text of the reply is in the run already, so it does not matter which event is the first. This is no
    generator, so that a reader may leave it and go on with the events.
    """

    __slots__ = ("_events", "_has_calls", "_last", "_length", "_next_length", "_request", "_run")

    def __init__(self, run: Run, events: AsyncIterator[RunEvent]) -> None:
        self._run = run
        self._events = events
        self._last: Any = _NOTHING
        self._request: Request | None = None
        self._begin(None)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while True:
            for output in self._take(await anext(self._events)):
                return output

    def _take(self, event: RunEvent) -> tuple[Any, ...]:
        """Return the output that there is after an event, if it differs from the one before; else nothing."""
        if isinstance(event, TextDelta):
            self._follow_reply()
            return self._take_text(event.text)
        if isinstance(event, ToolCallDelta):  # the text beside calls is not the final answer
            self._follow_reply()
            self._has_calls = True
        elif isinstance(event, AttemptFailed | MessageDone):
            self._begin(None)
        elif isinstance(event, RunDone):
            result = event.result
            if result.stop_reason == "done" or result.final_output is not None:
                return self._unless_known(result.final_output)
        return ()

    def _begin(self, request: Request | None) -> None:
        """Forget the text so far, because another reply begins."""
        self._request, self._has_calls = request, False
        self._length = self._next_length = 0

    def _follow_reply(self) -> None:
        if (request := self._run.model_call.request) is not self._request:
            self._begin(request)

    def _take_text(self, text: str) -> tuple[Any, ...]:
        output = self._run.frame.agent.output
        self._length += len(text)
        if output is None or self._has_calls or self._length < self._next_length:
            return ()
        if self._run.callers and asking_caller(self._run.callers) is not None:
            return ()
        self._next_length = self._length + max(0, self._length - _SHORT) // _PARTS
        so_far = json_begun(sendable(join_surrogates(self._run.model_call.text)))
        value = output.parse_partial(so_far) if so_far else None
        return () if value is None else self._unless_known(value)

    def _unless_known(self, value: Any) -> tuple[Any, ...]:
        with suppress(Exception):  # arrays have no truth value
            if value == self._last:
                return ()
        self._last = value
        return (value,)
