"""A run in the hands of its caller: waited for, held, or read event by event."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from types import TracebackType
from typing import Any

from routelock.agents.agent import Agent
from routelock.errors import ConfigError
from routelock.history.messages import Message
from routelock.run.events import RunDone, RunEvent
from routelock.run.loop import run_events
from routelock.run.result import RunResult
from routelock.run.run import Run

__all__ = ["RunHandle", "RunStream", "finish"]


async def finish(run: Run) -> RunResult[Any]:
    """Carry out a run that has no reader, and return its result."""
    result: RunResult[Any] | None = None
    async with aclosing(run_events(run)) as events:
        async for event in events:
            if isinstance(event, RunDone):
                result = event.result
    assert result is not None, "the last event of a run is RunDone"
    return result


class RunHandle:
    """The caller's hold on one run: its result, however the run ends.

        handle = RunHandle()
        with anyio.move_on_after(30):
            await Runner.run(agent, "Hi", handle=handle)
        result = handle.result

    An error that ends a run carries the result itself, but a cancellation, a timeout of the caller's or a
    ``KeyboardInterrupt`` does not. Go on with ``handle.result.state()``: what was begun is not done again. A
    state from before the run does not know what the run has done. A `RunStream` has its result itself.
    """

    def __init__(self) -> None:
        self._run: Run | None = None

    @property
    def result(self) -> RunResult[Any] | None:
        """The result as it stands, final once the run has ended, see ``stop_reason``; None before a run."""
        return None if self._run is None else self._run.result()

    def hold(self, run: Run) -> None:
        """Hold a run; `Runner.run` does that.

        Raises:
            ConfigError: this handle has had one.
        """
        if self._run is not None:
            raise ConfigError("A RunHandle is for one run, and this one has had its run: make another one.")
        self._run = run


class RunStream:
    """A run that is read event by event.

        async with Runner.run_streamed(agent, "Hi") as stream:
            async for event in stream:
                ...
        result = stream.result

    Leaving the ``async with`` block early ends the run: the connection to the provider is closed, and
    ``result`` is what happened until then, as it is for a `RunHandle`.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._events: AsyncGenerator[RunEvent] = run_events(run)

    @property
    def result(self) -> RunResult[Any]:
        """The result as it stands: complete after the last event, partial (see ``stop_reason``) before."""
        return self._run.result()

    @property
    def final_output(self) -> Any:
        """The final output, or None as long as there is none."""
        return self._run.ending.final_output

    @property
    def current_agent(self) -> Agent[Any]:
        """Who is speaking."""
        return self._run.frame.agent

    @property
    def last_agent(self) -> Agent[Any]:
        """The agent that spoke last, as on the result; the same as ``current_agent``."""
        return self._run.frame.agent

    def to_input_list(self) -> list[Message]:
        """Return what happened so far as input for the next run, see `RunResult.to_input_list`."""
        return self._run.result().to_input_list()

    async def drain(self) -> RunResult[Any]:
        """Read the rest of the run and return its result."""
        async for _ in self:
            pass
        return self.result

    def stream_events(self) -> AsyncIterator[RunEvent]:
        """Return the events; the same as iterating over the stream itself."""
        return aiter(self)

    def __aiter__(self) -> AsyncIterator[RunEvent]:
        return self._events

    async def __aenter__(self) -> RunStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the run now, if it still goes on. Safe to call twice."""
        try:
            await self._events.aclose()
        except RuntimeError as error:
            if "already running" not in str(error):
                raise
            raise ConfigError(
                "This stream is being read by another task at this moment. Cancel that task instead: its "
                "`async with` block closes the stream."
            ) from error
