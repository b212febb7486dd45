"""Who is told what happens in a run: a `Trace` of the app's choice, by way of what a run calls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from routelock.handlers.events import AttemptFailed, HandlerEvent, MessageDone
from routelock.handlers.port import Handler, Request
from routelock.history.messages import ToolCall
from routelock.tools.tool import ToolOutcome
from routelock.trace_records import RunStarted, TraceRecord

__all__ = ["Trace", "TraceWriter", "Tracing", "Within"]


class TraceWriter(Protocol):
    """Is given what happens in one run.

    It may have a method ``inside(call_id)`` as well, which returns a context manager. The tool of that call
    runs within it; with None for the id, the handler does, each time that it works, but not while its events
    are shown.
    """

    def write(self, record: TraceRecord, /) -> None:
        """Take one record. It must not wait, and must not change what is in it.

        One that raises is not asked again in that run; what it raised is on ``RunResult.errors``.
        """
        ...


class Trace(Protocol):
    """Takes traces of runs, see ``RunConfig.trace``. Any number of runs may use one at the same time."""

    def begin(self, start: RunStarted, parent: TraceWriter | None, /) -> TraceWriter:
        """Return what is given the records of a run that begins.

        Args:
            start: the first of them; it is not given to the writer again.
            parent: what this trace returned for the run within which that run is, if there is one.
        """
        ...


class Tracing(Protocol):
    """What a run tells of itself; see `routelock.tracing`. A run that is not traced has none."""

    def within(self, outer: Tracing, call_id: str) -> None:
        """Be that of a run which answers a call of another one."""
        ...

    def begin(self) -> None:
        """The run begins."""
        ...

    def catch_up(self) -> None:
        """Write what is new in the books of the run."""
        ...

    def model_started(self, request: Request) -> None:
        """A model call begins."""
        ...

    def model_retried(self, failed: AttemptFailed) -> None:
        """An attempt failed, and there will be another one."""
        ...

    def model_ended(self, reply: MessageDone | None, error: BaseException | None) -> None:
        """A model call has come to its end."""
        ...

    def tool_started(self, call: ToolCall, nested: str | None = None) -> None:
        """A tool is about to run; one that is an agent answers with that run."""
        ...

    def tool_ended(self, call: ToolCall, outcome: ToolOutcome) -> None:
        """A tool has an outcome."""
        ...

    def inside(self, call_id: str | None) -> AbstractContextManager[None]:
        """Return that within which a tool runs, or the handler that makes the model call."""
        ...

    def handler(self) -> Handler:
        """Return the handler that is in charge, or one around it that works within what the writers want."""
        ...

    def took_over(self, handoff_id: str, shaped_by: str | None, before: int) -> None:
        """The target of a transfer has taken over."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The run has ended; safe to call twice, the first word counts."""
        ...


class Within:
    """A handler that works within a context manager of a trace, entered anew for each of its steps.

    Between them somebody else may have the word, and may read on in another task or never: what was entered
    in one context could then only be left in another one.
    """

    def __init__(self, inner: Handler, inside: Callable[[str | None], AbstractContextManager[None]]) -> None:
        self.name = inner.name
        self._inner = inner
        self._inside = inside

    def stream(self, request: Request, /) -> AsyncGenerator[HandlerEvent]:
        """Answer as the handler does."""
        events = self._inner.stream(request)
        # what is no generator is for `routelock.attempts` to complain about
        return self._steps(events) if hasattr(events, "__aiter__") and hasattr(events, "aclose") else events

    async def _steps(self, events: AsyncGenerator[HandlerEvent]) -> AsyncGenerator[HandlerEvent]:
        steps = aiter(events)
        try:
            while True:
                with self._inside(None):
                    try:
                        event = await anext(steps)
                    except StopAsyncIteration:
                        return
                yield event
        finally:
            with self._inside(None):
                await events.aclose()
